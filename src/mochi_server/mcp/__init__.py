"""Tools of MCP servers. The MCP SDK is imported only when a server is connected."""

from mochi_server.mcp.servers import McpServers

__all__ = ["McpServers"]
