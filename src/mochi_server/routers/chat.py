"""/chat"""

from typing import Any

from fastapi import APIRouter, Request, Response

from mochi_server.chat.collect import collect
from mochi_server.dependencies import ConfirmationsDep, RunsDep, StoreDep
from mochi_server.errors import (
    ConfirmationNotFound,
    ConfirmationResolved,
    ConfirmationTimeout,
    EmptyHistory,
    ModelNotFound,
    OllamaError,
    OllamaUnreachable,
    SessionBusy,
    SessionNotFound,
    ShuttingDown,
    StorageFailed,
    ValidationFailed,
)
from mochi_server.models.chat import ChatRequest, ChatResponse, RunStatus
from mochi_server.models.tools import PendingConfirmations, ToolDecided, ToolDecision
from mochi_server.routers.connection import until_disconnect
from mochi_server.routers.errors import responses
from mochi_server.routers.sse import RunResponse

router = APIRouter(prefix="/chat/{session_id}", tags=["chat"])

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events, `done` the last.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}
_REFUSES = (SessionNotFound, ModelNotFound, SessionBusy, EmptyHistory, ValidationFailed, ShuttingDown)


@router.post("", responses=responses(*_REFUSES, OllamaUnreachable, OllamaError, StorageFailed))
async def chat(session_id: str, request: Request, runs: RunsDep, body: ChatRequest | None = None) -> ChatResponse:
    """Send a message and get the whole answer."""
    turn = (body or ChatRequest()).turn_request(streaming=False)
    run = await until_disconnect(request, runs.start(session_id, turn))
    with runs.listening(run):
        return ChatResponse.of(await until_disconnect(request, collect(run)))


@router.post("/stream", response_class=Response, responses=_STREAM | responses(*_REFUSES))
async def stream_chat(session_id: str, request: Request, runs: RunsDep, body: ChatRequest | None = None) -> RunResponse:
    """Send a message and get the answer as server-sent events."""
    turn = (body or ChatRequest()).turn_request(streaming=True)
    return RunResponse(runs, await until_disconnect(request, runs.start(session_id, turn)))


@router.post("/stop", responses=responses(SessionNotFound))
async def stop_chat(session_id: str, store: StoreDep, runs: RunsDep) -> RunStatus:
    """Stop the running turn and keep what was said; nothing happens when none is running."""
    run = await runs.stop(session_id)
    if run is None:
        await store.load(session_id)
    return RunStatus.of(run)


@router.get("/run", responses=responses(SessionNotFound))
async def get_run(session_id: str, store: StoreDep, runs: RunsDep) -> RunStatus:
    """Get the running or latest turn."""
    await store.load(session_id)
    return RunStatus.of(runs.latest(session_id))


@router.get("/confirmations", responses=responses(SessionNotFound))
async def list_confirmations(session_id: str, store: StoreDep, confirmations: ConfirmationsDep) -> PendingConfirmations:
    """List the tool calls of a session that wait for approval."""
    await store.load(session_id)
    return PendingConfirmations.of(confirmations.waiting(session_id))


@router.post(
    "/confirm-tool",
    responses=responses(ConfirmationNotFound, ConfirmationResolved, ConfirmationTimeout, ValidationFailed),
)
async def confirm_tool(session_id: str, body: ToolDecision, confirmations: ConfirmationsDep) -> ToolDecided:
    """Approve or deny a pending tool call."""
    return ToolDecided.of(confirmations.resolve(session_id, body.confirmation_id, body.decision()), body)
