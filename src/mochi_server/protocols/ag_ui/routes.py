"""Route of AG-UI under `/chat`."""

from fastapi import APIRouter, Request, Response

from mochi_server.constants import API_PREFIX
from mochi_server.dependencies import ServicesDep
from mochi_server.errors import MochiError
from mochi_server.protocols import frontends
from mochi_server.protocols.ag_ui.request import AgUiRequest, parse, parse_decisions
from mochi_server.protocols.frontend_stream import InteractiveResponse
from mochi_server.web.requests import Protocol, until_disconnect
from mochi_server.web.routes import BodyReleasingRoute

router = APIRouter(
    prefix="/chat/{session_id}/ag-ui", tags=["frontends"], route_class=BodyReleasingRoute
)


def _encode_error(error: MochiError) -> bytes:
    from mochi_server.protocols.ag_ui.encoder import encode_error  # noqa: PLC0415 - its package takes time to import

    return encode_error(error)


PROTOCOL = Protocol(API_PREFIX, router, _encode_error)


@router.post("", response_class=Response, responses=frontends.stream_responses("Events of AG-UI."))
async def chat_with_ag_ui(
    session_id: str, request: Request, services: ServicesDep, body: AgUiRequest
) -> Response:
    """Answer a request of AG-UI's `HttpAgent`: a message, results of tool calls, or answers to
    interrupts.
    """
    run_input = body.to_input()
    decisions = parse_decisions(run_input)
    if decisions:
        starting = frontends.decide(services, session_id, decisions)
    else:
        turn, sent = await parse(run_input)
        starting = frontends.start(services, session_id, turn, sent)
    started = await until_disconnect(request, starting)
    from mochi_server.protocols.ag_ui.encoder import AgUiEncoder  # noqa: PLC0415 - its package takes time to import

    timeout = request.app.state.settings.tool_confirmation_timeout_seconds
    encoder = AgUiEncoder(started, run_input, timeout)
    return InteractiveResponse(encoder, services.ping_seconds)
