"""Anthropic's Messages API: routes under `/v1/messages`, their schemas, and the conversion of
requests to turns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, model_validator

from mochi_server import errors
from mochi_server.chat.turn_input import GenerationOptions, TurnInput
from mochi_server.dependencies import ServicesDep
from mochi_server.errors import ValidationFailed
from mochi_server.protocols import schemas
from mochi_server.protocols.anthropic.encoder import ANTHROPIC_ERRORS, MessageEncoder, encode_error
from mochi_server.protocols.completions import answer_responses, estimate, start
from mochi_server.protocols.conversation import (
    SentMessages,
    add_tool_names,
    decode_images,
    new_message,
    tool_call,
)
from mochi_server.protocols.encoder import respond
from mochi_server.protocols.parts import Notice, omitted_tools
from mochi_server.protocols.schemas import (
    THINK,
    HeadersParam,
    MochiHeaders,
    NamedFunction,
    TextPart,
    tool_selection,
)
from mochi_server.schemas.common import Body, Text, ToolParameters, UnstoredBody
from mochi_server.sessions.images import Location
from mochi_server.sessions.types import FiniteObject, Message, Role
from mochi_server.util.validation import Items
from mochi_server.web.requests import Protocol
from mochi_server.web.routes import MODEL_ERRORS, BodyReleasingRoute, responses

CUSTOM = (None, "custom")
"""Types of the tools that the client defines.

The server leaves out all other tools, because Anthropic defines them.
"""
_Item = TypeVar("_Item")
_Content = schemas.TextOr[Annotated[Items[_Item], Field(min_length=1)]]


class ImageSource(Body):
    """Data of an image: base64 in ``data``, or a data URL in ``url``."""

    type: Literal["base64", "url"]
    data: str = ""
    url: schemas.DataUrl | None = None


class ImageBlock(Body):
    """An image, for models with `vision`."""

    type: Literal["image"]
    source: ImageSource


class DocumentSource(Body):
    """Data of a document: plain text in ``data`` if the type is `text`.

    The server reads no other documents.
    """

    type: str
    data: Text | None = None

    @property
    def text(self) -> str | None:
        return self.data if self.type == "text" else None


class DocumentBlock(Body):
    """A document. The model receives plain text, and a note in place of any other document."""

    type: Literal["document"]
    source: DocumentSource


class ToolReferenceBlock(Body):
    """Name of a tool that the client has found. The request also defines the tool."""

    type: Literal["tool_reference"]
    tool_name: str


_ResultBlock = TextPart | ImageBlock | DocumentBlock | ToolReferenceBlock


class ToolResultBlock(Body):
    """The result of a tool call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: schemas.TextOr[Items[Annotated[_ResultBlock, Field(discriminator="type")]]] | None = (
        None
    )
    is_error: bool | None = None


class ToolUseBlock(Body):
    """A tool call of the model."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: FiniteObject


class ThinkingBlock(Body):
    """Reasoning of a model. Only reasoning in clear text has an effect."""

    type: Literal["thinking", "redacted_thinking"]
    thinking: Text = ""


_UserBlock = TextPart | ImageBlock | DocumentBlock | ToolResultBlock


class AnthropicUserMessage(Body):
    """A message of the user, or results of tool calls."""

    role: Literal["user"]
    content: _Content[Annotated[_UserBlock, Field(discriminator="type")]]


class AnthropicAssistantMessage(Body):
    """A message of the model."""

    role: Literal["assistant"]
    content: _Content[
        Annotated[TextPart | ToolUseBlock | ThinkingBlock, Field(discriminator="type")]
    ]


class AnthropicSystemMessage(Body):
    """Instructions for the model. In a session, they count for this request only."""

    role: Literal["system"]
    content: _Content[TextPart]


_Message = Annotated[
    AnthropicUserMessage | AnthropicAssistantMessage | AnthropicSystemMessage,
    Field(discriminator="role"),
]


class Tool(schemas.FunctionTool):
    """A tool that the client runs."""

    type: str | None = None
    parameters: ToolParameters | None = Field(None, alias="input_schema")

    @model_validator(mode="before")
    @classmethod
    def _has_name(cls, data: Any) -> Any:
        is_of_anthropic = isinstance(data, dict) and data.get("type") not in CUSTOM
        return {"name": data["type"], **data} if is_of_anthropic else data


class ToolChoice(Body):
    """Whether the model may or must call a tool. `tool` requires a call of the tool ``name``."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Body):
    """Whether the model thinks. The server ignores `budget_tokens`."""

    type: Literal["enabled", "adaptive", "disabled"]


class OutputConfig(Body):
    """Options of the answer. ``effort`` is the level of thinking, if ``thinking`` is enabled."""

    effort: schemas.Effort | None = None
    format: schemas.SchemaText | None = None


