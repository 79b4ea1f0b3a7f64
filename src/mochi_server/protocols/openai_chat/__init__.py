"""OpenAI's API: routes under `/v1` for completions, models and embeddings, their schemas, and their
parsing.
"""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Discriminator, Field, Tag

from mochi_server import errors
from mochi_server.chat.turn_input import TurnInput
from mochi_server.constants import OPENAI_PREFIX
from mochi_server.dependencies import ServicesDep
from mochi_server.errors import ValidationFailed
from mochi_server.protocols import schemas
from mochi_server.protocols.completions import answer_responses, models, modified, start
from mochi_server.protocols.conversation import (
    SentMessages,
    add_tool_names,
    decode_images,
    new_message,
    tool_call,
)
from mochi_server.protocols.encoder import respond
from mochi_server.protocols.openai_chat.embeddings import EmbeddingList, EmbeddingRequest, embed
from mochi_server.protocols.openai_chat.encoder import ChunkEncoder, TextChunkEncoder
from mochi_server.protocols.schemas import (
    OPENAI_ERRORS,
    HeadersParam,
    MochiHeaders,
    joined_text,
    openai_stream_error,
    tool_selection,
)
from mochi_server.schemas.common import Body, Text
from mochi_server.sessions.images import Location
from mochi_server.sessions.types import FiniteObject, Message
from mochi_server.util.validation import Items
from mochi_server.web.requests import Protocol, until_disconnect
from mochi_server.web.routes import MODEL_ERRORS, OLLAMA_ERRORS, BodyReleasingRoute, responses


class ImageUrl(Body):
    """An image as a data URL."""

    url: schemas.DataUrl


class ImagePart(Body):
    """An image, for models with `vision`."""

    type: Literal["image_url"]
    image_url: Annotated[
        Annotated[schemas.DataUrl, Tag("text")] | Annotated[ImageUrl, Tag("object")],
        Discriminator(lambda image: "text" if isinstance(image, str) else "object"),
    ]

    @property
    def url(self) -> str:
        return self.image_url if isinstance(self.image_url, str) else self.image_url.url


_UserPart = Annotated[schemas.TextPart | ImagePart, Field(discriminator="type")]
_AnswerPart = Annotated[schemas.TextPart | schemas.RefusalPart, Field(discriminator="type")]


class SystemMessage(Body):
    """Instructions for the model."""

    role: Literal["system", "developer"]
    content: schemas.TextOr[Items[schemas.TextPart]]


class UserMessage(Body):
    """A message of the user."""

    role: Literal["user"]
    content: schemas.TextOr[Items[_UserPart]]


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
    content: schemas.TextOr[Items[_AnswerPart]] | None = None
    refusal: Text | None = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None
    tool_calls: Items[Call] | None = None
    function_call: schemas.Unsupported = Field(None, description="Not supported. Use `tool_calls`.")
    audio: schemas.Unsupported = None


class ToolMessage(Body):
    """The result of a tool call."""

    role: Literal["tool"]
    content: schemas.TextOr[Items[_UserPart]]
    tool_call_id: str


AnyMessage = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")
]


class ClientTool(Body):
    """A tool that the client runs."""

    type: Literal["function"]
    function: schemas.FunctionTool


class NamedTool(Body):
    """The tool that the model should call.

    The server does not offer any other tool to the model.
    """

    type: Literal["function"]
    function: schemas.NamedFunction


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
    def function(self) -> schemas.AllowedFunctions:
        names = [tool.function for tool in self.allowed_tools.tools]
        return schemas.AllowedFunctions.model_construct(mode=self.allowed_tools.mode, tools=names)


_Choice = schemas.WordOr[Annotated[NamedTool | AllowedTools, Field(discriminator="type")]]


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


_Format = Annotated[schemas.PlainFormat | SchemaFormat, Field(discriminator="type")]


class StreamOptions(Body):
    """Options of a stream. If ``include_usage`` is true, a last chunk has the token counts."""

    include_usage: bool | None = None


MaxTokens = Annotated[
    schemas.TokenLimit | None,
    Field(description="Maximum tokens of the answer, with reasoning. -1 sets no limit."),
]
_EXAMPLE = {"model": "qwen3:14b", "messages": [{"role": "user", "content": "Hello!"}]}


