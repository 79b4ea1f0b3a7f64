"""OpenAI's Responses API: route `/v1/responses`, its schemas, and the conversion of requests to
turns.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from secrets import token_hex
from typing import Annotated, Any, Literal
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import (
    AfterValidator,
    BaseModel,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    model_validator,
)

from mochi_server.chat.turn_input import TurnInput
from mochi_server.constants import OPENAI_PREFIX
from mochi_server.container import Services
from mochi_server.dependencies import ServicesDep
from mochi_server.errors import ResponseNotFound, ValidationFailed
from mochi_server.protocols import schemas
from mochi_server.protocols.completions import answer_responses, start
from mochi_server.protocols.conversation import (
    SentMessages,
    add_tool_names,
    decode_images,
    new_message,
    tool_call,
)
from mochi_server.protocols.encoder import respond
from mochi_server.protocols.parts import omitted_tools
from mochi_server.protocols.responses.encoder import ResponseEncoder
from mochi_server.protocols.responses.retrieval import Responses
from mochi_server.protocols.responses.tools import Functions, HostedTool, ResponseTool, flattened
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
from mochi_server.sessions.session import ChatSession, ends_turn
from mochi_server.sessions.types import Message, Role
from mochi_server.util.validation import Items
from mochi_server.web.requests import Protocol
from mochi_server.web.routes import STORAGE_ERRORS, BodyReleasingRoute, responses


class InputText(Body):
    """Part of a message or of a tool result that contains text."""

    type: Literal["input_text", "output_text", "text"]
    text: Text


class InputImage(Body):
    """An image as a data URL, for models with `vision`."""

    type: Literal["input_image"]
    image_url: schemas.DataUrl


Part = InputText | schemas.RefusalPart | InputImage


class InputMessage(Body):
    """A message from the user or the model, or instructions for the model."""

    type: Literal["message"] | None = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: schemas.TextOr[Items[Annotated[Part, Field(discriminator="type")]]]

    @model_validator(mode="after")
    def _has_parts_of_its_role(self) -> "InputMessage":
        allowed = {"user": InputImage, "assistant": schemas.RefusalPart}.get(self.role, InputText)
        for part in self.content if not isinstance(self.content, str) else ():
            if not isinstance(part, InputText | allowed):
                raise ValueError(
                    f"a message of the role `{self.role}` must not contain `{part.type}`"
                )
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
    output: schemas.TextOr[Items[Annotated[InputText | InputImage, Field(discriminator="type")]]]


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


_LOGPROBS = "message.output_text.logprobs"
_OtherLimit = Annotated[
    Any, schemas.allow(reason="use `max_output_tokens`"), Field(description="Not supported.")
]


def _without_logprobs(include: list[str] | None) -> list[str] | None:
    if include and _LOGPROBS in include:
        raise ValueError(f"`{_LOGPROBS}` is not supported; leave it out")
    return include


class NamedResponseFunction(schemas.NamedFunction):
    """The function that the model should call.

    The server does not offer any other function to the model.
    """

    type: Literal["function"]


_Choice = schemas.WordOr[
    Annotated[NamedResponseFunction | schemas.AllowedFunctions, Field(discriminator="type")]
]


class TextOptions(Body):
    """Options for the text of the answer."""

    format: (
        Annotated[schemas.PlainFormat | schemas.SchemaText, Field(discriminator="type")] | None
    ) = None


class ResponseRequest(
    schemas.AnswerRequest,
    json_schema_extra={"examples": [{"model": "qwen3:14b", "input": "Hello!"}]},
):
    """Input to answer. A null field counts as absent. Unknown fields are ignored."""

    input: schemas.TextOr[Annotated[Items[InputItem], Field(min_length=1)]] = Field(
        description="A message, or items."
    )
    instructions: Text | None = Field(None, description="System message of this request.")
    previous_response_id: str | None = Field(
        None,
        description="Response to continue. In a session, the latest one; else one of the last "
        "hour.",
    )
    store: bool | None = Field(
        None, description="If `false`, later requests cannot refer to the output items."
    )
    tools: Items[ResponseTool] | None = Field(
        None, description="Functions that the client runs, and namespaces."
    )
    tool_choice: _Choice | None = Field(None, description=schemas.TOOL_CHOICE)
    parallel_tool_calls: bool | None = Field(None, description=schemas.PARALLEL)
    text: TextOptions | None = Field(
        None, description="`format`: text, any JSON object, or JSON that fits a schema."
    )
    max_output_tokens: schemas.TokenLimit | None = Field(
        None, description="Maximum tokens of the answer, with reasoning."
    )
    include: Annotated[Items[str] | None, AfterValidator(_without_logprobs)] = Field(
        None, description="No effect."
    )
    max_tokens: _OtherLimit = None
    max_completion_tokens: _OtherLimit = None
    logprobs: Annotated[bool | None, schemas.allow(False)] = Field(
        None, description="Only `false` is supported."
    )
    top_logprobs: Annotated[int | None, schemas.allow(0)] = Field(
        None, description="Only 0 is supported."
    )
    response_format: Annotated[Any, schemas.allow(reason="use `text.format`")] = Field(
        None, description="Not supported."
    )
    background: bool | None = Field(
        None, description="Return the response at once. Get or cancel it by its ID later."
    )
    conversation: schemas.Unsupported = Field(None, description="Not supported. Use a session.")
    prompt: schemas.Unsupported = None
    max_tool_calls: schemas.Unsupported = None

    def echo(self) -> dict[str, Any]:
        """Return the fields of the request that the response repeats."""
        unset = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        repeated = {
            *(
                "model",
                "instructions",
                "previous_response_id",
                "tools",
                "tool_choice",
                "parallel_tool_calls",
            ),
            *("temperature", "top_p", "max_output_tokens"),
        }
        fields = self.model_dump(include=repeated, by_alias=True)
        fields |= {name: value for name, value in unset.items() if fields[name] is None}
        text_format = self.text and self.text.format
        return fields | {
            "metadata": self.metadata.model_dump(exclude_none=True) if self.metadata else {},
            "text": {
                "format": text_format.model_dump(by_alias=True) if text_format else {"type": "text"}
            },
            "reasoning": {
                "effort": self.reasoning.effort if self.reasoning else None,
                "summary": None,
            },
        }


class InputTokensDetails(BaseModel):
    """Cached tokens in the input.

    ``cached_tokens`` is 0 if Ollama reports none; ``cache_write_tokens`` is always 0.
    """

    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(BaseModel):
    """Number of reasoning tokens in the output.

    It is always 0, because Ollama does not count them separately.
    """

    reasoning_tokens: int


class ResponseUsage(BaseModel):
    """Ollama's token counts, summed over all requests of the turn."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ModelResponse(BaseModel):
    """A response.

    ``output`` has `reasoning`, `message` and `function_call`. Fields of the request are repeated.
    """

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
    error: dict[str, Any] | None
    incomplete_details: dict[str, Any] | None
    model: str
    output: list[dict[str, Any]]
    usage: ResponseUsage | None
    store: bool
    mochi: schemas.MochiExtension | None = None