class CountRequest(UnstoredBody):
    """A conversation.

    A null field counts as absent. Unknown fields, such as `cache_control`, are ignored.
    """

    model: str = Field(min_length=1, description="Model of Ollama, or `agent:NAME`.")
    messages: Items[_Message] = Field(
        min_length=1, description="The conversation; in a session, its new messages."
    )
    system: schemas.TextOr[Items[TextPart]] | None = Field(
        None, description="Instructions for the model."
    )
    tools: Items[Tool] | None = Field(None, description="Tools that the client runs.")
    tool_choice: ToolChoice | None = Field(
        None, description="It is enforced for the first answer of the turn."
    )
    thinking: Thinking | None = Field(
        None, description="Without this field, the session's default applies."
    )
    output_config: OutputConfig | None = Field(
        None, description="Level of thinking, and format of the answer."
    )


class MessageRequest(
    CountRequest,
    json_schema_extra={
        "examples": [
            {
                "model": "qwen3:14b",
                "max_tokens": 1024,
                "messages": [{"role": "user", "content": "Hello!"}],
            }
        ]
    },
):
    """A conversation to answer. A null field counts as absent. Unknown fields are ignored."""

    max_tokens: schemas.TokenLimit = Field(
        description="Maximum tokens of the answer, with thinking. -1 sets no limit."
    )
    stream: bool | None = Field(None, description="Stream the answer.")
    temperature: float | None = Field(None, ge=0, le=1, description="Sampling temperature.")
    top_p: float | None = Field(
        None, ge=0, le=1, description="Nucleus sampling: cumulative probability of candidates."
    )
    top_k: int | None = Field(None, ge=0, description="Number of candidates for the next token.")
    stop_sequences: Items[str] | None = Field(
        None, description="Stop sequences. The answer ends before them."
    )


class MessageResponse(BaseModel):
    """An answer. ``content`` has blocks of the types `thinking`, `text` and `tool_use`."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: Literal["end_turn", "max_tokens", "tool_use"]
    stop_sequence: None
    usage: dict[str, int | None] = Field(
        description="Ollama's token counts, summed over all requests of the turn. "
        "`cache_read_input_tokens` is null if Ollama does not report cached tokens."
    )
    mochi: schemas.MochiExtension


_OPTIONS = {"max_tokens": "num_predict", "stop_sequences": "stop"} | {
    n: n for n in ("temperature", "top_p", "top_k")
}
"""Mapping of fields of the request to Ollama's options."""
HIDDEN_DOCUMENT = "[A document is not shown, because this server cannot read it.]"
_DOCUMENT_LEFT_OUT = (
    "This server cannot read documents such as PDF files. The model receives a note instead."
)
_BILLING = "x-anthropic-billing-header:"
"""Beginning of the line that Claude Code puts before its system prompt."""
_Blocks = Sequence[tuple[Location, Any]]  # content blocks with their paths in the request


async def parse(request: CountRequest, headers: MochiHeaders) -> tuple[TurnInput, SentMessages]:
    """Return the options of a request and its messages.

    Raises ``ValidationFailed`` for an invalid message.
    """
    tools = [tool.to_ollama() for tool in request.tools or () if tool.type in CUSTOM]
    wanted = request.tool_choice or ToolChoice(type="auto")
    choice: str | NamedFunction = "required" if wanted.type == "any" else wanted.type
    if wanted.type == "tool":
        if wanted.name is None:
            raise ValidationFailed.at(("tool_choice", "name"), "Field required")
        choice = NamedFunction(name=wanted.name)
    selection = tool_selection(
        headers, tools, choice, parallel=not wanted.disable_parallel_tool_use
    )
    sent = await _messages(request)
    for index, message in enumerate(sent.messages):
        if message["role"] == "tool" and "tool_name" not in message and headers.session is None:
            problem = f"no earlier message has a tool call with the ID {message['tool_call_id']!r}"
            raise sent.error(problem, index)
    return headers.turn(request.model, _generation(request), selection), sent


def _generation(request: CountRequest) -> GenerationOptions:
    output = request.output_config or OutputConfig()
    think: bool | str | None = (
        None if request.thinking is None else request.thinking.type != "disabled"
    )
    if think and output.effort:
        think = THINK.get(output.effort, output.effort)
    fields = request.model_dump(include=set(_OPTIONS), exclude_none=True)
    options = {_OPTIONS[name]: value for name, value in fields.items()}
    return GenerationOptions(think, options, output.format.to_ollama() if output.format else None)


