"""Validation and normalization of changes, shared by all session stores."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from pydantic import BaseModel

from mochi_server.sessions.serialization import normalize
from mochi_server.sessions.session import ChatSession, SessionMetadata, complete_message
from mochi_server.sessions.types import APPROVED, Message, ToolSettings
from mochi_server.util.clock import now

FieldChanges = Mapping[str, Any] | Callable[[SessionMetadata], Mapping[str, Any]]
"""Metadata fields by name, or a function that computes them from the stored metadata."""

_READ_ONLY = {"session_id", "created_at", "updated_at", "message_count", "format_version", "extra"}
_PATCHABLE = frozenset(f.name for f in fields(SessionMetadata)) - _READ_ONLY


def normalized_fields(changes: FieldChanges, stored: SessionMetadata) -> dict[str, Any]:
    """Return the changes as JSON values. Raises ValueError for unknown or read-only fields, or an empty model."""
    changes = changes(stored) if callable(changes) else changes
    if unknown := set(changes) - _PATCHABLE:
        raise ValueError(f"unknown or read-only metadata fields: {', '.join(sorted(unknown))}")
    if "model" in changes and not (isinstance(changes["model"], str) and changes["model"]):
        raise ValueError("model must be a non-empty string")
    models = {name: value.model_dump(mode="json") for name, value in changes.items() if isinstance(value, BaseModel)}
    values: dict[str, Any] = normalize({**changes, **models})
    return values


def approve_tool(tool: str) -> FieldChanges:
    """Return a metadata change that adds ``tool`` to the approved tools of a session."""

    def change(stored: SessionMetadata) -> dict[str, Any]:
        settings = stored.tool_settings
        if tool in settings.approved:
            return {}
        names = sorted({*settings.approved, tool})
        return {"tool_settings": ToolSettings.model_validate(settings.model_dump() | {APPROVED: names})}

    return change


def normalized(session: ChatSession) -> ChatSession:
    """Return a copy of a session as it would be after saving and loading it."""
    return ChatSession.from_dict(normalize(session.to_dict()))


def normalized_message(message: Message, index: int) -> Message:
    """Return a copy of the message at position ``index`` as it would be after saving and loading it."""
    return complete_message(normalize(message), index, now())
