"""Front ends: the command line, RPC and MCP.

Each front end reads calls, passes them to a `Tool` and writes the replies.
"""
