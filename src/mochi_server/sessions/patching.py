"""What may be changed of a session and how it is written, whoever keeps it. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from pydantic import BaseModel

from mochi_server.sessions.serialization import normalize
from mochi_server.sessions.session import ChatSession, SessionMetadata, complete_message
from mochi_server.sessions.types import APPROVED, Message, ToolSettings
from mochi_server.util.clock import now

FieldChanges = Mapping[str, Any] | Callable[[SessionMetadata], Mapping[str, Any]]
"""Metadata fields by name, or a function that returns them for the metadata that is stored."""

_NOT_FOR_PATCHING = {"session_id", "created_at", "updated_at", "message_count", "format_version", "extra"}
_PATCHABLE = frozenset(f.name for f in fields(SessionMetadata)) - _NOT_FOR_PATCHING


def normalized_fields(changes: FieldChanges, stored: SessionMetadata) -> dict[str, Any]:
    """Metadata fields as JSON will give them back. Raises ValueError for what is no field to be set."""
    changes = changes(stored) if callable(changes) else changes
    if unknown := set(changes) - _PATCHABLE:
        raise ValueError(f"no metadata fields to be set: {', '.join(sorted(unknown))}")
    if "model" in changes and not (isinstance(changes["model"], str) and changes["model"]):
        raise ValueError("a session needs a model")
    models = {name: value.model_dump(mode="json") for name, value in changes.items() if isinstance(value, BaseModel)}
    values: dict[str, Any] = normalize({**changes, **models})
    return values


def approve_tool(tool: str) -> FieldChanges:
    """The change that adds one tool to those approved for the session, and leaves the other settings as they are."""

    def change(stored: SessionMetadata) -> dict[str, Any]:
        settings = stored.tool_settings
        if tool in settings.approved:
            return {}
        names = sorted({*settings.approved, tool})
        return {"tool_settings": ToolSettings.model_validate(settings.model_dump() | {APPROVED: names})}

    return change


def normalized(session: ChatSession) -> ChatSession:
    """A session as it will be read back."""
    return ChatSession.from_dict(normalize(session.to_dict()))


def normalized_message(message: Message, index: int) -> Message:
    """A message as it will be read back."""
    return complete_message(normalize(message), index, now())
