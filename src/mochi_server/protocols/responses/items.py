"""Input items of the Responses API, and their conversion to messages."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import orjson
from pydantic import (
    AliasChoices,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    model_validator,
)

from mochi_server.errors import ValidationFailed
from mochi_server.protocols.parts import omitted_content
from mochi_server.protocols.responses.tools import CUSTOM_INPUT
from mochi_server.protocols.schemas import RefusalPart, SentImage, TextOr, joined_text
from mochi_server.protocols.sent_files import SentFile, with_files, with_images
from mochi_server.protocols.sent_messages import (
    CallReader,
    SentArguments,
    SentMessages,
    add_tool_names,
    new_answer,
    new_message,
    new_result,
)
from mochi_server.schemas.common import Body, Text
from mochi_server.services.attachments import EncodedFile
from mochi_server.sessions.images import Location
from mochi_server.sessions.types import AssistantMessage, Message, Role, tool_calls_of
from mochi_server.util.validation import Items


class InputText(Body):
    """Part of a message or of a tool result that contains text."""

    type: Literal["input_text", "output_text", "text"]
    text: Text


class InputImage(Body):
    """An image as a data URL, for models with `vision`."""

    type: Literal["input_image"]
    image_url: SentImage | None = None
    file_id: Any = Field(None, description="Not supported. Use `image_url`.")


class InputFile(SentFile):
    """A file with text, or a PDF: a data URL or base64 in ``file_data``."""

    type: Literal["input_file"]
    file_url: Any = Field(None, description="Not supported. Use `file_data`.")


Part = InputText | RefusalPart | InputImage | InputFile
_ResultPart = Annotated[InputText | InputImage | InputFile, Field(discriminator="type")]


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
    arguments: SentArguments


class CustomToolCall(Body):
    """A call of a tool with free text. ``input`` is the text."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    namespace: str | None = None
    input: Text

    @property
    def arguments(self) -> dict[str, Any]:
        return {CUSTOM_INPUT: self.input}


