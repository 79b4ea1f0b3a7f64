"""Anthropic's Messages API: routes under `/v1/messages`."""

from fastapi import APIRouter, Request, Response

from mochi_server import errors
from mochi_server.dependencies import ServicesDep
from mochi_server.protocols.anthropic.encoder import ANTHROPIC_ERRORS, MessageEncoder, encode_error
from mochi_server.protocols.anthropic.request import (
    CUSTOM,
    CountRequest,
    MessageRequest,
    MessageResponse,
    parse,
)
from mochi_server.protocols.completions import answer_responses, estimate, start
from mochi_server.protocols.encoder import respond
from mochi_server.protocols.parts import Notice
from mochi_server.protocols.schemas import HeadersParam
from mochi_server.web.exception_handlers import MODEL_ERRORS, responses
from mochi_server.web.protocol import Protocol
from mochi_server.web.routes import BodyReleasingRoute

router = APIRouter(tags=["Anthropic"], route_class=BodyReleasingRoute)
PROTOCOL = Protocol(
    "/v1/messages",
    router,
    encode_error,
    ANTHROPIC_ERRORS,
    resumes=False,
    turn_paths=("",),
    key_header="x-api-key",
    request_id_header="request-id",
    description="Routes for clients of Anthropic's API. Errors have Anthropic's format.",
)

_EVENTS = "`event` is the type of the event, and `data` is the event as JSON."
_LEFT_OUT = "Only Anthropic's own API has the tool {!r}. The request omits this tool."


@router.post(
    "",
    response_model=MessageResponse,
    responses=answer_responses("The message, as JSON or as events.", _EVENTS, ANTHROPIC_ERRORS),
)
async def create_message(request: Request, body: MessageRequest, headers: HeadersParam) -> Response:
    """Answer a conversation with one JSON response or a stream. If the request names no session, nothing is stored."""
    run = await start(request, headers.session, parse(body, headers), response_format="output_config.format")
    texts = [_LEFT_OUT.format(tool.name) for tool in body.tools or () if tool.type not in CUSTOM]
    notices = [Notice("warning", {"code": "TOOL_LEFT_OUT", "message": text}) for text in texts]
    return await respond(request, MessageEncoder(run, body.model, notices), stream=body.stream)


@router.post("/count_tokens", responses=responses(errors.ValidationFailed, *MODEL_ERRORS, form=ANTHROPIC_ERRORS))
async def count_message_tokens(body: CountRequest, services: ServicesDep, headers: HeadersParam) -> dict[str, int]:
    """Estimate the tokens of a conversation. The estimate improves with each answer of the model."""
    return {"input_tokens": await estimate(services, *await parse(body, headers))}
