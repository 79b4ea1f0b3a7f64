"""Parts that the routes of protocols with completions share: the service and the error responses."""

from typing import Annotated

from fastapi import Depends

from mochi_server import errors
from mochi_server.dependencies import ServicesDep
from mochi_server.protocols.completions import Completions
from mochi_server.web.exception_handlers import MODEL_ERRORS, STORAGE_ERRORS, Responses, responses
from mochi_server.web.protocol import ErrorFormat

_ERRORS = (
    *(errors.ValidationFailed, errors.ContextOverflow, errors.AgentInvalid, *MODEL_ERRORS),
    *(errors.SessionNotFound, errors.ToolNotFound, errors.SessionBusy, errors.SessionConflict),
    *(errors.IdempotencyKeyReused, errors.ToolNotCalled),
    *(*STORAGE_ERRORS, errors.ShuttingDown),
)


async def _completions(services: ServicesDep) -> Completions:
    return Completions(services)


CompletionsDep = Annotated[Completions, Depends(_completions)]


def answer_responses(description: str, events: str, form: ErrorFormat) -> Responses:
    """Return FastAPI's ``responses`` argument for a route that answers with JSON or with a stream."""
    schema = {"type": "string", "description": f"Server-sent events. {events}"}
    succeeded = {"description": description, "content": {"text/event-stream": {"schema": schema}}}
    return {200: succeeded, **responses(*_ERRORS, form=form)}
