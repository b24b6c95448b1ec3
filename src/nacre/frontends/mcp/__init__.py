"""An MCP server."""
