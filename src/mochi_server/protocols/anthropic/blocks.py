"""Messages of Anthropic's API, whose content has blocks, and their conversion to messages."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from mochi_server.errors import ValidationFailed
from mochi_server.protocols.parts import omitted_content
from mochi_server.protocols.schemas import DataUrl, TextOr, TextPart
from mochi_server.protocols.sent_messages import (
    CallReader,
    SentArguments,
    SentMessages,
    add_tool_names,
    decode_images,
    new_message,
)
from mochi_server.schemas.common import Body, Text
from mochi_server.sessions.images import Location
from mochi_server.sessions.types import Message, Role, ToolCall
from mochi_server.util.validation import Items

_Item = TypeVar("_Item")
_Content = TextOr[Annotated[Items[_Item], Field(min_length=1)]]


class ImageSource(Body):
    """Data of an image: base64 in ``data``, or a data URL in ``url``."""

    type: Literal["base64", "url"]
    data: str = ""
    url: DataUrl | None = None


class ImageBlock(Body):
    """An image, for models with `vision`."""

    type: Literal["image"]
    source: ImageSource


class DocumentSource(Body):
    """Data of a document: plain text in ``data``, or text blocks in ``content``.

    The server reads no other documents.
    """

    type: str
    data: Text | None = None
    content: Any = None

    @property
    def text(self) -> str | None:
        match self.type:
            case "text":
                return self.data
            case "content":
                return _text_in(self.content) or None
        return None


class DocumentBlock(Body):
    """A document. The model receives plain text, and a note in place of any other document."""

    type: Literal["document"]
    source: DocumentSource


class SearchResultBlock(Body):
    """A search result. The model receives its title, its source and its text."""

    type: Literal["search_result"]
    title: Text = ""
    source: Text = ""
    content: Items[TextPart] = Field(default_factory=list)


class ServerToolBlock(Body):
    """A call or a result of a tool that Anthropic runs. The model receives the text of a result.

    The server leaves out a block without text, with a notice.
    """

    type: Literal[
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "mcp_tool_use",
        "mcp_tool_result",
        "container_upload",
    ]
    content: Any = None

    @property
    def text(self) -> str:
        return _text_in(self.content)


class ToolReferenceBlock(Body):
    """Name of a tool that the client has found. The request also defines the tool."""

    type: Literal["tool_reference"]
    tool_name: str


_ResultBlock = TextPart | ImageBlock | DocumentBlock | SearchResultBlock | ToolReferenceBlock


class ToolResultBlock(Body):
    """The result of a tool call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: TextOr[Items[Annotated[_ResultBlock, Field(discriminator="type")]]] | None = None
    is_error: bool | None = None


