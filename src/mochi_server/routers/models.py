"""Routes under `/models`, and `/models/test`, which compares models."""

from fastapi import APIRouter, Response

from mochi_server.dependencies import ServicesDep
from mochi_server.errors import InvalidComparison, ShuttingDown, ValidationFailed
from mochi_server.ollama.types import ModelInfo
from mochi_server.schemas.models import COMPARE_EVENTS, CompareRequest, Model, ModelList
from mochi_server.web.routes import MODEL_ERRORS, OLLAMA_ERRORS, PrefixRouter, responses
from mochi_server.web.sse import EventsResponse, streams

router = PrefixRouter(prefix="/models", tags=["models"])


@router.get("/", response_model=ModelList, include_in_schema=False)
@router.get("", response_model=ModelList, responses=responses(*OLLAMA_ERRORS))
async def list_models(services: ServicesDep) -> dict[str, list[ModelInfo]]:
    """List the chat models."""
    return {"models": await services.fleet.list_models()}


@router.get("/{model_name:path}", response_model=Model, responses=responses(*MODEL_ERRORS))
async def get_model(model_name: str, services: ServicesDep) -> ModelInfo:
    """Get a chat model. Its name may contain slashes and colons. The tag is optional."""
    return await services.fleet.find_model(model_name)


comparison_router = APIRouter(tags=["models"])
_STREAM = streams(
    COMPARE_EVENTS,
    'event: chunk\ndata: {"modelId":"qwen3:14b","delta":"Paris"}\n\n'
    'event: complete\ndata: {"message":"All models completed"}\n\n',
)
_RESPONSES = _STREAM | responses(InvalidComparison, ValidationFailed, *OLLAMA_ERRORS, ShuttingDown)


@comparison_router.post("/models/test", response_class=Response, responses=_RESPONSES)
@comparison_router.post("/models/test/", response_class=Response, include_in_schema=False)
async def compare_models(body: CompareRequest, services: ServicesDep) -> EventsResponse:
    """Compare up to three models: send one prompt to each in turn. Nothing is stored."""
    comparison = await body.comparison(services.compare)
    return EventsResponse(await services.compare.start(comparison), services.ping_seconds)
