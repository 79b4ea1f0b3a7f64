"""Input items of OpenAI's Responses API and their conversion to chat messages."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter

from mochi_server.models.common import Body, Text
from mochi_server.models.openai_messages import DataUrl, RefusalPart, TextOr
from mochi_server.util.first_error import Items

ChatMessages = list[dict[str, Any]]
"""Messages in the format of chat completions."""


class InputText(Body):
    """Part of a message or of a tool result that contains text."""

    type: Literal["input_text", "output_text", "text"]
    text: Text

    def to_chat(self) -> dict[str, Any]:
        return {"type": "text", "text": self.text}


class InputImage(Body):
    """An image as a data URL, for models with `vision`."""

    type: Literal["input_image"]
    image_url: DataUrl

    def to_chat(self) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": self.image_url}}


_Content = TextOr[Items[Annotated[InputText | RefusalPart | InputImage, Field(discriminator="type")]]]


def _to_chat(content: "str | Sequence[InputText | RefusalPart | InputImage]") -> Any:
    if isinstance(content, str):
        return content
    return [part.model_dump() if isinstance(part, RefusalPart) else part.to_chat() for part in content]


class InputMessage(Body):
    """A message from the user or the model, or instructions for the model."""

    type: Literal["message"] | None = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: _Content

    def add_to(self, messages: ChatMessages) -> None:
        content = _to_chat(self.content)
        if self.role == "assistant":
            _assistant_message(messages, "content")["content"] = content
        else:
            messages.append({"role": self.role, "content": content})


class FunctionCall(Body):
    """A tool call of the model. ``arguments`` is JSON text."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str

    def add_to(self, messages: ChatMessages) -> None:
        function = {"name": self.name, "arguments": self.arguments}
        calls = _assistant_message(messages).setdefault("tool_calls", [])
        calls.append({"id": self.call_id, "type": "function", "function": function})


class FunctionCallOutput(Body):
    """The result of a tool call."""

    type: Literal["function_call_output"]
    call_id: str
    output: TextOr[Items[Annotated[InputText | InputImage, Field(discriminator="type")]]]

    def add_to(self, messages: ChatMessages) -> None:
        messages.append({"role": "tool", "tool_call_id": self.call_id, "content": _to_chat(self.output)})


class ReasoningText(Body):
    """Reasoning of the model."""

    text: Text


class ReasoningItem(Body):
    """Reasoning of the model before its answer."""

    type: Literal["reasoning"]
    summary: Items[ReasoningText] = Field(default_factory=list)
    content: Items[ReasoningText] | None = None

    def add_to(self, messages: ChatMessages) -> None:
        message = _assistant_message(messages, "content", "tool_calls", "reasoning")
        message["reasoning"] = "\n".join(part.text for part in self.content or self.summary)


class ItemReference(Body):
    """The ID of an item that the server sent in an earlier response."""

    type: Literal["item_reference"] | None = None
    id: str


def _item_type(item: Any) -> Any:
    if not isinstance(item, dict):
        return getattr(item, "type", None)
    return item.get("type") or ("message" if "role" in item else "item_reference")


_ITEM_TYPES = "message", "function_call", "function_call_output", "reasoning", "item_reference"
InputItem = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[ItemReference, Tag("item_reference")],
    Discriminator(
        _item_type,
        custom_error_type="unsupported_item",
        custom_error_message=f"The type of an item must be one of {', '.join(_ITEM_TYPES)}",
    ),
]
_ADAPTER: TypeAdapter[Any] = TypeAdapter(InputItem)


def to_chat_messages(items: list[InputItem], resolve: Callable[[int, str], dict[str, Any] | None]) -> ChatMessages:
    """Convert input items to chat messages. Consecutive items from the model become one assistant message.

    ``resolve`` receives the index and the ID of an item reference. It returns the item, or None if only the session
    contains the item.
    """
    messages: ChatMessages = []
    for index, item in enumerate(items):
        if not isinstance(item, ItemReference):
            item.add_to(messages)
        elif (referenced := resolve(index, item.id)) is not None:
            _ADAPTER.validate_python(referenced).add_to(messages)
        else:
            _assistant_message(messages)
    return messages


def _assistant_message(messages: ChatMessages, *unset: str) -> dict[str, Any]:
    """Return the last message if it is from the model and has no values in the fields ``unset``, else append one."""
    last = messages[-1] if messages else None
    if last is None or last["role"] != "assistant" or any(last.get(name) for name in unset):
        messages.append({"role": "assistant"})
    return messages[-1]
