"""Message schemas of OpenAI's API and their conversion to stored messages."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import AfterValidator, Discriminator, Field, Tag

from mochi_server.constants import MAX_ARGUMENT_LEVELS
from mochi_server.errors import ValidationFailed
from mochi_server.models.common import Body, Text
from mochi_server.openai.request_mapping import new_message
from mochi_server.sessions.serialization import is_nested_deeper
from mochi_server.sessions.types import Message, ToolCall
from mochi_server.util.first_error import Items

_Item = TypeVar("_Item")
TEXT_OR_LIST = Discriminator(lambda value: "list" if isinstance(value, list) else "text")
TextOr = Annotated[Annotated[Text, Tag("text")] | Annotated[_Item, Tag("list")], TEXT_OR_LIST]
"""A text or a list. Because of the tags, the error for an invalid item does not contain the error for a text."""
_DATA_URL = re.compile(r"data:(image/[\w.+-]+)?;base64,", re.IGNORECASE)


def allow(*values: Any, reason: str = "") -> AfterValidator:
    """Return a validator that accepts only ``values`` and null. ``reason`` is part of its error message."""
    allowed = f"must be {orjson.dumps(values[0]).decode()}, or left out" if values else "must be left out"
    reason = reason or ("this server supports no other value" if values else "this server does not support it")

    def check(value: Any) -> Any:
        if value is not None and value not in values:
            raise ValueError(f"{allowed}: {reason}")
        return value

    return AfterValidator(check)


def _image(url: str) -> str:
    if not _DATA_URL.match(url):
        raise ValueError("must be a base64 data URL of an image: this server does not download images")
    return url


class TextPart(Body):
    """Text of a message."""

    type: Literal["text"]
    text: Text


Unsupported = Annotated[Any, allow(), Field(description="Not supported.")]
DataUrl = Annotated[str, AfterValidator(_image), Field(json_schema_extra={"pattern": "^data:"})]


class ImageUrl(Body):
    """An image as a data URL."""

    url: DataUrl


class ImagePart(Body):
    """An image, for models with `vision`."""

    type: Literal["image_url"]
    image_url: Annotated[
        Annotated[DataUrl, Tag("text")] | Annotated[ImageUrl, Tag("object")],
        Discriminator(lambda image: "text" if isinstance(image, str) else "object"),
    ]

    @property
    def url(self) -> str:
        return self.image_url if isinstance(self.image_url, str) else self.image_url.url


class RefusalPart(Body):
    """Text with which a model refused to answer."""

    type: Literal["refusal"]
    refusal: Text


_UserPart = Annotated[TextPart | ImagePart, Field(discriminator="type")]
_AnswerPart = Annotated[TextPart | RefusalPart, Field(discriminator="type")]


def _text(content: str | Sequence[TextPart | ImagePart | RefusalPart] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = [p.refusal if isinstance(p, RefusalPart) else p.text for p in content if not isinstance(p, ImagePart)]
    return "\n".join(texts)


class SystemMessage(Body):
    """Instructions for the model."""

    role: Literal["system", "developer"]
    content: TextOr[Items[TextPart]]

    def to_stored(self, _: dict[str, str]) -> Message:
        return new_message("system", _text(self.content))


class UserMessage(Body):
    """A message of the user."""

    role: Literal["user"]
    content: TextOr[Items[_UserPart]]

    def to_stored(self, _: dict[str, str]) -> Message:
        return new_message("user", _text(self.content))


class Function(Body):
    """Function of a tool call. ``arguments`` is JSON text."""

    name: str
    arguments: str = "{}"


class Call(Body):
    """A tool call of the model."""

    id: str
    type: Literal["function"] = "function"
    function: Function


class AssistantMessage(Body):
    """A message of the model."""

    role: Literal["assistant"]
    content: TextOr[Items[_AnswerPart]] | None = None
    refusal: Text | None = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None
    tool_calls: Items[Call] | None = None
    function_call: Unsupported = Field(None, description="Not supported. Use `tool_calls`.")
    audio: Unsupported = None

    def to_stored(self, names: dict[str, str]) -> Message:
        message = new_message("assistant", _text(self.content) or self.refusal or "")
        if thinking := self.reasoning_content or self.reasoning:
            message["thinking"] = thinking
        if self.tool_calls:
            names |= {call.id: call.function.name for call in self.tool_calls}
            message["tool_calls"] = [_call(index, call) for index, call in enumerate(self.tool_calls)]
        return message


class ToolMessage(Body):
    """The result of a tool call."""

    role: Literal["tool"]
    content: TextOr[Items[_UserPart]]
    tool_call_id: str

    def to_stored(self, names: dict[str, str]) -> Message:
        message = new_message("tool", _text(self.content))
        message["tool_call_id"] = self.tool_call_id
        if name := names.get(self.tool_call_id):
            message["tool_name"] = name
        return message


AnyMessage = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


def _call(index: int, call: Call) -> ToolCall:
    try:
        arguments = orjson.loads(call.function.arguments or "{}")
    except orjson.JSONDecodeError:
        arguments = None
    if not isinstance(arguments, dict):
        raise ValidationFailed.at("messages", f"the arguments of call {call.id!r} are not a JSON object")
    if is_nested_deeper(arguments, MAX_ARGUMENT_LEVELS):
        reason = f"the arguments of call {call.id!r} are nested deeper than {MAX_ARGUMENT_LEVELS} levels"
        raise ValidationFailed.at("messages", reason)
    return {"id": call.id, "function": {"index": index, "name": call.function.name, "arguments": arguments}}