class ToolUseBlock(Body):
    """A tool call of the model."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: SentArguments


class ThinkingBlock(Body):
    """Reasoning of a model. Only reasoning in clear text has an effect."""

    type: Literal["thinking", "redacted_thinking"]
    thinking: Text = ""


_UserBlock = _ResultBlock | ToolResultBlock | ServerToolBlock
_AnswerBlock = TextPart | ToolUseBlock | ThinkingBlock | ToolReferenceBlock | ServerToolBlock


class AnthropicUserMessage(Body):
    """A message of the user, or results of tool calls."""

    role: Literal["user"]
    content: _Content[Annotated[_UserBlock, Field(discriminator="type")]]


class AnthropicAssistantMessage(Body):
    """A message of the model. An answer of this server can have no blocks."""

    role: Literal["assistant"]
    content: TextOr[Items[Annotated[_AnswerBlock, Field(discriminator="type")]]]


class AnthropicSystemMessage(Body):
    """Instructions for the model. In a session, they count for this request only."""

    role: Literal["system"]
    content: _Content[TextPart]


AnyMessage = Annotated[
    AnthropicUserMessage | AnthropicAssistantMessage | AnthropicSystemMessage,
    Field(discriminator="role"),
]

HIDDEN_DOCUMENT = "[A document is not shown, because this server cannot read it.]"
_BILLING = "x-anthropic-billing-header:"
"""Beginning of the line that Claude Code puts before its system prompt."""
_Blocks = Sequence[tuple[Location, Any]]  # content blocks with their paths in the request


async def to_messages(
    system: str | Sequence[TextPart] | None, sent: Sequence[AnyMessage]
) -> SentMessages:
    """Convert the messages of a request. ``system`` becomes a system message before them.

    Consecutive messages of one role become one message, as in Anthropic's API.
    """
    reader = _BlockReader()
    reader.add("system", _system_blocks(system), 0)
    for _, group in groupby(enumerate(sent), lambda each: each[1].role):
        reader.add_group([*group])
    add_tool_names(reader.messages)
    images = {}
    for index, urls in reader.urls.items():
        images[index] = await decode_images(urls, next(iter(urls))[:3])
    messages = SentMessages(
        reader.messages,
        images,
        positions=reader.positions,
        notices=omitted_content(reader.omitted) + reader.calls.notices(reader.messages),
    )
    newest = messages.last_user_index
    if newest is not None and newest in reader.documents:
        # Claude Code removes its documents from the conversation if an error contains these words.
        problem = "this server does not support PDF input, only text and images"
        raise ValidationFailed.at(reader.documents[newest], problem)
    return messages


@dataclass(frozen=True, slots=True)
class _BlockReader:
    """Converter of content blocks to messages."""

    messages: list[Message] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    urls: dict[int, dict[Location, str]] = field(default_factory=dict)
    """Encoded images of each message by their paths."""
    documents: dict[int, Location] = field(default_factory=dict)
    """Path of a document of each message that has any that cannot be read."""
    calls: CallReader = field(default_factory=CallReader)
    omitted: Counter[str] = field(default_factory=Counter)
    """Numbers of the blocks that were left out, by type."""

    def add_group(self, group: Sequence[tuple[int, AnyMessage]]) -> None:
        """Add messages of one role with their positions: first the tool results, then the rest."""
        last, message = group[-1]
        others: list[tuple[Location, Any]] = []
        for position, each in group:
            for path, block in _blocks(each.content, ("messages", position, "content")):
                if isinstance(block, ToolResultBlock):
                    self._add_result(path, block, last)
                else:
                    others.append((path, block))
        self.add(message.role, others, last)

    def _add_result(self, path: Location, result: ToolResultBlock, position: int) -> None:
        self.add("tool", _blocks(result.content or "", (*path, "content")), position)
        self.messages[-1]["tool_call_id"] = result.tool_use_id
        self.messages[-1]["success"] = not result.is_error

    def add(self, role: Role, blocks: _Blocks, position: int) -> None:
        """Add the message with the content ``blocks``, unless it is empty and not from the model.

        ``position`` is its position in the request.
        """
        if not blocks and role != "assistant":
            return
        index = len(self.messages)
        texts: list[str] = []
        thinking: list[str] = []
        calls: list[ToolCall] = []
        for path, block in blocks:
            match block:
                case ThinkingBlock():
                    thinking.append(block.thinking)
                case ToolUseBlock():
                    call = self.calls.tool_call(len(calls), block.id, block.name, block.input)
                    calls.append(call)
                case ImageBlock():
                    urls = self.urls.setdefault(index, {})
                    urls[(*path, "source")] = block.source.url or block.source.data
                case ServerToolBlock(text=""):
                    self.omitted[block.type] += 1
                case _:
                    texts.append(_text(block))
                    if is_unread(block):
                        self.documents.setdefault(index, path)
        message = new_message(role, "\n".join(texts))
        if thinking:
            message["thinking"] = "\n\n".join(text for text in thinking if text)
        if calls:
            message["tool_calls"] = calls
        self.messages.append(message)
        self.positions.append(position)


def nested_blocks(content: str | Sequence[Any] | None) -> Iterator[Any]:
    """Return the blocks of a message, also those in tool results."""
    for _, block in _blocks(content, ()):
        yield block
        if isinstance(block, ToolResultBlock):
            yield from nested_blocks(block.content)


def is_unread(block: object) -> bool:
    """Return whether a block is a document that this server cannot read."""
    return isinstance(block, DocumentBlock) and block.source.text is None


def _text(
    block: TextPart | DocumentBlock | SearchResultBlock | ToolReferenceBlock | ServerToolBlock,
) -> str:
    """Return the text that the model receives for a block."""
    match block:
        case TextPart() | ServerToolBlock():
            return block.text
        case SearchResultBlock():
            return _text_in(block.model_dump())
        case DocumentBlock():
            return HIDDEN_DOCUMENT if block.source.text is None else block.source.text
        case ToolReferenceBlock():
            return f"The tool {block.tool_name!r} is available."


_TEXT_FIELDS = ("title", "source", "url", "text", "stdout", "stderr", "content")
"""Fields with text for the model in blocks of tools that Anthropic runs."""


def _text_in(content: Any) -> str:
    """Return the texts in the content of a block, on lines of their own."""
    match content:
        case str():
            return content
        case list():
            texts = [_text_in(each) for each in content]
        case dict():
            texts = [_text_in(content.get(name)) for name in _TEXT_FIELDS]
        case _:
            return ""
    return "\n".join(text for text in texts if text)


def _system_blocks(system: str | Sequence[TextPart] | None) -> _Blocks:
    """Return the blocks of the system prompt without the line that changes with each conversation.

    The prompt must begin with the same text each time. Otherwise, Ollama cannot use its cache.
    """
    blocks = _blocks(system, ("system",))
    if not blocks or not blocks[0][1].text.startswith(_BILLING):
        return blocks
    (path, first), *others = blocks
    _, _, rest = first.text.partition("\n")
    prompt = rest.lstrip("\n")
    return [(path, TextPart(type="text", text=prompt)), *others] if prompt else others


def _blocks(content: str | Sequence[Any] | None, path: Location) -> _Blocks:
    if isinstance(content, str):
        return [(path, TextPart(type="text", text=content))]
    return [((*path, number), block) for number, block in enumerate(content or ())]
