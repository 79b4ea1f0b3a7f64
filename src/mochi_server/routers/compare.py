"""Route `/models/test`, which compares models."""

from fastapi import APIRouter, Response

from mochi_server.dependencies import CompareDep
from mochi_server.errors import InvalidComparison, ShuttingDown, ValidationFailed
from mochi_server.models.compare import CompareRequest
from mochi_server.models.events import COMPARE_EVENTS
from mochi_server.web.exception_handlers import OLLAMA_ERRORS, responses
from mochi_server.web.sse import EventsResponse, streams

router = APIRouter(tags=["models"])
_STREAM = streams(
    COMPARE_EVENTS,
    'event: chunk\ndata: {"modelId":"qwen3:14b","delta":"Paris"}\n\n'
    'event: complete\ndata: {"message":"All models completed"}\n\n',
)
_RESPONSES = _STREAM | responses(InvalidComparison, ValidationFailed, *OLLAMA_ERRORS, ShuttingDown)


@router.post("/models/test", response_class=Response, responses=_RESPONSES)
@router.post("/models/test/", response_class=Response, include_in_schema=False)
async def compare_models(body: CompareRequest, compare: CompareDep) -> EventsResponse:
    """Compare up to three models: send one prompt to each in turn. Nothing is stored."""
    return EventsResponse(compare.run(await body.comparison(compare)))