def _check_previous(previous: str | None, session: ChatSession) -> None:
    """Raise ``ValidationFailed`` unless ``previous`` is None or the ID of the session's latest
    response.

    A turn without a complete answer does not count, so that a client can repeat its request after a
    failure.
    """
    if previous is None:
        return
    match = re.fullmatch(rf"resp_{session.session_id}_([0-9]{{1,9}})(_.*)?", previous)
    if (
        match is None
        or int(match[1]) > len(session.history)
        or not _is_latest(session, int(match[1]))
    ):
        problem = (
            f"{previous!r} is not the latest response of the session {session.session_id!r}; "
            "send the ID of that"
        )
        raise ValidationFailed.at("previous_response_id", problem)


def _is_latest(session: ChatSession, start: int) -> bool:
    """Return whether no turn after the one that begins at index ``start`` has a complete answer."""
    is_answered = is_later = False
    client_tool_calls: set[str] = set()
    for message in session.history[start:]:
        if message["role"] == "assistant":
            if is_later and ends_turn(message):
                return False
            is_answered = True
            client_tool_calls.update(message.get("client_tool_calls") or ())
        elif is_answered and (
            message["role"] == "user" or message.get("tool_call_id") in client_tool_calls
        ):
            is_later = True
    return True


def _conversation(
    known: Responses, request: ResponseRequest, *, is_session: bool
) -> list[InputItem]:
    """Return the items before a request and those of the request.

    Raises ``ValidationFailed`` for an unknown ID.
    """
    sent = (
        [InputMessage(role="user", content=request.input)]
        if isinstance(request.input, str)
        else request.input
    )
    resolved = [
        _resolve(known, item, index, is_session=is_session) for index, item in enumerate(sent)
    ]
    if request.previous_response_id is None or is_session:
        return resolved
    if (earlier := known.conversations.get(request.previous_response_id)) is None:
        problem = (
            "is not in the server's memory; name a session in X-Mochi-Session, or send the whole "
            "conversation"
        )
        raise ValidationFailed.at(
            "previous_response_id", f"{request.previous_response_id!r} {problem}"
        )
    return [*ITEMS.validate_json(earlier), *resolved]


