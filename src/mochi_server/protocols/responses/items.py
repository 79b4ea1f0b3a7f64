"""Input items of the Responses API, and their conversion to messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter, model_validator

from mochi_server.protocols.schemas import DataUrl, RefusalPart, TextOr, Unsupported, joined_text
from mochi_server.protocols.sent_messages import (
    SentMessages,
    add_tool_names,
    decode_images,
    new_message,
    tool_call,
)
from mochi_server.schemas.common import Body, Text
from mochi_server.services.attachments import DEFAULT_NAME, EncodedFile, read_attachments
from mochi_server.sessions.images import Location
from mochi_server.sessions.types import Message, Role
from mochi_server.util.validation import Items


class InputText(Body):
    """Part of a message or of a tool result that contains text."""

    type: Literal["input_text", "output_text", "text"]
    text: Text


class InputImage(Body):
    """An image as a data URL, for models with `vision`."""

    type: Literal["input_image"]
    image_url: DataUrl


class InputFile(Body):
    """A file with text, or a PDF: a data URL or base64 in ``file_data``."""

    type: Literal["input_file"]
    filename: str = DEFAULT_NAME
    file_id: Unsupported = Field(None, description="Not supported. Use `file_data`.")
    file_url: Unsupported = Field(None, description="Not supported. Use `file_data`.")
    file_data: str


Part = InputText | RefusalPart | InputImage | InputFile


class InputMessage(Body):
    """A message from the user or the model, or instructions for the model."""

    type: Literal["message"] | None = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: TextOr[Items[Annotated[Part, Field(discriminator="type")]]]

    @model_validator(mode="after")
    def _has_parts_of_its_role(self) -> "InputMessage":
        if isinstance(self.content, str):
            return self
        allowed: dict[str, tuple[type, ...]] = {
            "user": (InputText, InputImage, InputFile),
            "assistant": (InputText, RefusalPart),
        }
        for part in self.content:
            if not isinstance(part, allowed.get(self.role, InputText)):
                problem = f"a message of the role `{self.role}` must not contain `{part.type}`"
                raise ValueError(problem)
        return self


class FunctionCall(Body):
    """A tool call of the model. ``arguments`` is JSON text."""

    type: Literal["function_call"]
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str


class FunctionCallOutput(Body):
    """The result of a tool call."""

    type: Literal["function_call_output"]
    call_id: str
    output: TextOr[Items[Annotated[InputText | InputImage, Field(discriminator="type")]]]


class ReasoningText(Body):
    """Reasoning of the model."""

    text: Text


class ReasoningItem(Body):
    """Reasoning of the model before its answer."""

    type: Literal["reasoning"]
    summary: Items[ReasoningText] = Field(default_factory=list)
    content: Items[ReasoningText] | None = None


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
ITEM: TypeAdapter[Any] = TypeAdapter(InputItem)
ITEMS: TypeAdapter[list[Any]] = TypeAdapter(list[InputItem])

ToolNames = Mapping[tuple[str | None, str], str]
"""Names of functions that the model sees, by namespace and name."""


async def to_messages(
    instructions: str | None, items: Sequence[InputItem], names: ToolNames
) -> SentMessages:
    """Convert items to messages. ``instructions`` become a system message before them."""
    reader = _ItemReader(names)
    if instructions:
        reader.messages.append(new_message("system", instructions))
    for item in items:
        reader.add(item)
    add_tool_names(reader.messages)
    images = {}
    for index, urls in reader.image_urls.items():
        images[index] = await decode_images(urls, ("messages", index))
    attachments = {}
    for index, files in reader.files.items():
        attachments[index] = await read_attachments(files)
    return SentMessages(reader.messages, images, attachments=attachments)


@dataclass(frozen=True, slots=True)
class _ItemReader:
    """Converter of input items to messages.

    Consecutive items from the model become one assistant message.
    """

    tool_names: ToolNames
    messages: list[Message] = field(default_factory=list)
    image_urls: dict[int, dict[Location, str]] = field(default_factory=dict)
    files: dict[int, dict[Location, EncodedFile]] = field(default_factory=dict)

    def add(self, item: InputItem) -> None:
        match item:
            case InputMessage(role="assistant"):
                self._answer("content")["content"] = joined_text(item.content)
            case InputMessage():
                role: Role = "user" if item.role == "user" else "system"
                self._append(new_message(role, joined_text(item.content)), item.content)
            case FunctionCall():
                calls = self._answer().setdefault("tool_calls", [])
                name = self.tool_names.get((item.namespace, item.name), item.name)
                calls.append(tool_call(len(calls), item.call_id, name, item.arguments))
            case FunctionCallOutput():
                result = new_message("tool", joined_text(item.output))
                result["tool_call_id"] = item.call_id
                self._append(result, item.output)
            case ReasoningItem():
                texts = [part.text for part in item.content or item.summary]
                message = self._answer("content", "tool_calls", "thinking")
                message["thinking"] = "\n".join(texts)
            case ItemReference():
                self._answer()

    def _answer(self, *unset: str) -> Message:
        """Return the last message if it is from the model and its fields ``unset`` are empty, else
        append one.
        """
        if self.messages:
            last = self.messages[-1]
            if last["role"] == "assistant" and not any(last.get(name) for name in unset):
                return last
        answer = new_message("assistant", "")
        self.messages.append(answer)
        return answer

    def _append(self, message: Message, content: str | Sequence[Part]) -> None:
        index = len(self.messages)
        self.messages.append(message)
        if isinstance(content, str):
            return
        for number, part in enumerate(content):
            location: Location = ("messages", index, "content", number)
            match part:
                case InputImage():
                    self.image_urls.setdefault(index, {})[location] = part.image_url
                case InputFile():
                    file = EncodedFile(part.filename, part.file_data)
                    self.files.setdefault(index, {})[location] = file
