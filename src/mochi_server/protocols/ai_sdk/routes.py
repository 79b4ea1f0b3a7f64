"""Routes of the AI SDK under `/chat`."""

from fastapi import APIRouter, Request, Response

from mochi_server import errors
from mochi_server.constants import API_PREFIX
from mochi_server.dependencies import ServicesDep
from mochi_server.protocols import frontends
from mochi_server.protocols.ai_sdk.encoder import AiSdkEncoder, encode_error
from mochi_server.protocols.ai_sdk.request import AiSdkRequest, parse, parse_decisions
from mochi_server.protocols.frontend_stream import InteractiveResponse
from mochi_server.web.requests import Protocol, until_disconnect
from mochi_server.web.routes import BodyReleasingRoute

router = APIRouter(
    prefix="/chat/{session_id}/ai-sdk", tags=["frontends"], route_class=BodyReleasingRoute
)
_ABOUT = "Chat with the client libraries of the AI SDK (`useChat`) and of AG-UI."
PROTOCOL = Protocol(API_PREFIX, router, encode_error, description=_ABOUT)
_STREAM = "The UI message stream of the AI SDK."
_RESUMED = {204: {"description": "No turn is running."}} | frontends.stream_responses(
    _STREAM, errors.SessionNotFound, errors.ServerLost
)


@router.post("", response_class=Response, responses=frontends.stream_responses(_STREAM))
async def chat_with_ai_sdk(
    session_id: str, request: Request, services: ServicesDep, body: AiSdkRequest
) -> Response:
    """Answer a request of the AI SDK's `useChat`, which contains a message or responses to approval
    requests.
    """
    decisions = parse_decisions(body)
    if decisions:
        starting = frontends.decide(services, session_id, decisions)
    else:
        turn, sent = await parse(body)
        starting = frontends.start(services, session_id, turn, sent, stops_waiting_turn=True)
    encoder = AiSdkEncoder(await until_disconnect(request, starting))
    return InteractiveResponse(encoder, services.ping_seconds)


@router.get("/{chat_id}/stream", response_class=Response, responses=_RESUMED)
async def resume_ai_sdk(session_id: str, chat_id: str, services: ServicesDep) -> Response:  # noqa: ARG001 - in the path
    """Resume the stream of the running turn from its beginning.

    The server ignores `chat_id`, the AI SDK's chat ID.
    """
    started = await frontends.find_running(services, session_id)
    if started is None:
        return Response(status_code=204)
    return InteractiveResponse(AiSdkEncoder(started), services.ping_seconds)
