"""Routes of the Responses API under `/v1/responses`."""

from functools import partial
from secrets import token_hex
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from mochi_server.constants import OPENAI_PREFIX
from mochi_server.dependencies import ServicesDep
from mochi_server.errors import ResponseNotFound, RouteNotFound, ValidationFailed
from mochi_server.protocols.answer_request import ignored_options
from mochi_server.protocols.encoded_response import respond
from mochi_server.protocols.headers import HeadersParam
from mochi_server.protocols.openai_errors import OPENAI_ERRORS, openai_stream_error
from mochi_server.protocols.parts import omitted_tools
from mochi_server.protocols.responses import retrieval
from mochi_server.protocols.responses.encoder import ResponseEncoder
from mochi_server.protocols.responses.previous import conversation
from mochi_server.protocols.responses.request import ResponseRequest, parse
from mochi_server.protocols.responses.response import InputItemList, InputTokens, ModelResponse
from mochi_server.protocols.responses.tools import flattened, omitted_types
from mochi_server.protocols.schemas import allow
from mochi_server.protocols.turn_start import answer_responses, estimate, renamed_fields, start
from mochi_server.web.requests import Protocol
from mochi_server.web.routes import MODEL_ERRORS, STORAGE_ERRORS, BodyReleasingRoute, responses

router = APIRouter(tags=["OpenAI"], route_class=BodyReleasingRoute)
PROTOCOL = Protocol(
    OPENAI_PREFIX,
    router,
    openai_stream_error,
    OPENAI_ERRORS,
    resumes=False,
    turn_paths=("/responses",),
)


@router.post(
    "/responses",
    response_model=ModelResponse,
    responses=answer_responses("The response, as JSON or as events.", OPENAI_ERRORS),
)
async def create_response(
    request: Request, body: ResponseRequest, services: ServicesDep, headers: HeadersParam
) -> Response:
    """Answer the items of a conversation with one JSON response or a stream of events."""
    known = services.responses
    session_id = body.session_id(headers)
    is_session = session_id is not None
    items = conversation(known, body.input, body.previous_response_id, is_session=is_session)
    functions = flattened(body.tools or ())
    with renamed_fields(messages="input", response_format="text.format"):
        turn, sent = await parse(body, headers, items, functions)
        run = await start(request, session_id, turn, sent)
    response_id = f"resp_{token_hex(12)}"
    if is_session:  # the index of the first message of the turn is for `check_previous`
        response_id = f"resp_{session_id}_{run.position}_{run.origin}"
    is_background = bool(body.background)
    fields = body.repeated_fields()
    # Without a session, the server keeps a response in memory for an hour.
    fields |= {"id": response_id, "store": is_session or is_background}
    if body.store is not False and not is_session:
        known.add_input(response_id, [item.model_dump(exclude_unset=True) for item in items])

    build = partial(
        ResponseEncoder,
        run,
        known=None if body.store is False else known,
        notices=[
            *omitted_tools("OpenAI", omitted_types(body.tools or ())),
            *ignored_options(body),
            *sent.notices,
        ],
        functions=functions,
    )
    encoder = build(fields | {"background": is_background})
    if is_background:
        started = retrieval.complete_in_background(known, encoder)
        if not body.stream:
            return JSONResponse(started)
        encoder = build(started)  # a second one, because the first one completes the response
    return await respond(request, encoder, stream=body.stream)


@router.post(
    "/responses/input_tokens",
    responses=responses(ValidationFailed, *MODEL_ERRORS, form=OPENAI_ERRORS),
)
async def count_input_tokens(
    body: ResponseRequest, services: ServicesDep, headers: HeadersParam
) -> InputTokens:
    """Estimate the tokens of the items of a conversation, without an answer.

    The messages of a session are not counted. The estimate improves with each answer of the model.
    """
    is_session = body.session_id(headers) is not None
    items = conversation(
        services.responses, body.input, body.previous_response_id, is_session=is_session
    )
    with renamed_fields(messages="input", response_format="text.format"):
        turn, sent = await parse(body, headers, items, flattened(body.tools or ()))
    return InputTokens(input_tokens=await estimate(services, turn, sent))


@router.post("/responses/compact", include_in_schema=False)
async def refuse_compaction(request: Request) -> None:
    """Answer 404. Otherwise, the path would be that of a response, which supports only GET."""
    raise RouteNotFound(request.url.path, prefix=request.scope.get("root_path", ""))


_FOUND = responses(ResponseNotFound, ValidationFailed, *STORAGE_ERRORS, form=OPENAI_ERRORS)
StreamQuery = Annotated[bool | None, allow(False), Query(description="Only `false` is supported.")]
LimitQuery = Annotated[int, Query(ge=1, le=100, description="Maximum number of items.")]
OrderQuery = Annotated[Literal["asc", "desc"], Query(description="`desc` lists new items first.")]
AfterQuery = Annotated[str | None, Query(description="ID of the last item of the page before.")]


@router.get("/responses/{response_id}", response_model=ModelResponse, responses=_FOUND)
async def get_response(
    response_id: str,
    services: ServicesDep,
    stream: StreamQuery = None,  # noqa: ARG001 - only validated
) -> Response:
    """Get a response: that of a session, or for an hour one without a session."""
    return JSONResponse(await retrieval.find_response(services, response_id))


@router.get("/responses/{response_id}/input_items", responses=_FOUND)
async def list_input_items(
    response_id: str,
    services: ServicesDep,
    limit: LimitQuery = 20,
    order: OrderQuery = "desc",
    after: AfterQuery = None,
) -> InputItemList:
    """List the items before the output of a response, in a session its earlier messages."""
    items = await retrieval.input_items(services, response_id)
    return InputItemList.page(items if order == "asc" else items[::-1], after, limit)


@router.post("/responses/{response_id}/cancel", response_model=ModelResponse, responses=_FOUND)
async def cancel_response(response_id: str, services: ServicesDep) -> Response:
    """Cancel a response in the background, and keep its text. If it has ended, return it."""
    # This raises ResponseNotFound for the responses of other owners, too.
    response = await retrieval.find_response(services, response_id)
    if response["background"] is False:  # it is unknown after a restart
        raise ValidationFailed.at(
            "response_id", "only a response with `background` can be cancelled"
        )
    await retrieval.cancel(services, response_id)
    return JSONResponse(await retrieval.find_response(services, response_id))