class FunctionCallOutput(Body):
    """The result of a tool call. Null is an empty result. Files become text."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: TextOr[Items[_ResultPart]] | None


class BuiltInCall(Body, extra="allow"):
    """A call of a tool of OpenAI that the client ran, such as `local_shell`."""

    type: Literal["local_shell_call", "shell_call", "apply_patch_call", "tool_search_call"]
    call_id: str
    namespace: None = None

    @property
    def name(self) -> str:
        return self.type.removesuffix("_call")

    @property
    def arguments(self) -> dict[str, Any]:
        """What the model asked for, as the client received it."""
        fields = self.model_extra or {}
        for name in ("action", "operation", "arguments"):
            if isinstance(fields.get(name), dict):
                arguments: dict[str, Any] = fields[name]
                return arguments
        return {}


class BuiltInCallOutput(Body, extra="allow"):
    """The result of a call of a tool of OpenAI that the client ran."""

    type: Literal[
        "local_shell_call_output",
        "shell_call_output",
        "apply_patch_call_output",
        "tool_search_output",
    ]
    # OpenAI calls it `id` in the output of `local_shell`.
    call_id: Annotated[str, Field(validation_alias=AliasChoices("call_id", "id"))]
    output: Any = None

    @model_validator(mode="before")
    @classmethod
    def _omit_null_call_id(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("call_id") is not None:
            return data
        return {name: value for name, value in data.items() if name != "call_id"}

    @property
    def text(self) -> str:
        if isinstance(self.output, str):
            return self.output
        shown = self.output
        if shown is None:  # the found tools, or only a status
            shown = self.model_dump(exclude={"type", "call_id", "output", "id"})
        return orjson.dumps(shown).decode()


class OtherItem(Body):
    """Any other item. The server leaves it out, with a notice."""

    type: str


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


_TAGS = {
    "message": "message",
    "function_call": "function_call",
    "function_call_output": "call_output",
    "custom_tool_call": "custom_tool_call",
    "custom_tool_call_output": "call_output",
    "reasoning": "reasoning",
    "item_reference": "item_reference",
    "local_shell_call": "built_in_call",
    "shell_call": "built_in_call",
    "apply_patch_call": "built_in_call",
    "tool_search_call": "built_in_call",
    "local_shell_call_output": "built_in_output",
    "shell_call_output": "built_in_output",
    "apply_patch_call_output": "built_in_output",
    "tool_search_output": "built_in_output",
}
"""Tag of the schema of an item by the type of the item."""


def _item_tag(item: Any) -> str | None:
    """Return the tag of the schema of an item.

    An item without a type is a message if it has a role, otherwise an item reference. Return None
    if the item is not an object or its type is not a string.
    """
    if isinstance(item, Body):
        fields = vars(item)
    elif isinstance(item, dict):
        fields = item
    else:
        return None
    kind = fields.get("type")
    if not kind:
        kind = "message" if "role" in fields else "item_reference"
    if not isinstance(kind, str):
        return None
    tag = _TAGS.get(kind, "other")
    call_id = fields.get("call_id")
    if call_id is None and tag == "built_in_output":
        call_id = fields.get("id")
    if tag.startswith("built_in") and not isinstance(call_id, str):
        return "other"  # it cannot be assigned to a call or a result
    return tag


InputItem = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("call_output")]
    | Annotated[CustomToolCall, Tag("custom_tool_call")]
    | Annotated[BuiltInCall, Tag("built_in_call")]
    | Annotated[BuiltInCallOutput, Tag("built_in_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[ItemReference, Tag("item_reference")]
    | Annotated[OtherItem, Tag("other")],
    Discriminator(
        _item_tag,
        custom_error_type="unsupported_item",
        custom_error_message="An item must be an object with a type, such as `message`",
    ),
]
_DEFERRED = ConfigDict(defer_build=True)  # built at the first use, which most servers never have
ITEM: TypeAdapter[Any] = TypeAdapter(InputItem, config=_DEFERRED)
ITEMS: TypeAdapter[list[Any]] = TypeAdapter(list[InputItem], config=_DEFERRED)

ToolNames = Mapping[tuple[str | None, str], str]
"""Names of functions that the model sees, by namespace and name."""


async def to_messages(
    instructions: str | None, items: Sequence[InputItem], names: ToolNames, *, earlier: int
) -> SentMessages:
    """Convert items to messages. ``instructions`` become a system message before them.

    The first ``earlier`` items are not part of the request, but of earlier ones.

    Calls of tools of OpenAI are left out if they have no result, and results if they have no call.

    Raises ``ValidationFailed``.
    """
    calls = {item.call_id for item in items if isinstance(item, BuiltInCall)}
    outputs = {
        item.call_id for item in items if isinstance(item, BuiltInCallOutput | FunctionCallOutput)
    }
    reader = _ItemReader(names, calls & outputs)
    if instructions:
        reader.messages.append(new_message("system", instructions))
    for position, item in enumerate(items, -earlier):
        reader.add(item, position)
    add_tool_names(reader.messages)
    if not reader.messages:
        raise ValidationFailed.at("input", "no item is a message or a tool call; add a message")
    notices = omitted_content(reader.omitted) + reader.calls.notices(reader.messages)
    sent = SentMessages(reader.messages, notices=notices)
    sent = await with_images(sent, reader.image_urls)
    return await with_files(sent, reader.files)


def to_items(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return stored messages as items of the Responses API.

    They have no IDs of items, no images, no files and no reasoning.
    """
    items: list[dict[str, Any]] = []
    for message in messages:
        text = message["content"]
        if message["role"] == "tool":
            call_id = message.get("tool_call_id", "")
            items.append({"type": "function_call_output", "call_id": call_id, "output": text})
            continue
        if text:
            part = "output_text" if message["role"] == "assistant" else "input_text"
            content = [{"type": part, "text": text}]
            items.append({"type": "message", "role": message["role"], "content": content})
        for call in tool_calls_of(message):
            function = call["function"]
            item = {
                "type": "function_call",
                "call_id": call.get("id", ""),
                "name": function["name"],
                "arguments": orjson.dumps(function["arguments"]).decode(),
            }
            items.append(item)
    return items