def _resolve(known: Responses, item: InputItem, index: int, *, is_session: bool) -> InputItem:
    """Return the item that a reference names.

    Some clients send references by default, as the AI SDK does.
    """
    if not isinstance(item, ItemReference):
        return item
    if (referenced := known.items.get(item.id)) is not None:
        found: InputItem = ITEM.validate_json(referenced)
        return found
    if is_session:  # the session has the item, which is from the model
        return item
    problem = (
        "is not in the server's memory; send the item itself, or set `store` to false in the client"
    )
    raise ValidationFailed.at(f"input[{index}].id", f"the item {item.id!r} {problem}")


async def parse(
    request: ResponseRequest,
    headers: MochiHeaders,
    items: Sequence[InputItem],
    functions: Functions,
) -> tuple[TurnInput, SentMessages]:
    """Return the options of a request and the messages of the conversation ``items``.

    Raises ``ValidationFailed``.
    """
    if request.background and request.store is False:
        raise ValidationFailed.at(
            "store", "a response in the background must be stored; leave out this field"
        )
    text_format = request.text.format if request.text else None
    tools = [
        tool.model_copy(update={"name": name}).to_ollama() for name, (tool, _) in functions.items()
    ]
    turn = request.turn(
        headers,
        tool_selection(headers, tools, request.tool_choice, parallel=request.parallel_tool_calls),
        limit=request.max_output_tokens,
        answer_format=text_format.to_ollama() if text_format else None,
    )
    names = {(namespace, tool.name): name for name, (tool, namespace) in functions.items()}
    sent = await _messages(request.instructions, items, names)
    if request.background:  # in a session, clients of the native API can approve its tool calls
        turn = replace(
            turn, on_disconnect="continue", interactive=request.session_id(headers) is not None
        )
    return turn, replace(sent, check=partial(_check_previous, request.previous_response_id))


async def _messages(
    instructions: str | None,
    items: Sequence[InputItem],
    names: Mapping[tuple[str | None, str], str],
) -> SentMessages:
    reader = _ItemReader([new_message("system", instructions)] if instructions else [], names)
    for item in items:
        reader.add(item)
    add_tool_names(reader.messages)
    images = {
        index: await decode_images(urls, ("messages", index))
        for index, urls in reader.image_urls.items()
    }
    return SentMessages(reader.messages, images)


@dataclass
class _ItemReader:
    """Converter of input items to messages.

    Consecutive items from the model become one assistant message.
    """

    messages: list[Message]
    tool_names: Mapping[
        tuple[str | None, str], str
    ]  # names that the model sees, by namespace and name
    image_urls: dict[int, dict[Location, str]] = field(default_factory=dict)

    def add(self, item: InputItem) -> None:
        match item:
            case InputMessage(role="assistant"):
                self.answer("content")["content"] = joined_text(item.content)
            case InputMessage():
                role: Role = "user" if item.role == "user" else "system"
                self._append(new_message(role, joined_text(item.content)), item.content)
            case FunctionCall():
                calls = self.answer().setdefault("tool_calls", [])
                name = self.tool_names.get((item.namespace, item.name), item.name)
                calls.append(tool_call(len(calls), item.call_id, name, item.arguments))
            case FunctionCallOutput():
                result: Message = {
                    **new_message("tool", joined_text(item.output)),
                    "tool_call_id": item.call_id,
                }
                self._append(result, item.output)
            case ReasoningItem():
                message = self.answer("content", "tool_calls", "thinking")
                message["thinking"] = "\n".join(part.text for part in item.content or item.summary)
            case ItemReference():
                self.answer()

    def answer(self, *unset: str) -> Message:
        """Return the last message if it is from the model and its fields ``unset`` are empty, else
        append one.
        """
        last = self.messages[-1] if self.messages else None
        if last is None or last["role"] != "assistant" or any(last.get(name) for name in unset):
            self.messages.append(new_message("assistant", ""))
        return self.messages[-1]

    def _append(self, message: Message, content: str | Sequence[Part]) -> None:
        index, parts = len(self.messages), enumerate(() if isinstance(content, str) else content)
        images = [
            (number, part.image_url) for number, part in parts if isinstance(part, InputImage)
        ]
        if images:
            self.image_urls[index] = {
                ("messages", index, "content", number): url for number, url in images
            }
        self.messages.append(message)