async def _messages(request: CountRequest) -> SentMessages:
    """Return the messages of a request.

    Consecutive messages of one role become one message, as in Anthropic's API.
    """
    reader = _Reader()
    reader.add("system", _system_blocks(request.system), 0)
    for _, group in groupby(enumerate(request.messages), lambda each: each[1].role):
        *_, (last, message) = sent = list(group)
        blocks = [
            block
            for position, m in sent
            for block in _blocks(m.content, ("messages", position, "content"))
        ]
        for path, block in blocks:
            if isinstance(block, ToolResultBlock):
                fields = {"tool_call_id": block.tool_use_id, "success": not block.is_error}
                reader.add("tool", _blocks(block.content or "", (*path, "content")), last, **fields)
        reader.add(
            message.role,
            [each for each in blocks if not isinstance(each[1], ToolResultBlock)],
            last,
        )
    add_tool_names(reader.messages)
    images = {
        index: await decode_images(urls, next(iter(urls))[:3])
        for index, urls in reader.urls.items()
    }
    messages = SentMessages(reader.messages, images, positions=reader.positions)
    newest = messages.last_user_index
    if newest is not None and newest in reader.documents:
        # Claude Code removes its documents from the conversation if an error contains these words.
        problem = "this server does not support PDF input, only text and images"
        raise ValidationFailed.at(reader.documents[newest], problem)
    return messages


@dataclass
class _Reader:
    """Converter of content blocks to messages."""

    messages: list[Message] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    urls: dict[int, dict[Location, str]] = field(default_factory=dict)
    """Encoded images of each message by their paths."""
    documents: dict[int, Location] = field(default_factory=dict)
    """Path of a document of each message that has any that cannot be read."""

    def add(self, role: Role, blocks: _Blocks, position: int, **fields: Any) -> None:
        """Add the message with the content ``blocks``.

        ``position`` is its position in the request.
        """
        if not blocks:
            return
        if thinking := [block.thinking for _, block in blocks if isinstance(block, ThinkingBlock)]:
            fields["thinking"] = "\n\n".join(filter(None, thinking))
        if calls := [block for _, block in blocks if isinstance(block, ToolUseBlock)]:
            fields["tool_calls"] = [
                tool_call(n, call.id, call.name, call.input) for n, call in enumerate(calls)
            ]
        if images := [
            (path, block.source) for path, block in blocks if isinstance(block, ImageBlock)
        ]:
            self.urls[len(self.messages)] = {
                (*path, "source"): source.url or source.data for path, source in images
            }
        if unread := [path for path, block in blocks if _is_unread(block)]:
            self.documents[len(self.messages)] = unread[0]
        text = "\n".join(text for _, block in blocks if (text := _text(block)) is not None)
        self.messages.append({**new_message(role, text), **fields})  # type: ignore[typeddict-item]  # fields of messages
        self.positions.append(position)


def _notices(request: CountRequest) -> list[Notice]:
    """Return a notice for each tool and one for all documents that the model does not receive."""
    notices = omitted_tools(
        "Anthropic", (tool.name for tool in request.tools or () if tool.type not in CUSTOM)
    )
    if any(
        _is_unread(block)
        for message in request.messages
        for block in _nested_blocks(message.content)
    ):
        notices.append(
            Notice("warning", {"code": "DOCUMENT_LEFT_OUT", "message": _DOCUMENT_LEFT_OUT})
        )
    return notices


def _nested_blocks(content: str | Sequence[Any] | None) -> Iterator[Any]:
    for _, block in _blocks(content, ()):
        yield block
        if isinstance(block, ToolResultBlock):
            yield from _nested_blocks(block.content)


def _is_unread(block: object) -> bool:
    return isinstance(block, DocumentBlock) and block.source.text is None


def _text(block: object) -> str | None:
    """Return the text that the model receives for a block, or None if it receives the block in
    another form.
    """
    match block:
        case TextPart():
            return block.text
        case DocumentBlock():
            return HIDDEN_DOCUMENT if block.source.text is None else block.source.text
        case ToolReferenceBlock():
            return f"The tool {block.tool_name!r} is available."
    return None


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


router = APIRouter(tags=["Anthropic"], route_class=BodyReleasingRoute)
PROTOCOL = Protocol(
    "/v1/messages",
    router,
    encode_error,
    ANTHROPIC_ERRORS,
    resumes=False,
    turn_paths=("",),
    request_id_header="request-id",
    description="Routes for clients of Anthropic's API. Errors have Anthropic's format.",
)


@router.post(
    "",
    response_model=MessageResponse,
    responses=answer_responses("The message, as JSON or as events.", ANTHROPIC_ERRORS),
)
async def create_message(request: Request, body: MessageRequest, headers: HeadersParam) -> Response:
    """Answer a conversation with one JSON response or a stream.

    If the request names no session, nothing is stored.
    """
    run = await start(
        request, headers.session, parse(body, headers), response_format="output_config.format"
    )
    return await respond(
        request, MessageEncoder(run, body.model, _notices(body)), stream=body.stream
    )


@router.post(
    "/count_tokens",
    responses=responses(errors.ValidationFailed, *MODEL_ERRORS, form=ANTHROPIC_ERRORS),
)
async def count_message_tokens(
    body: CountRequest, services: ServicesDep, headers: HeadersParam
) -> dict[str, int]:
    """Estimate the tokens of a conversation.

    The estimate improves with each answer of the model.
    """
    return {"input_tokens": await estimate(services, *await parse(body, headers))}
