"""MCP front end."""
