"""Parts that the routes of protocols with completions share: the service, the error responses and the answer."""

from typing import Annotated

from fastapi import Depends, Request, Response

from mochi_server import errors
from mochi_server.dependencies import ServicesDep
from mochi_server.openai.response_encoding import RunEncoder
from mochi_server.protocols.completions import Completions
from mochi_server.protocols.errors import OPENAI_ERRORS
from mochi_server.web.disconnect import until_disconnect
from mochi_server.web.exception_handlers import MODEL_ERRORS, STORAGE_ERRORS, Responses, responses
from mochi_server.web.sse import ChunksResponse

_ERRORS = (
    *(errors.ValidationFailed, errors.ContextOverflow, errors.AgentInvalid, *MODEL_ERRORS),
    *(errors.SessionNotFound, errors.ToolNotFound, errors.SessionBusy, errors.SessionConflict),
    *(errors.IdempotencyKeyReused, errors.ToolNotCalled),
    *(*STORAGE_ERRORS, errors.ShuttingDown),
)


async def _completions(services: ServicesDep) -> Completions:
    return Completions(services)


CompletionsDep = Annotated[Completions, Depends(_completions)]


def answer_responses(description: str, events: str) -> Responses:
    """Return FastAPI's ``responses`` argument for a route that answers with JSON or with a stream."""
    schema = {"type": "string", "description": f"Server-sent events. {events}"}
    succeeded = {"description": description, "content": {"text/event-stream": {"schema": schema}}}
    return {200: succeeded, **responses(*_ERRORS, form=OPENAI_ERRORS)}


async def respond(request: Request, encoder: RunEncoder, *, stream: bool | None) -> Response:
    """Return the answer of a run, as a stream or complete."""
    if stream:
        return ChunksResponse(encoder)
    with encoder.run.subscribed():
        answer = await until_disconnect(request, encoder.collect())
    return Response(answer, media_type="application/json")
