"""Chat sessions: what they are, how they are kept. Usable without the server."""

from mochi_server.sessions.history_edits import edited, with_system_prompt, without_system_prompt
from mochi_server.sessions.images import Image
from mochi_server.sessions.manager import SessionManager
from mochi_server.sessions.session import ChatSession, SessionMetadata
from mochi_server.sessions.store import SessionPage, SessionStore
from mochi_server.sessions.types import (
    AgentSettings,
    ImageReference,
    Message,
    SessionCreationOptions,
    SessionQuery,
    ToolExecutionPolicy,
    ToolSettings,
)
from mochi_server.storage.files.store import FileSessionStore
from mochi_server.storage.memory import MemorySessionStore

__all__ = [
    "AgentSettings",
    "ChatSession",
    "FileSessionStore",
    "Image",
    "ImageReference",
    "MemorySessionStore",
    "Message",
    "SessionCreationOptions",
    "SessionManager",
    "SessionMetadata",
    "SessionPage",
    "SessionQuery",
    "SessionStore",
    "ToolExecutionPolicy",
    "ToolSettings",
    "edited",
    "with_system_prompt",
    "without_system_prompt",
]
