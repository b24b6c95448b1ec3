"""Front end for MCP clients, started by `nacre mcp`."""
