"""Schema of stored messages, only for documentation. Responses contain stored messages without validation."""

from typing import Annotated, Any, get_args

from pydantic import ConfigDict, Field, WithJsonSchema, create_model

from mochi_server.sessions.types import Message

_ANNOTATIONS = Message.__annotations__
_DESCRIBED = {name: get_args(kind) for name, kind in _ANNOTATIONS.items() if hasattr(kind, "__metadata__")}
_FIELDS: dict[str, Any] = {
    **{name: (_ANNOTATIONS[name], ...) for name in ("role", "content", "message_id", "timestamp")},
    **{name: (kind | None, Field(None, description=field.description)) for name, (kind, field) in _DESCRIBED.items()},
}

StoredMessage = create_model(
    "StoredMessage",
    __doc__="A stored message. Messages of all roles have the first four fields. The other fields depend on the role.",
    __config__=ConfigDict(extra="allow"),
    **_FIELDS,
)

MESSAGE_PLACEHOLDER = {"title": StoredMessage.__name__}
"""Placeholder for the schema of a message. In the OpenAPI document, a reference to ``StoredMessage`` replaces it.

Responses contain stored messages without validation, so the response models do not use ``StoredMessage`` itself.
"""

MessageOut = Annotated[dict[str, Any], WithJsonSchema(MESSAGE_PLACEHOLDER)]
