"""Tools of MCP servers. The MCP SDK is imported only when a server is connected."""
