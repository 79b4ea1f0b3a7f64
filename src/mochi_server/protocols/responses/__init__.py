"""OpenAI's Responses API: route `/v1/responses`."""

from functools import partial
from typing import Annotated
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Depends, Request, Response

from mochi_server.constants import OPENAI_PREFIX
from mochi_server.container import Services
from mochi_server.dependencies import ServicesDep
from mochi_server.protocols.completions import answer_responses, start
from mochi_server.protocols.encoder import respond
from mochi_server.protocols.errors import OPENAI_ERRORS, openai_stream_error
from mochi_server.protocols.responses.encoder import ResponseEncoder
from mochi_server.protocols.responses.request import (
    ModelResponse,
    ResponseItems,
    ResponseRequest,
    check_previous_response,
    parse,
    response_id,
)
from mochi_server.protocols.schemas import HeadersParam
from mochi_server.web.protocol import Protocol
from mochi_server.web.routes import BodyReleasingRoute

router = APIRouter(tags=["OpenAI"], route_class=BodyReleasingRoute)
PROTOCOL = Protocol(
    OPENAI_PREFIX, router, openai_stream_error, OPENAI_ERRORS, resumes=False, turn_paths=("/responses",)
)

_EVENTS = "`event` is the type of the event, and `data` is the event as JSON."
_ITEMS: WeakKeyDictionary[Services, ResponseItems] = WeakKeyDictionary()
"""Items of the responses of each running app."""


async def _response_items(services: ServicesDep) -> ResponseItems:
    return _ITEMS.setdefault(services, ResponseItems())


@router.post(
    "/responses",
    response_model=ModelResponse,
    responses=answer_responses("The response, as JSON or as events.", _EVENTS, OPENAI_ERRORS),
)
async def create_response(
    request: Request,
    body: ResponseRequest,
    items: Annotated[ResponseItems, Depends(_response_items)],
    headers: HeadersParam,
) -> Response:
    """Answer the items of a conversation with one JSON response or a stream of events."""
    session_id, check = body.session_id(headers), partial(check_previous_response, body.previous_response_id)
    names = {"messages": "input", "response_format": "text.format"}
    run = await start(request, session_id, parse(body, headers, items), check, **names)
    fields = body.echo() | {"id": response_id(session_id, run.position, run.run_id), "store": session_id is not None}
    refers = session_id is None and body.store is not False
    encoder = ResponseEncoder(run, fields, items.add if refers else lambda _: None)
    return await respond(request, encoder, stream=body.stream)
