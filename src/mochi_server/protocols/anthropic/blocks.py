"""Messages of Anthropic's API, whose content has blocks, and their conversion to messages."""

from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from mochi_server.errors import ValidationFailed
from mochi_server.protocols.parts import omitted_content
from mochi_server.protocols.schemas import SentImage, TextOr, TextPart
from mochi_server.protocols.sent_files import with_files, with_images
from mochi_server.protocols.sent_messages import (
    CallReader,
    SentArguments,
    SentMessages,
    add_tool_names,
    new_message,
)
from mochi_server.schemas.common import Body, Text
from mochi_server.services.attachments import DEFAULT_NAME, EncodedFile
from mochi_server.sessions.images import Location
from mochi_server.sessions.types import Message, Role, ToolCall
from mochi_server.util.validation import Items

_Item = TypeVar("_Item")
_Content = TextOr[Annotated[Items[_Item], Field(min_length=1)]]


class ImageSource(Body):
    """Data of an image: base64 in ``data``, or a data URL in ``url``.

    The server reads no other images.
    """

    type: str
    data: str | None = None
    url: SentImage | None = None


class ImageBlock(Body):
    """An image, for models with `vision`."""

    type: Literal["image"]
    source: ImageSource


class DocumentSource(Body):
    """Data of a document: base64 or text in ``data``, or text blocks in ``content``.

    The server reads no other documents.
    """

    type: str
    data: str | None = None
    media_type: str | None = None
    content: Any = None


class DocumentBlock(Body):
    """A document: text or a PDF. The model receives a note in place of any other document."""

    type: Literal["document"]
    source: DocumentSource
    title: str | None = None

    @property
    def file(self) -> EncodedFile | None:
        """The file, or None if the source only refers to it. A file without ``data`` is empty."""
        if self.source.type not in ("base64", "text", "content"):
            return None
        name = self.title or DEFAULT_NAME
        data = self.source.data or ""
        if self.source.type == "content":
            data = _text_in(self.source.content)
        if self.source.type in ("text", "content"):
            return EncodedFile(name, b64encode(data.encode()).decode(), "text/plain; charset=utf-8")
        return EncodedFile(name, data, self.source.media_type)


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
    """Instructions for the model. In a session, they apply only to this request."""

    role: Literal["system"]
    content: _Content[TextPart]


AnyMessage = Annotated[
    AnthropicUserMessage | AnthropicAssistantMessage | AnthropicSystemMessage,
    Field(discriminator="role"),
]

_BILLING = "x-anthropic-billing-header:"
"""Beginning of the line that Claude Code puts before its system prompt."""
_Blocks = Sequence[tuple[Location, Any]]  # content blocks with their paths in the request


async def to_messages(
    system: str | Sequence[TextPart] | None, sent: Sequence[AnyMessage]
) -> SentMessages:
    """Convert the messages of a request. ``system`` becomes a system message before them.

    Consecutive messages of one role become one message, as in Anthropic's API. Raises
    ``ValidationFailed`` for images and documents of the newest user message that cannot be read,
    and for invalid arguments of a call in the last message.
    """
    reader = _BlockReader()
    reader.add("system", _system_blocks(system), 0)
    for _, group in groupby(enumerate(sent), lambda each: each[1].role):
        reader.add_group([*group])
    add_tool_names(reader.messages)
    invalid_arguments = reader.calls.notices(reader.messages)
    messages = SentMessages(
        reader.messages,
        positions=reader.positions,
        notices=omitted_content(reader.omitted) + invalid_arguments,
    )
    messages = await with_images(messages, reader.urls)
    try:
        return await with_files(messages, reader.documents)
    except ValidationFailed as error:
        # Claude Code removes its documents from the conversation if an error contains the first
        # words.
        first = error.details["errors"][0]
        problem = f"this server does not support PDF input like this: {first['msg']}"
        raise ValidationFailed.at(first["loc"][1:], problem) from error


@dataclass(frozen=True, slots=True)
class _BlockReader:
    """Converter of content blocks to messages."""

    messages: list[Message] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    urls: dict[int, dict[Location, str | None]] = field(default_factory=dict)
    """Encoded images of each message by their paths."""
    documents: dict[int, dict[Location, EncodedFile | None]] = field(default_factory=dict)
    """Documents of each message by their paths."""
    calls: CallReader = field(default_factory=CallReader)
    omitted: Counter[str] = field(default_factory=Counter)
    """Numbers of the blocks that were left out, by type."""

    def add_group(self, group: Sequence[tuple[int, AnyMessage]]) -> None:
        """Add messages of one role: first the tool results, then the rest as one message, which has
        the position of the last.
        """
        last, message = group[-1]
        others: list[tuple[Location, Any]] = []
        for position, each in group:
            for path, block in _blocks(each.content, ("messages", position, "content")):
                if isinstance(block, ToolResultBlock):
                    self._add_result(path, block, position)
                else:
                    others.append((path, block))
        self.add(message.role, others, last)

    def _add_result(self, path: Location, result: ToolResultBlock, position: int) -> None:
        self.add("tool", _blocks(result.content or "", (*path, "content")), position)
        message = self.messages[-1]
        if message["role"] == "tool":
            message["tool_call_id"] = result.tool_use_id
            message["success"] = not result.is_error

    def add(self, role: Role, blocks: _Blocks, position: int) -> None:
        """Add the message with the content ``blocks``. Without blocks, only the model's is added.

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
                case DocumentBlock():
                    self.documents.setdefault(index, {})[path] = block.file
                case ServerToolBlock(text=""):
                    self.omitted[block.type] += 1
                case _:
                    texts.append(_text(block))
        message = new_message(role, "\n".join(texts))
        if message["role"] == "assistant" and thinking:
            message["thinking"] = "\n\n".join(text for text in thinking if text)
        if message["role"] == "assistant" and calls:
            message["tool_calls"] = calls
        self.messages.append(message)
        self.positions.append(position)


def _text(block: TextPart | SearchResultBlock | ToolReferenceBlock | ServerToolBlock) -> str:
    """Return the text that the model receives for a block."""
    match block:
        case TextPart() | ServerToolBlock():
            return block.text
        case SearchResultBlock():
            return _text_in(block.model_dump())
        case ToolReferenceBlock():
            return f"The tool {block.tool_name!r} is available."


_TEXT_FIELDS = ("title", "source", "url", "text", "stdout", "stderr", "content")
"""Fields with text for the model in blocks of tools that Anthropic runs."""


def _text_in(content: Any) -> str:
    """Return the texts in the content of a block, one per line."""
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
    if not prompt:
        return others
    return [(path, TextPart(type="text", text=prompt)), *others]


def _blocks(content: str | Sequence[Any] | None, path: Location) -> _Blocks:
    """Return the blocks of a content with their paths. A text is one block."""
    if content is None:
        return []
    if isinstance(content, str):
        return [(path, TextPart(type="text", text=content))]
    return [((*path, number), block) for number, block in enumerate(content)]
