"""Limits of the communication with MCP servers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class McpLimits:
    """Times in seconds and sizes in bytes that limit the communication with the MCP servers of one
    server.
    """

    start_seconds: float = 5
    """Wait for servers to connect before the tools are listed. Slower servers connect later."""
    connect_seconds: float = 30
    """Maximum duration of an attempt to connect, and of a list of tools."""
    retry_seconds: float = 1
    """Pause before the first attempt to reconnect to a remote server.

    Each failure doubles the pause.
    """
    max_retry_seconds: float = 60
    exit_seconds: float = 1
    """Time that a local server has to exit after its stdin is closed, and again after SIGTERM."""
    message_bytes: int = 16 * 1024 * 1024
    """Maximum size of one message of a server."""
