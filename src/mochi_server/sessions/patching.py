"""What may be changed of a session and how it is written, whoever keeps it. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from pydantic import BaseModel

from mochi_server.sessions.serialization import settle
from mochi_server.sessions.session import ChatSession, SessionMetadata, complete
from mochi_server.sessions.types import APPROVED, Message, ToolSettings
from mochi_server.util.clock import now

FieldChanges = Mapping[str, Any] | Callable[[SessionMetadata], Mapping[str, Any]]
"""Metadata fields by name, or a function that returns them for the metadata that is stored."""

_NOT_FOR_PATCHING = {"session_id", "created_at", "updated_at", "message_count", "format_version", "extra"}
_PATCHABLE = frozenset(f.name for f in fields(SessionMetadata)) - _NOT_FOR_PATCHING


def settled_fields(changes: FieldChanges, stored: SessionMetadata) -> dict[str, Any]:
    """Metadata fields as JSON will give them back. Raises ValueError for what is no field to be set."""
    changes = changes(stored) if callable(changes) else changes
    if unknown := set(changes) - _PATCHABLE:
        raise ValueError(f"no metadata fields to be set: {', '.join(sorted(unknown))}")
    if "model" in changes and not (isinstance(changes["model"], str) and changes["model"]):
        raise ValueError("a session needs a model")
    models = {name: value.model_dump(mode="json") for name, value in changes.items() if isinstance(value, BaseModel)}
    values: dict[str, Any] = settle({**changes, **models})
    return values


def approving(tool: str) -> FieldChanges:
    """The change that adds one tool to those approved for the session, and leaves the other settings as they are."""

    def change(stored: SessionMetadata) -> dict[str, Any]:
        settings = stored.tool_settings
        if tool in settings.approved:
            return {}
        names = sorted({*settings.approved, tool})
        return {"tool_settings": ToolSettings.model_validate(settings.model_dump() | {APPROVED: names})}

    return change


def settled(session: ChatSession) -> ChatSession:
    """A session as it will be read back."""
    return ChatSession.from_dict(settle(session.to_dict()))


def settled_message(message: Message, index: int) -> Message:
    """A message as it will be read back."""
    return complete(settle(message), index, now())
