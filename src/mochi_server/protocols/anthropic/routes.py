"""Routes of Anthropic's Messages API under `/v1/messages`."""

from fastapi import APIRouter, Request, Response

from mochi_server import errors
from mochi_server.dependencies import ServicesDep
from mochi_server.protocols.anthropic.encoder import MessageEncoder
from mochi_server.protocols.anthropic.errors import ANTHROPIC_ERRORS, encode_error
from mochi_server.protocols.anthropic.request import (
    CountRequest,
    MessageRequest,
    omitted_names,
    parse,
)
from mochi_server.protocols.anthropic.response import MessageResponse
from mochi_server.protocols.encoded_response import respond
from mochi_server.protocols.headers import HeadersParam
from mochi_server.protocols.parts import omitted_tools
from mochi_server.protocols.turn_start import answer_responses, estimate, renamed_fields, start
from mochi_server.web.requests import Protocol
from mochi_server.web.routes import MODEL_ERRORS, BodyReleasingRoute, responses

router = APIRouter(tags=["Anthropic"], route_class=BodyReleasingRoute)
PROTOCOL = Protocol(
    "/v1/messages",
    router,
    encode_error,
    ANTHROPIC_ERRORS,
    resumes=False,
    turn_paths=("",),
    request_id_header="request-id",
    description="Routes for clients of Anthropic's API. Errors have Anthropic's format.",
)


@router.post(
    "",
    response_model=MessageResponse,
    responses=answer_responses("The message, as JSON or as events.", ANTHROPIC_ERRORS),
)
async def create_message(request: Request, body: MessageRequest, headers: HeadersParam) -> Response:
    """Answer a conversation with one JSON response or a stream.

    If the request names no session, nothing is stored.
    """
    with renamed_fields(response_format="output_config.format"):
        turn, sent = await parse(body, headers)
        run = await start(request, headers.session, turn, sent)
    notices = [*omitted_tools("Anthropic", omitted_names(body)), *sent.notices]
    encoder = MessageEncoder(run, body.model, notices)
    return await respond(request, encoder, stream=body.stream)


@router.post(
    "/count_tokens",
    responses=responses(errors.ValidationFailed, *MODEL_ERRORS, form=ANTHROPIC_ERRORS),
)
async def count_message_tokens(
    body: CountRequest, services: ServicesDep, headers: HeadersParam
) -> dict[str, int]:
    """Estimate the tokens of a conversation.

    The estimate improves with each answer of the model.
    """
    turn, sent = await parse(body, headers)
    return {"input_tokens": await estimate(services, turn, sent)}