@dataclass(frozen=True, slots=True)
class _ItemReader:
    """Converter of input items to messages.

    Consecutive items from the model become one assistant message.
    """

    tool_names: ToolNames
    complete_calls: set[str]
    """IDs of the calls of tools of OpenAI that have a result."""
    calls: CallReader = field(default_factory=CallReader)
    omitted: Counter[str] = field(default_factory=Counter)
    """Numbers of the items that were left out, by type."""
    messages: list[Message] = field(default_factory=list)
    image_urls: dict[int, dict[Location, str | None]] = field(default_factory=dict)
    files: dict[int, dict[Location, EncodedFile | None]] = field(default_factory=dict)

    def add(self, item: InputItem, position: int) -> None:
        """Add the item at ``position`` in the request. That of an earlier item is negative."""
        omitted = self._omitted_type(item)
        if omitted is not None:
            self.omitted[omitted] += 1
            return
        match item:
            case InputMessage(role="assistant"):
                self._open_answer("content")["content"] = joined_text(item.content)
            case InputMessage():
                role: Role = "user" if item.role == "user" else "system"
                message = new_message(role, joined_text(item.content))
                self._append(message, item.content, ("input", position, "content"))
            case FunctionCall() | CustomToolCall() | BuiltInCall():
                self._add_call(item)
            case BuiltInCallOutput():
                result = new_result(item.text)
                result["tool_call_id"] = item.call_id
                self.messages.append(result)
            case FunctionCallOutput():
                result = new_result(joined_text(item.output))
                result["tool_call_id"] = item.call_id
                self._append(result, item.output, ("input", position, "output"))
            case ReasoningItem():
                texts = [part.text for part in item.content or item.summary]
                answer = self._open_answer("content", "tool_calls", "thinking")
                answer["thinking"] = "\n".join(texts)
            case ItemReference():  # the session has the text of this message
                self._open_answer()

    def _omitted_type(self, item: InputItem) -> str | None:
        """Return the type of an item that the model does not receive, or None."""
        match item:
            case OtherItem():
                return item.type
            case BuiltInCall() | BuiltInCallOutput() if item.call_id not in self.complete_calls:
                return item.type
        return None

    def _add_call(self, call: FunctionCall | CustomToolCall | BuiltInCall) -> None:
        stored = self._open_answer().setdefault("tool_calls", [])
        name = self.tool_names.get((call.namespace, call.name), call.name)
        stored.append(self.calls.tool_call(len(stored), call.call_id, name, call.arguments))

    def _open_answer(self, *unset: str) -> AssistantMessage:
        """Return the last message if it is from the model and has none of the fields ``unset``.

        Otherwise, add a new message of the model and return it.
        """
        if self.messages:
            last = self.messages[-1]
            if last["role"] == "assistant" and not any(last.get(name) for name in unset):
                return last
        answer = new_answer("")
        self.messages.append(answer)
        return answer

    def _append(
        self, message: Message, content: str | Sequence[Part] | None, path: Location
    ) -> None:
        """Add a message with the images and files of its ``content``, which is at ``path``."""
        index = len(self.messages)
        self.messages.append(message)
        if content is None or isinstance(content, str):
            return
        for number, part in enumerate(content):
            location = (*path, number)
            match part:
                case InputImage():
                    self.image_urls.setdefault(index, {})[location] = part.image_url
                case InputFile():
                    self.files.setdefault(index, {})[location] = part.encoded