class CompletionRequest(schemas.AnswerRequest, json_schema_extra={"examples": [_EXAMPLE]}):
    """A conversation to answer. A null field counts as absent. Unknown fields are ignored."""

    messages: Items[AnyMessage] = Field(
        min_length=1, description="The conversation; in a session, its new messages."
    )
    stream_options: StreamOptions | None = Field(
        None, description="`include_usage` adds a chunk with token counts."
    )
    tools: Items[ClientTool] | None = Field(None, description="Tools that the client runs.")
    tool_choice: _Choice | None = Field(None, description=schemas.TOOL_CHOICE)
    parallel_tool_calls: bool | None = Field(None, description=schemas.PARALLEL)
    response_format: _Format | None = Field(
        None, description="Text, any JSON object, or JSON that matches a schema."
    )
    max_tokens: MaxTokens = None
    max_completion_tokens: schemas.TokenLimit | None = Field(
        None, description="Overrides `max_tokens`."
    )
    logprobs: bool | None = Field(
        None, description="Return the log probabilities of the tokens of the answer."
    )
    top_logprobs: int | None = Field(
        None, ge=0, le=20, description="Alternatives for each token, with `logprobs`."
    )
    format: Annotated[Any, schemas.allow(reason="use `response_format`")] = Field(
        None, description="Not supported."
    )
    modalities: Annotated[Items[str] | None, schemas.allow(["text"])] = Field(
        None, description="Only `text` is supported."
    )
    audio: schemas.Unsupported = None
    functions: schemas.Unsupported = Field(None, description="Not supported. Use `tools`.")
    function_call: schemas.Unsupported = None
    web_search_options: schemas.Unsupported = None


_TEXT_EXAMPLE = {"model": "qwen3:14b", "prompt": "Once upon a time"}


class TextCompletionRequest(schemas.AnswerRequest, json_schema_extra={"examples": [_TEXT_EXAMPLE]}):
    """A prompt to complete. The model receives it as a user message. Unknown fields are ignored."""

    prompt: Text | Annotated[Items[Text], Field(min_length=1, max_length=1)] = Field(
        description="One prompt."
    )
    stream_options: StreamOptions | None = Field(
        None, description="`include_usage` adds a chunk with token counts."
    )
    max_tokens: MaxTokens = None
    best_of: Annotated[int | None, schemas.allow(1)] = Field(
        None, description="Only 1 is supported."
    )
    echo: Annotated[bool | None, schemas.allow(False)] = Field(
        None, description="Only `false` is supported."
    )
    suffix: Annotated[str | None, schemas.allow("")] = Field(
        None, description="Only an empty text is supported."
    )
    logprobs: Annotated[Any, schemas.allow()] = Field(None, description="Not supported.")
    response_format: schemas.Unsupported = None
    tools: Annotated[Any, schemas.allow([])] = Field(
        None, description="Only an empty list is supported."
    )
    max_completion_tokens: Annotated[Any, schemas.allow(reason="use `max_tokens`")] = Field(
        None, description="Not supported."
    )


_FinishReason = Literal["stop", "length", "tool_calls"]


class OpenAIModel(BaseModel):
    """A possible value of ``model`` in a request.

    ``created`` is the time of its last change, in seconds since 1970.
    """

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "mochi-server"


class OpenAIModelList(BaseModel):
    """All models: first the chat models of Ollama, then its other models, then the agents."""

    object: Literal["list"] = "list"
    data: list[OpenAIModel]


class CalledFunction(BaseModel):
    """Function of a tool call. ``arguments`` is JSON text."""

    name: str
    arguments: str


class CalledTool(BaseModel):
    """A tool call for the client to run."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class CompletionMessage(BaseModel):
    """The answer.

    If the model reasoned, ``reasoning_content`` and ``reasoning`` both contain the same reasoning.
    """

    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CalledTool] | None = None


class ChoiceLogprobs(BaseModel):
    """Log probabilities of the tokens of the answer, if the request sets ``logprobs``."""

    content: list[dict[str, Any]]
    refusal: None


class Choice(BaseModel):
    """The answer of a completion. A completion has exactly one choice."""

    index: int
    message: CompletionMessage
    logprobs: ChoiceLogprobs | None
    finish_reason: _FinishReason


class PromptTokensDetails(BaseModel):
    """Number of prompt tokens that were in Ollama's cache.

    It is null if Ollama does not report it.
    """

    cached_tokens: int | None


class Usage(BaseModel):
    """Ollama's token counts, summed over all requests of the turn."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class _Answer(BaseModel):
    id: str
    created: int
    model: str
    usage: Usage
    mochi: schemas.MochiExtension


class Completion(_Answer):
    """A complete answer."""

    object: Literal["chat.completion"]
    choices: list[Choice]


class TextChoice(BaseModel):
    """The answer of a text completion. A completion has exactly one choice."""

    index: int
    text: str
    logprobs: None
    finish_reason: _FinishReason


class TextCompletion(_Answer):
    """A complete answer as text."""

    object: Literal["text_completion"]
    choices: list[TextChoice]


