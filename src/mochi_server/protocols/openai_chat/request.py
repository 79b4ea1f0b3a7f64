"""Requests for completions of OpenAI's API, and their conversion to turns."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from mochi_server.chat.turn_input import TurnInput
from mochi_server.errors import ValidationFailed
from mochi_server.protocols.answer_request import AnswerRequest
from mochi_server.protocols.headers import MochiHeaders
from mochi_server.protocols.schemas import (
    PlainFormat,
    RefusalPart,
    SentImage,
    TextOr,
    TextPart,
    TokenLimit,
    Unsupported,
    allow,
    joined_text,
)
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
from mochi_server.protocols.tool_choice import (
    PARALLEL,
    TOOL_CHOICE,
    AllowedFunctions,
    FunctionTool,
    NamedFunction,
    ToolChoice,
    WordOr,
    ollama_tools,
    tool_selection,
)
from mochi_server.schemas.common import Body, Text
from mochi_server.services.attachments import EncodedFile
from mochi_server.sessions.images import Location
from mochi_server.sessions.types import FiniteObject, Message, Role
from mochi_server.util.validation import Items


class ImageUrl(Body):
    """An image as a data URL."""

    url: SentImage


class ImagePart(Body):
    """An image, for models with `vision`."""

    type: Literal["image_url"]
    image_url: Annotated[
        Annotated[SentImage, Tag("text")] | Annotated[ImageUrl, Tag("object")],
        Discriminator(lambda image: "text" if isinstance(image, str) else "object"),
    ]

    @property
    def url(self) -> str:
        return self.image_url if isinstance(self.image_url, str) else self.image_url.url


class FileData(SentFile):
    """A file with text, or a PDF: a data URL or base64 in ``file_data``."""


class FilePart(Body):
    """A file that the model reads."""

    type: Literal["file"]
    file: FileData


_ResultPart = Annotated[TextPart | ImagePart, Field(discriminator="type")]
_UserPart = Annotated[TextPart | ImagePart | FilePart, Field(discriminator="type")]
_AnswerPart = Annotated[TextPart | RefusalPart, Field(discriminator="type")]


class SystemMessage(Body):
    """Instructions for the model."""

    role: Literal["system", "developer"]
    content: TextOr[Items[TextPart]]


class UserMessage(Body):
    """A message of the user."""

    role: Literal["user"]
    content: TextOr[Items[_UserPart]]


class Function(Body):
    """Function of a tool call. ``arguments`` is JSON text."""

    name: str
    arguments: SentArguments = "{}"


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


class ToolMessage(Body):
    """The result of a tool call. Null is an empty result."""

    role: Literal["tool"]
    content: TextOr[Items[_ResultPart]] | None = None
    tool_call_id: str


AnyMessage = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")
]


class ClientTool(Body):
    """A tool that the client runs."""

    type: Literal["function"]
    function: FunctionTool


class NamedTool(Body):
    """The tool that the model must call.

    The server does not offer any other tool to the model.
    """

    type: Literal["function"]
    function: NamedFunction

    @property
    def choice(self) -> NamedFunction:
        """The function, without its place in the request."""
        return self.function


class AllowedList(Body):
    """The tools that the model may call. With the mode `required`, it must call one of them."""

    mode: Literal["auto", "required"]
    tools: Items[NamedTool]


class AllowedTools(Body):
    """Limit on the tools that the model may call.

    The server does not offer any other tool to the model.
    """

    type: Literal["allowed_tools"]
    allowed_tools: AllowedList

    @property
    def choice(self) -> AllowedFunctions:
        """The functions and the mode, without their place in the request."""
        functions = [tool.function for tool in self.allowed_tools.tools]
        return AllowedFunctions.model_construct(mode=self.allowed_tools.mode, tools=functions)


_Choice = WordOr[Annotated[NamedTool | AllowedTools, Field(discriminator="type")]]


class JsonSchema(Body):
    """Schema of the answer."""

    name: str = "answer"
    json_schema: FiniteObject | None = Field(None, alias="schema")


class SchemaFormat(Body):
    """Response format: JSON that matches a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema

    def to_ollama(self) -> str | dict[str, Any]:
        return self.json_schema.json_schema or "json"


_Format = Annotated[PlainFormat | SchemaFormat, Field(discriminator="type")]


class StreamOptions(Body):
    """Options of a stream. If ``include_usage`` is true, a last chunk has the token counts."""

    include_usage: bool | None = None


MaxTokens = Annotated[
    TokenLimit | None,
    Field(description="Maximum tokens of the answer, with reasoning. -1 sets no limit."),
]
_EXAMPLE = {"model": "qwen3:14b", "messages": [{"role": "user", "content": "Hello!"}]}


