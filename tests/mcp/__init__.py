"""MCP servers: real processes and real sockets."""
