"""Parts of request and response schemas that several protocols share.

Unknown fields are ignored. A known but unsupported field is rejected if it would change the answer.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import AfterValidator, Discriminator, Field, Tag

from mochi_server.schemas.chat import ContextWindow, ToolCallExecuted
from mochi_server.schemas.common import Body, Schema, Text
from mochi_server.sessions.types import FiniteObject

_Item = TypeVar("_Item")
TEXT_OR_LIST = Discriminator(lambda value: "list" if isinstance(value, list) else "text")
TextOr = Annotated[Annotated[Text, Tag("text")] | Annotated[_Item, Tag("list")], TEXT_OR_LIST]
"""A text or a list.

Because of the tags, the error for an invalid item does not contain the error for a text.
"""
NO_LIMIT = -1
"""Value of `max_tokens` for an answer that ends only when it is complete or the context window is
full.
"""


def allow(*values: Any, reason: str = "") -> AfterValidator:
    """Return a validator that accepts only ``values`` and null.

    ``reason`` is part of its error message.
    """
    if values:
        allowed = ", ".join(orjson.dumps(value).decode() for value in values)
        rule = f"must be {allowed}, or left out"
        reason = reason or "this server supports no other value"
    else:
        rule = "must be left out"
        reason = reason or "this server does not support it"

    def check(value: Any) -> Any:
        if value is not None and value not in values:
            raise ValueError(f"{rule}: {reason}")
        return value

    return AfterValidator(check)


def _token_limit(value: int) -> int:
    if value < 1 and value != NO_LIMIT:
        raise ValueError(f"must be at least 1, or {NO_LIMIT} for no limit")
    return value


Unsupported = Annotated[Any, allow(), Field(description="Not supported.")]
SentImage = Annotated[str, Field(json_schema_extra={"pattern": "^data:"})]
"""Data URL of an image, which ``sent_files`` checks.

In earlier messages, a note replaces other texts.
"""
TokenLimit = Annotated[int, AfterValidator(_token_limit)]
_OPTIONS = "this server sets the context window; other options have fields of their own"
RejectedOption = Annotated[Any, allow(reason=_OPTIONS)]
EmptyOptions = Annotated[Any, allow({}, reason=_OPTIONS)]


class TextPart(Body):
    """Text of a message."""

    type: Literal["text"]
    text: Text


class RefusalPart(Body):
    """Text with which a model refused to answer."""

    type: Literal["refusal"]
    refusal: Text


def joined_text(content: str | Iterable[Any] | None) -> str:
    """Return the text of a message.

    Texts and refusals in a list of parts are on lines of their own. Other parts are left out.
    """
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content:
        text = part.refusal if isinstance(part, RefusalPart) else getattr(part, "text", None)
        if text is not None:
            texts.append(text)
    return "\n".join(texts)


class PlainFormat(Body):
    """Response format: plain text, or any JSON object."""

    type: Literal["text", "json_object"]

    def to_ollama(self) -> str:
        """Return the value of Ollama's ``format``. It is empty for plain text."""
        return "json" if self.type == "json_object" else ""


class SchemaTextFormat(Body):
    """Format of the answer: JSON that matches a schema."""

    type: Literal["json_schema"]
    name: str = "answer"
    json_schema: FiniteObject = Field(alias="schema")

    def to_ollama(self) -> str | dict[str, Any]:
        """Return the value of Ollama's ``format``: the schema, or "json" if that is empty."""
        return self.json_schema or "json"


class MochiExtension(Schema):
    """Results that other providers do not have.

    ``notices`` are ``warning`` and ``context_compacted`` events.
    """

    context_window: ContextWindow
    tool_calls_executed: list[ToolCallExecuted]
    notices: list[dict[str, Any]]
