"""Routes under `/chat` for frontend libraries: the AI SDK and AG-UI."""

from fastapi import APIRouter, Request, Response

from mochi_server import errors
from mochi_server.dependencies import FrontendsDep
from mochi_server.models.ag_ui import AgUiRequest, to_request
from mochi_server.models.ai_sdk import AiSdkRequest
from mochi_server.protocols.ai_sdk.encoder import AiSdkEncoder
from mochi_server.protocols.streaming import InteractiveResponse
from mochi_server.web.disconnect import until_disconnect
from mochi_server.web.exception_handlers import STORAGE_ERRORS, Responses, responses
from mochi_server.web.routes import BodyReleasingRoute

router = APIRouter(prefix="/chat/{session_id}", tags=["frontends"], route_class=BodyReleasingRoute)


def _stream(description: str) -> Responses:
    return {200: {"description": description, "content": {"text/event-stream": {"schema": {"type": "string"}}}}}


_UI_MESSAGES = _stream("The UI message stream of the AI SDK.")
_NO_RUN: Responses = {204: {"description": "No turn is running."}}
_ERRORS = (
    *(errors.SessionNotFound, errors.ConfirmationNotFound, errors.ModelNotFound, errors.SessionBusy),
    *(errors.ConfirmationInterrupted, errors.ConfirmationResolved, errors.ConfirmationTimeout),
    *(errors.SessionConflict, errors.ValidationFailed, errors.ShuttingDown, errors.ServerLost, *STORAGE_ERRORS),
)


@router.post("/ai-sdk", response_class=Response, responses=_UI_MESSAGES | responses(*_ERRORS))
async def chat_with_ai_sdk(session_id: str, request: Request, frontends: FrontendsDep, body: AiSdkRequest) -> Response:
    """Answer a request of the AI SDK's `useChat`, which contains a message or responses to approval requests."""
    started = frontends.start(session_id, await body.to_request())
    return InteractiveResponse(AiSdkEncoder(await until_disconnect(request, started)))


@router.get(
    "/ai-sdk/{chat_id}/stream",
    response_class=Response,
    responses=_UI_MESSAGES | _NO_RUN | responses(errors.SessionNotFound, errors.ServerLost),
)
async def resume_ai_sdk(session_id: str, chat_id: str, frontends: FrontendsDep) -> Response:  # noqa: ARG001 - in the path
    """Resume the stream of the running turn from its beginning. The server ignores `chat_id`, the AI SDK's chat ID."""
    run = await frontends.running(session_id)
    return Response(status_code=204) if run is None else InteractiveResponse(AiSdkEncoder(run))


@router.post("/ag-ui", response_class=Response, responses=_stream("Events of AG-UI.") | responses(*_ERRORS))
async def chat_with_ag_ui(session_id: str, request: Request, frontends: FrontendsDep, body: AgUiRequest) -> Response:
    """Answer a request of AG-UI's `HttpAgent`: a message, results of tool calls, or answers to interrupts."""
    run_input = body.to_input()
    started = frontends.start(session_id, await to_request(run_input))
    run = await until_disconnect(request, started)
    from mochi_server.protocols.ag_ui.encoder import AgUiEncoder  # noqa: PLC0415 - its package takes time to import

    return InteractiveResponse(AgUiEncoder(run, run_input, frontends.approval_timeout))
