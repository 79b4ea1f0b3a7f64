"""Tool settings of a session, re-exported from ``mochi_server.sessions.types``."""

from mochi_server.sessions.types import ToolExecutionPolicy, ToolSettings

__all__ = ["ToolExecutionPolicy", "ToolSettings"]
