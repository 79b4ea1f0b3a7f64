"""AG-UI: route under `/chat`, its requests, and the conversion of requests to turns."""

from functools import cache, reduce
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError

from mochi_server.chat.turn_input import ToolSelection, TurnInput
from mochi_server.constants import API_PREFIX
from mochi_server.dependencies import ServicesDep
from mochi_server.errors import MochiError, ValidationFailed
from mochi_server.protocols import frontends
from mochi_server.protocols.conversation import SentMessages, check_text, decode_images, new_message
from mochi_server.protocols.schemas import FrontendOptions, FunctionTool, joined_text
from mochi_server.schemas.common import Body
from mochi_server.sessions.images import Location
from mochi_server.sessions.turn import Decision
from mochi_server.sessions.types import FiniteObject, Message, Role
from mochi_server.util.validation import Items
from mochi_server.web.requests import Protocol, until_disconnect
from mochi_server.web.routes import BodyReleasingRoute

if TYPE_CHECKING:  # the package takes 0.15 s to import, so only requests of AG-UI import it
    from ag_ui.core import RunAgentInput

_Model = TypeVar("_Model", bound=BaseModel)
_EXAMPLE = {
    "threadId": "t",
    "runId": "r",
    "messages": [{"id": "m", "role": "user", "content": "Hello!"}],
}


class AgUiRequest(Body, extra="allow", json_schema_extra={"examples": [_EXAMPLE]}):
    """`RunAgentInput` of AG-UI.

    Only the messages after the last answer are new. Unknown fields are ignored.

    `forwardedProps` can contain `think`, `options`, `format`, `keep_alive` and `on_disconnect`.
    """

    thread_id: str = Field(
        alias="threadId", description="ID of the client's conversation. The events repeat it."
    )
    run_id: str = Field(alias="runId", description="ID of the client's run. The events repeat it.")
    messages: Items[dict[str, Any]] = Field(
        description="Messages of the conversation, oldest first."
    )
    tools: Items[dict[str, Any]] | None = Field(None, description="Tools that the client runs.")
    context: Items[dict[str, Any]] | None = Field(
        None, description="Texts that are added to the instructions."
    )
    resume: Items[dict[str, Any]] | None = Field(None, description="Decisions for tool calls.")
    forwarded_props: Any = Field(None, alias="forwardedProps", description="Options of the turn.")

    def to_input(self) -> "RunAgentInput":
        """Return the request as AG-UI's ``RunAgentInput``.

        Raise ``RequestValidationError`` if a field is invalid.
        """
        return validated(_input_model(), self.model_dump(by_alias=True, exclude_unset=True))


@cache
def _input_model() -> "type[RunAgentInput]":
    """Return AG-UI's ``RunAgentInput`` with lists that report only their first invalid item."""
    from ag_ui.core import Context, Message, ResumeEntry, RunAgentInput, Tool  # noqa: PLC0415 - see above

    class Input(RunAgentInput):
        messages: Items[Message]
        tools: Items[Tool] | None = None
        context: Items[Context] | None = None
        resume: Items[ResumeEntry] | None = None

    return Input