class CompletionRequest(AnswerRequest, json_schema_extra={"examples": [_EXAMPLE]}):
    """A conversation to answer. A null field counts as absent. Unknown fields are ignored."""

    messages: Items[AnyMessage] = Field(
        min_length=1, description="The conversation; in a session, its new messages."
    )
    stream_options: StreamOptions | None = Field(
        None, description="`include_usage` adds a chunk with token counts."
    )
    tools: Items[ClientTool] | None = Field(None, description="Tools that the client runs.")
    tool_choice: _Choice | None = Field(None, description=TOOL_CHOICE)
    parallel_tool_calls: bool | None = Field(None, description=PARALLEL)
    response_format: _Format | None = Field(
        None, description="Text, any JSON object, or JSON that matches a schema."
    )
    max_tokens: MaxTokens = None
    max_completion_tokens: TokenLimit | None = Field(None, description="Overrides `max_tokens`.")
    logprobs: bool | None = Field(
        None, description="Return the log probabilities of the tokens of the answer."
    )
    top_logprobs: int | None = Field(
        None, ge=0, le=20, description="Alternatives for each token, with `logprobs`."
    )
    format: Annotated[Any, allow(reason="use `response_format`")] = Field(
        None, description="Not supported."
    )
    modalities: Annotated[Items[str] | None, allow(["text"])] = Field(
        None, description="Only `text` is supported."
    )
    audio: Unsupported = None
    functions: Annotated[Any, allow([], reason="use `tools`")] = Field(
        None, description="Only an empty list is supported. Use `tools`."
    )
    function_call: Annotated[Any, allow("none", "auto", reason="use `tool_choice`")] = Field(
        None, description="Only `none` and `auto` are supported. Use `tool_choice`."
    )
    web_search_options: Unsupported = None

    @property
    def choice(self) -> ToolChoice | None:
        """The tool choice in the form that all protocols share."""
        if isinstance(self.tool_choice, NamedTool | AllowedTools):
            return self.tool_choice.choice
        return self.tool_choice


def _without_logprobs(value: Any) -> Any:
    """Reject all values but false and null, also the numbers of OpenAI's API."""
    if value is None or value is False:
        return value
    raise ValueError("must be false, or left out: text completions have no log probabilities")


_TEXT_EXAMPLE = {"model": "qwen3:14b", "prompt": "Once upon a time"}


class TextCompletionRequest(AnswerRequest, json_schema_extra={"examples": [_TEXT_EXAMPLE]}):
    """A prompt to complete. The model receives it as a user message. Unknown fields are ignored."""

    prompt: Text | Annotated[Items[Text], Field(min_length=1, max_length=1)] = Field(
        description="One prompt."
    )
    stream_options: StreamOptions | None = Field(
        None, description="`include_usage` adds a chunk with token counts."
    )
    max_tokens: MaxTokens = None
    best_of: Annotated[int | None, allow(1)] = Field(None, description="Only 1 is supported.")
    echo: Annotated[bool | None, allow(False)] = Field(
        None, description="Only `false` is supported."
    )
    suffix: Annotated[str | None, allow("")] = Field(
        None, description="Only an empty text is supported."
    )
    logprobs: Annotated[bool | None, BeforeValidator(_without_logprobs)] = Field(
        None, description="Only `false` is supported."
    )
    response_format: Unsupported = None
    tools: Annotated[Any, allow([])] = Field(None, description="Only an empty list is supported.")
    max_completion_tokens: Annotated[Any, allow(reason="use `max_tokens`")] = Field(
        None, description="Not supported."
    )


async def parse_completion(
    request: CompletionRequest, headers: MochiHeaders
) -> tuple[TurnInput, SentMessages]:
    """Return the options of a chat completion and its messages.

    Raises ``ValidationFailed`` for an invalid message or option.
    """
    if request.top_logprobs and not request.logprobs:
        raise ValidationFailed.at("top_logprobs", "requires `logprobs: true`")
    calls = CallReader()
    messages = [_stored(message, calls) for message in request.messages]
    add_tool_names(messages)
    tools = tool_selection(
        headers.tool_names,
        ollama_tools([tool.function for tool in request.tools or ()]),
        request.choice,
        parallel=request.parallel_tool_calls,
    )
    turn = request.turn(
        headers,
        tools,
        limit=request.max_completion_tokens or request.max_tokens,
        answer_format=request.response_format.to_ollama() if request.response_format else None,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
    )
    urls: dict[int, dict[Location, str]] = {}
    files: dict[int, dict[Location, EncodedFile | None]] = {}
    for index, message in enumerate(request.messages):
        if message.content is None or isinstance(message.content, str):
            continue
        for number, part in enumerate(message.content):
            path: Location = ("messages", index, "content", number)
            match part:
                case ImagePart():
                    urls.setdefault(index, {})[path] = part.url
                case FilePart():
                    files.setdefault(index, {})[path] = part.file.encoded
    sent = SentMessages(messages, notices=calls.notices(messages))
    sent = await with_images(sent, urls)
    return turn, await with_files(sent, files)


def _stored(sent: AnyMessage, calls: CallReader) -> Message:
    """Return a message in the stored format, without its images and files."""
    match sent:
        case ToolMessage():
            result = new_result(joined_text(sent.content))
            result["tool_call_id"] = sent.tool_call_id
            return result
        case AssistantMessage():
            return _stored_answer(sent, calls)
    role: Role = "user" if sent.role == "user" else "system"
    return new_message(role, joined_text(sent.content))


def _stored_answer(sent: AssistantMessage, calls: CallReader) -> Message:
    message = new_answer(joined_text(sent.content) or sent.refusal or "")
    thinking = sent.reasoning_content or sent.reasoning
    if thinking:
        message["thinking"] = thinking
    if sent.tool_calls:
        message["tool_calls"] = [
            calls.tool_call(index, call.id, call.function.name, call.function.arguments)
            for index, call in enumerate(sent.tool_calls)
        ]
    return message


async def parse_prompt(
    request: TextCompletionRequest, headers: MochiHeaders
) -> tuple[TurnInput, SentMessages]:
    """Return the options of a text completion, and its prompt as a user message."""
    prompt = request.prompt if isinstance(request.prompt, str) else request.prompt[0]
    tools = tool_selection(headers.tool_names)
    turn = request.turn(headers, tools, limit=request.max_tokens)
    return turn, SentMessages([new_message("user", prompt)])
