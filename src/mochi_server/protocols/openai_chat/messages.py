"""Message schemas of OpenAI's API and their conversion to stored messages."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from mochi_server.models.common import Body, Text
from mochi_server.protocols.messages import new_message, tool_call
from mochi_server.protocols.schemas import DataUrl, RefusalPart, TextOr, TextPart, Unsupported
from mochi_server.sessions.types import Message
from mochi_server.util.validation import Items


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

    def to_stored(self) -> Message:
        return new_message("system", _text(self.content))


class UserMessage(Body):
    """A message of the user."""

    role: Literal["user"]
    content: TextOr[Items[_UserPart]]

    def to_stored(self) -> Message:
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

    def to_stored(self) -> Message:
        message = new_message("assistant", _text(self.content) or self.refusal or "")
        if thinking := self.reasoning_content or self.reasoning:
            message["thinking"] = thinking
        if self.tool_calls:
            calls = enumerate(self.tool_calls)
            message["tool_calls"] = [tool_call(n, c.id, c.function.name, c.function.arguments) for n, c in calls]
        return message


class ToolMessage(Body):
    """The result of a tool call."""

    role: Literal["tool"]
    content: TextOr[Items[_UserPart]]
    tool_call_id: str

    def to_stored(self) -> Message:
        return {**new_message("tool", _text(self.content)), "tool_call_id": self.tool_call_id}


AnyMessage = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]