def validated(model: type[_Model], value: Any, *location: str | int) -> _Model:
    """Validate the part of the request body at ``location``.

    Raise ``RequestValidationError`` if it is invalid.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = [
            {**problem, "loc": ("body", *location, *problem["loc"])} for problem in error.errors()
        ]
        body: Any = reduce(lambda inner, step: {step: inner}, reversed(location), value)
        raise RequestValidationError(problems, body=body) from error


class _DecisionPayload(Body):
    approved: bool
    arguments: FiniteObject | None = Field(None, alias="editedArgs")
    reason: str | None = None
    remember: Literal["once", "session"] = "once"


def parse_decisions(run: "RunAgentInput") -> dict[str, Decision]:
    """Return the decisions for tool calls by confirmation ID, if the request contains any."""
    decisions = {}
    for number, entry in enumerate(run.resume or ()):
        payload = {"approved": entry.payload} if isinstance(entry.payload, bool) else entry.payload
        if entry.status == "cancelled":
            payload = {"approved": False}
        sent = payload if isinstance(payload, dict) else {}
        decision = validated(_DecisionPayload, sent, "resume", number, "payload")
        decisions[entry.interrupt_id] = Decision(**dict(decision))
    return decisions


async def parse(run: "RunAgentInput") -> tuple[TurnInput, SentMessages]:
    """Return the options of a request and its messages.

    Raises ``ValidationFailed`` for an invalid message.
    """
    options = FrontendOptions()
    if isinstance(run.forwarded_props, dict):
        options = validated(FrontendOptions, run.forwarded_props, "forwardedProps")
    positions = [n for n, m in enumerate(run.messages) if m.role not in ("activity", "reasoning")]
    asked = [n for n in positions if run.messages[n].role not in ("system", "developer")]
    last = asked[-1] if asked else 0
    if not asked or run.messages[last].role not in ("user", "tool"):
        problem = "the last message must be a user message or the result of a pending tool call"
        raise ValidationFailed.at(("messages", last), problem)
    messages = [_stored(run.messages[position]) for position in positions]
    images, index = {}, positions.index(last)
    if messages[index]["role"] == "user":
        urls = _image_urls(run.messages[last].content, last)
        images = {index: await decode_images(urls, ("messages", last))}
        check_text(messages[index]["content"], last)
    tools = [
        validated(FunctionTool, dict(tool), "tools", number)
        for number, tool in enumerate(run.tools or ())
    ]
    turn = TurnInput(
        generation=options.generation,
        tools=ToolSelection(client_tools=[tool.to_ollama() for tool in tools]),
        instructions="\n\n".join(f"{each.description}: {each.value}" for each in run.context or ())
        or None,
        on_disconnect=options.on_disconnect,
    )
    # An error of the conversation has the position of the last message.
    return turn, SentMessages(messages, images, "compare_all", [last] * len(messages))


def _stored(message: Any) -> Message:
    if message.role == "tool":
        texts = dict.fromkeys(filter(None, (joined_text(message.content), message.error)))
        result: Message = {
            **new_message("tool", "\n".join(texts)),
            "tool_call_id": message.tool_call_id,
        }
        return {**result, "success": False} if message.error else result
    role: Role = "system" if message.role == "developer" else message.role
    return new_message(role, joined_text(message.content))


def _image_urls(content: Any, position: int) -> dict[Location, str]:
    urls: dict[Location, str] = {}
    for number, part in enumerate(content if not isinstance(content, str) else ()):
        if part.type == "text":
            continue
        location, source = ("messages", position, "content", number), part.source
        url = source.value if source.type in ("data", "url") else ""
        if (
            part.type != "image"
            or (source.type == "url" and not url.startswith("data:image/"))
            or not url
        ):
            problem = (
                "must be an image, as base64 or as a data URL; this server accepts no other files"
            )
            raise ValidationFailed.at(location, problem)
        urls[location] = url
    return urls


router = APIRouter(
    prefix="/chat/{session_id}/ag-ui", tags=["frontends"], route_class=BodyReleasingRoute
)


def _encode_error(error: MochiError) -> bytes:
    from mochi_server.protocols.ag_ui.encoder import encode_error  # noqa: PLC0415 - its package takes time to import

    return encode_error(error)


PROTOCOL = Protocol(API_PREFIX, router, _encode_error)


@router.post("", response_class=Response, responses=frontends.stream("Events of AG-UI."))
async def chat_with_ag_ui(
    session_id: str, request: Request, services: ServicesDep, body: AgUiRequest
) -> Response:
    """Answer a request of AG-UI's `HttpAgent`: a message, results of tool calls, or answers to
    interrupts.
    """
    run_input = body.to_input()
    if decisions := parse_decisions(run_input):
        starting = frontends.decide(services, session_id, decisions)
    else:
        starting = frontends.start(services, session_id, *await parse(run_input))
    started = await until_disconnect(request, starting)
    from mochi_server.protocols.ag_ui.encoder import AgUiEncoder  # noqa: PLC0415 - its package takes time to import

    timeout = request.app.state.settings.tool_confirmation_timeout_seconds
    return frontends.InteractiveResponse(
        AgUiEncoder(started, run_input, timeout), services.ping_seconds
    )
