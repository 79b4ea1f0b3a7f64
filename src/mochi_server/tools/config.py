"""A session's tool settings. They are stored with sessions and defined there; this is their name here."""

from mochi_server.sessions.types import ToolExecutionPolicy, ToolSettings

__all__ = ["ToolExecutionPolicy", "ToolSettings"]
