"""Tools of MCP servers, among the others. Nothing of the SDK is imported before a server is to be connected to."""

from mochi_server.mcp.manager import McpServers

__all__ = ["McpServers"]
