"""Chat sessions and their stores, usable without the server."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mochi_server.sessions.attachments import Attachment
from mochi_server.sessions.change import Change
from mochi_server.sessions.session import (
    ChatSession,
    SessionMetadata,
    edited,
    with_system_prompt,
    without_system_prompt,
)
from mochi_server.sessions.store import SessionPage, SessionStore
from mochi_server.sessions.types import (
    AgentSettings,
    AssistantMessage,
    AttachmentReference,
    Blob,
    Image,
    ImageReference,
    Message,
    SessionCreationOptions,
    SessionQuery,
    SystemMessage,
    ToolExecutionPolicy,
    ToolMessage,
    ToolSettings,
    UserMessage,
)

if TYPE_CHECKING:
    from mochi_server.sessions.manager import SessionManager
    from mochi_server.storage.files.store import FileSessionStore
    from mochi_server.storage.memory import MemorySessionStore

__all__ = [
    "AgentSettings",
    "AssistantMessage",
    "Attachment",
    "AttachmentReference",
    "Blob",
    "Change",
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
    "SystemMessage",
    "ToolExecutionPolicy",
    "ToolMessage",
    "ToolSettings",
    "UserMessage",
    "edited",
    "with_system_prompt",
    "without_system_prompt",
]

_MODULES = {
    "FileSessionStore": "mochi_server.storage.files.store",
    "MemorySessionStore": "mochi_server.storage.memory",
    "SessionManager": "mochi_server.sessions.manager",
}


def __getattr__(name: str) -> Any:
    """Import a store class on first use, because the modules of the stores import this package."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