router = APIRouter(tags=["OpenAI"], route_class=BodyReleasingRoute)
PROTOCOL = Protocol(
    OPENAI_PREFIX,
    router,
    openai_stream_error,
    OPENAI_ERRORS,
    resumes=False,
    turn_paths=("/responses",),
)

_RESPONSES: WeakKeyDictionary[Services, Responses] = WeakKeyDictionary()  # of each running app


@router.post(
    "/responses",
    response_model=ModelResponse,
    responses=answer_responses("The response, as JSON or as events.", OPENAI_ERRORS),
)
async def create_response(
    request: Request, body: ResponseRequest, services: ServicesDep, headers: HeadersParam
) -> Response:
    """Answer the items of a conversation with one JSON response or a stream of events."""
    known, session_id = _RESPONSES.setdefault(services, Responses()), body.session_id(headers)
    items = _conversation(known, body, is_session=session_id is not None)
    functions = flattened(body.tools or ())
    names = {"messages": "input", "response_format": "text.format"}
    run = await start(request, session_id, parse(body, headers, items, functions), **names)
    # In a session, the ID contains the index of the first message of the turn, for
    # `_check_previous`.
    new_id = (
        f"resp_{token_hex(12)}"
        if session_id is None
        else f"resp_{session_id}_{run.position}_{run.run_id}"
    )
    is_background = bool(body.background)
    fields = body.echo() | {"id": new_id, "store": session_id is not None or is_background}
    keep = partial(known.put, conversation=items if session_id is None else None)
    notices = omitted_tools(
        "OpenAI", (tool.type for tool in body.tools or () if isinstance(tool, HostedTool))
    )
    called = {
        name: {"name": tool.name, "namespace": space}
        for name, (tool, space) in functions.items()
        if space
    }
    on_end = keep if body.store is not False else lambda _: None
    build = partial(ResponseEncoder, run, on_end=on_end, notices=notices, called=called)
    encoder = build(fields | {"background": is_background})
    if is_background:
        started = known.run_in_background(encoder)
        if not body.stream:
            return JSONResponse(started)
        encoder = build(started)
    return await respond(request, encoder, stream=body.stream)


_FOUND = responses(ResponseNotFound, ValidationFailed, *STORAGE_ERRORS, form=OPENAI_ERRORS)


@router.get("/responses/{response_id}", response_model=ModelResponse, responses=_FOUND)
async def get_response(
    response_id: str,
    services: ServicesDep,
    stream: Annotated[
        bool | None, schemas.allow(False), Query(description="Only `false` is supported.")
    ] = None,
) -> Response:
    """Get a response: that of a session, or for an hour one without a session."""
    del stream
    return JSONResponse(
        await _RESPONSES.setdefault(services, Responses()).get(services, response_id)
    )


@router.post("/responses/{response_id}/cancel", response_model=ModelResponse, responses=_FOUND)
async def cancel_response(response_id: str, services: ServicesDep) -> Response:
    """Cancel a response in the background, and keep its text. If it has ended, return it."""
    known = _RESPONSES.setdefault(services, Responses())
    if not (await known.get(services, response_id))[
        "background"
    ]:  # raises ResponseNotFound for other owners, too
        raise ValidationFailed.at(
            "response_id", "only a response with `background` can be cancelled"
        )
    await known.cancel(services, response_id)
    return JSONResponse(await known.get(services, response_id))