async def parse_completion(
    request: CompletionRequest, headers: MochiHeaders
) -> tuple[TurnInput, SentMessages]:
    """Return the options of a chat completion and its messages.

    Raises ``ValidationFailed`` for an invalid message.
    """
    if request.top_logprobs and not request.logprobs:
        raise ValidationFailed.at("top_logprobs", "requires `logprobs: true`")
    messages = [_stored(message) for message in request.messages]
    add_tool_names(messages)
    tools = [tool.function.to_ollama() for tool in request.tools or ()]
    choice = (
        request.tool_choice.function
        if isinstance(request.tool_choice, Body)
        else request.tool_choice
    )
    turn = request.turn(
        headers,
        tool_selection(headers, tools, choice, parallel=request.parallel_tool_calls),
        limit=request.max_completion_tokens or request.max_tokens,
        answer_format=request.response_format.to_ollama() if request.response_format else None,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
    )
    images = {}
    for index, message in enumerate(request.messages):
        content: Location = ("messages", index, "content")
        parts = enumerate(message.content or () if not isinstance(message.content, str) else ())
        if urls := {
            (*content, number): part.url for number, part in parts if isinstance(part, ImagePart)
        }:
            images[index] = await decode_images(urls, content)
    return turn, SentMessages(messages, images)


def _stored(sent: AnyMessage) -> Message:
    message = new_message(
        "system" if sent.role == "developer" else sent.role, joined_text(sent.content)
    )
    if isinstance(sent, ToolMessage):
        message["tool_call_id"] = sent.tool_call_id
    if isinstance(sent, AssistantMessage):
        message["content"] = message["content"] or sent.refusal or ""
        if thinking := sent.reasoning_content or sent.reasoning:
            message["thinking"] = thinking
        if sent.tool_calls:
            calls = enumerate(sent.tool_calls)
            message["tool_calls"] = [
                tool_call(n, c.id, c.function.name, c.function.arguments) for n, c in calls
            ]
    return message


async def parse_prompt(
    request: TextCompletionRequest, headers: MochiHeaders
) -> tuple[TurnInput, SentMessages]:
    """Return the options of a text completion, and its prompt as a user message."""
    prompt = request.prompt if isinstance(request.prompt, str) else request.prompt[0]
    turn = request.turn(headers, tool_selection(headers), limit=request.max_tokens)
    return turn, SentMessages([new_message("user", prompt)])


def _wants_usage(body: CompletionRequest | TextCompletionRequest) -> bool:
    return bool(body.stream_options and body.stream_options.include_usage)


router = APIRouter(tags=["OpenAI"], route_class=BodyReleasingRoute)
PROTOCOL = Protocol(
    OPENAI_PREFIX,
    router,
    openai_stream_error,
    OPENAI_ERRORS,
    resumes=False,
    turn_paths=("/chat/completions", "/completions"),
    description="Routes for clients of OpenAI's API. Errors have OpenAI's format.",
)

_CHUNKS = "`data` is a chunk of the completion, an error or, at the end, `[DONE]`."
_COMPLETION = answer_responses("The completion, as JSON or in chunks.", OPENAI_ERRORS, _CHUNKS)


@router.get("/models/", include_in_schema=False)
@router.get("/models", responses=responses(*OLLAMA_ERRORS, form=OPENAI_ERRORS))
async def list_openai_models(services: ServicesDep) -> OpenAIModelList:
    """List the models, and the agents as `agent:NAME`.

    Models that cannot chat come after the chat models.
    """
    times = await models(services)
    return OpenAIModelList(
        data=[OpenAIModel(id=name, created=created) for name, created in times.items()]
    )


@router.get(
    "/models/{model_name:path}",
    responses=responses(*MODEL_ERRORS, errors.AgentInvalid, form=OPENAI_ERRORS),
)
async def get_openai_model(model_name: str, services: ServicesDep) -> OpenAIModel:
    """Get a model or an agent. An unknown name returns 404."""
    return OpenAIModel(id=model_name, created=await modified(services, model_name))


@router.post("/chat/completions", response_model=Completion, responses=_COMPLETION)
async def create_chat_completion(
    request: Request, body: CompletionRequest, headers: HeadersParam
) -> Response:
    """Answer a conversation with one JSON response or a stream.

    If the request names no session, nothing is stored.
    """
    run = await start(request, body.session_id(headers), parse_completion(body, headers))
    return await respond(
        request, ChunkEncoder(run, body.model, include_usage=_wants_usage(body)), stream=body.stream
    )


@router.post("/completions", response_model=TextCompletion, responses=_COMPLETION)
async def create_completion(
    request: Request, body: TextCompletionRequest, headers: HeadersParam
) -> Response:
    """Answer a prompt with one JSON response or a stream.

    The model receives the prompt as a user message.
    """
    run = await start(
        request, body.session_id(headers), parse_prompt(body, headers), messages="prompt"
    )
    encoder = TextChunkEncoder(run, body.model, include_usage=_wants_usage(body))
    return await respond(request, encoder, stream=body.stream)


@router.post(
    "/embeddings",
    response_model=EmbeddingList,
    responses=responses(errors.ValidationFailed, *MODEL_ERRORS, form=OPENAI_ERRORS),
)
async def create_embeddings(
    request: Request, body: EmbeddingRequest, services: ServicesDep
) -> Response:
    """Embed texts as vectors. Ollama computes the vectors."""
    return Response(
        await until_disconnect(request, embed(services.gateway, body)),
        media_type="application/json",
    )
