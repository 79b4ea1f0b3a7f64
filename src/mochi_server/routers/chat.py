"""Routes under `/chat`."""

from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import JSONResponse

from mochi_server import errors
from mochi_server.dependencies import ServicesDep
from mochi_server.routers.sessions import get_status
from mochi_server.schemas.chat import (
    CHAT_EVENTS,
    AfterQuery,
    ChatRequest,
    ChatResponse,
    KeyHeader,
    LastEventIdHeader,
    RunStatus,
)
from mochi_server.schemas.tools import PendingConfirmations, ToolDecided, ToolDecision
from mochi_server.sessions.turn import Decision
from mochi_server.web.requests import until_disconnect
from mochi_server.web.routes import OLLAMA_ERRORS, STORAGE_ERRORS, Responses, StrictRoute, responses
from mochi_server.web.sse import (
    RunResponse,
    WaitingResponse,
    attach_response,
    parse_position,
    streams,
)


class _ChatRoute(StrictRoute):
    """Route of a session. The path of OpenAI's chat completions is no session."""

    def check(self, request: Request) -> None:
        if request.path_params["session_id"] == "completions":
            raise HTTPException(404)  # the error names the route of OpenAI's API
        super().check(request)


router = APIRouter(prefix="/chat/{session_id}", tags=["chat"], route_class=_ChatRoute)

_STREAM = streams(
    CHAT_EVENTS,
    'id: 1f0c5e7a9b:1\nevent: content_delta\ndata: {"content":"Paris","role":"assistant"}\n\n'
    'id: 1f0c5e7a9b:2\nevent: done\ndata: {"session_id":"a1b2c3d4e5"}\n\n',
)
_NO_EVENTS: Responses = {204: {"description": "There are no events after this position."}}
_SESSION_ERRORS = (errors.SessionNotFound, errors.SessionTooNew, errors.ServerLost)
_DECISION_ERRORS = (
    errors.SessionNotFound,
    errors.ConfirmationNotFound,
    errors.ConfirmationResolved,
    errors.ConfirmationTimeout,
    errors.ConfirmationStale,
)
_TURN_ERRORS = (
    errors.IdempotencyKeyReused,
    errors.SessionNotFound,
    errors.ModelNotFound,
    errors.SessionBusy,
    errors.EmptyHistory,
    errors.ValidationFailed,
    errors.RateLimited,
    errors.ShuttingDown,
    errors.ServerLost,
)
_IN_BACKGROUND: Responses = {
    202: {"model": RunStatus, "description": "The run of a turn in the background."}
}


@router.post(
    "",
    response_model=ChatResponse,
    responses=_IN_BACKGROUND
    | responses(
        *_TURN_ERRORS, *OLLAMA_ERRORS, errors.ContextOverflow, errors.FormatNotMet, *STORAGE_ERRORS
    ),
)
async def chat(
    session_id: str,
    request: Request,
    services: ServicesDep,
    body: ChatRequest | None = None,
    key: KeyHeader = None,
) -> ChatResponse | Response:
    """Send a message and get the complete answer, or the run if the turn runs in the background."""
    body = body or ChatRequest.model_validate({})
    turn_input = await body.to_input(key, streaming=False)
    starting = services.turns.start(services.conversations.stored(session_id), turn_input)
    run = await until_disconnect(request, starting)
    if body.background:
        return JSONResponse(RunStatus.of(run).model_dump(exclude_defaults=True), status_code=202)
    with run.subscribed():
        result = await until_disconnect(request, run.collect())
        # The turn may have continued as another run.
        return ChatResponse.of(run.latest, result)


@router.post(
    "/stream",
    response_class=Response,
    responses=_STREAM | responses(*_TURN_ERRORS, errors.OllamaBusy, *STORAGE_ERRORS),
)
async def stream_chat(
    session_id: str,
    request: Request,
    services: ServicesDep,
    body: ChatRequest | None = None,
    key: KeyHeader = None,
) -> Response:
    """Send a message and get the answer as server-sent events."""
    body = body or ChatRequest.model_validate({})
    turn_input = await body.to_input(key, streaming=True)
    starting = services.turns.start(services.conversations.stored(session_id), turn_input)
    if turn_input.if_busy == "wait":
        return WaitingResponse(session_id, starting, ping_seconds=services.ping_seconds)
    run = await until_disconnect(request, starting)
    return RunResponse(run, ping_seconds=services.ping_seconds)


@router.get(
    "/stream",
    response_class=Response,
    responses=_STREAM
    | _NO_EVENTS
    | responses(errors.SessionNotFound, errors.ValidationFailed, errors.ServerLost),
)
async def resume_stream(
    session_id: str,
    services: ServicesDep,
    after: AfterQuery = None,
    last_event_id: LastEventIdHeader = None,
) -> Response:
    """Resume a stream: get the events of the running or most recent turn, from the beginning or
    after an event.

    If the run of the event is unknown, get the most recent turn from its beginning, if the server
    still has its events.
    """
    # An `EventSource` that reconnects updates only the header, so the header takes precedence.
    run_id, number = parse_position(last_event_id or after or "0")
    run = await services.turns.find(session_id, run_id)
    return attach_response(run, run_id, number, ping_seconds=services.ping_seconds)


@router.post(
    "/stop",
    response_model_exclude_defaults=True,
    responses=responses(*_SESSION_ERRORS, errors.SessionBusy, *STORAGE_ERRORS),
)
async def stop_chat(session_id: str, services: ServicesDep) -> RunStatus:
    """Stop the turn and store its partial answer, or deny its tool call that waits for approval.

    If the turn has ended, do nothing.
    """
    return RunStatus.of(await services.turns.stop(session_id))


@router.get("/run", response_model_exclude_defaults=True, responses=responses(*_SESSION_ERRORS))
async def get_run(session_id: str, services: ServicesDep) -> RunStatus:
    """Get the state of the running or most recent turn, also after a restart of the server."""
    return RunStatus.of(await services.turns.find(session_id))


@router.get(
    "/confirmations", response_model=PendingConfirmations, responses=responses(*_SESSION_ERRORS)
)
async def list_confirmations(session_id: str, services: ServicesDep) -> dict[str, Any]:
    """List the tool calls of a session that wait for approval."""
    return {"confirmations": await services.turns.confirmations(session_id)}


_CONTINUES_LATER: Responses = {
    202: {
        "model": ToolDecided,
        "description": "The decision is stored, and the turn continues when Ollama responds again, "
        "or at the next server if this one is shutting down.",
    }
}


@router.post(
    "/confirm-tool",
    responses=_CONTINUES_LATER
    | responses(
        *_DECISION_ERRORS,
        errors.SessionBusy,
        errors.ValidationFailed,
        errors.RateLimited,
        errors.ServerLost,
        *STORAGE_ERRORS,
    ),
)
async def confirm_tool(
    session_id: str, body: ToolDecision, services: ServicesDep, response: Response
) -> ToolDecided:
    """Approve or deny a pending tool call.

    After a restart of the server, a decision continues the turn.
    """
    decision = Decision(body.approved, body.arguments, body.reason, body.remember or "once")
    run, call = await services.turns.decide(session_id, body.confirmation_id, decision)
    continues_later = run.task is None and not run.has_ended
    if continues_later:
        response.status_code = 202
    return ToolDecided(
        confirmation_id=body.confirmation_id,
        approved=body.approved,
        tool_name=call.name,
        arguments=call.arguments if body.arguments is None else body.arguments,
    )


# Clients look for it beside the other chat routes.
router.add_api_route("/status", get_status, include_in_schema=False)
