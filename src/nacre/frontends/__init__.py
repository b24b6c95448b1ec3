"""Front ends of nacre: the command line, RPC and MCP.

Each front end reads tool calls, passes them to a `Tool` and writes the replies.
"""
