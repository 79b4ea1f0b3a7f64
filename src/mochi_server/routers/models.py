"""Routes under `/models`."""

from mochi_server.dependencies import ClientDep
from mochi_server.models.models import Model, ModelList
from mochi_server.ollama.types import ModelInfo
from mochi_server.web.exception_handlers import MODEL_ERRORS, OLLAMA_ERRORS, responses
from mochi_server.web.routes import PrefixRouter

router = PrefixRouter(prefix="/models", tags=["models"])


@router.get("/", response_model=ModelList, include_in_schema=False)
@router.get("", response_model=ModelList, responses=responses(*OLLAMA_ERRORS))
async def list_models(client: ClientDep) -> dict[str, list[ModelInfo]]:
    """List the chat models."""
    return {"models": await client.list_models()}


@router.get("/{model_name:path}", response_model=Model, responses=responses(*MODEL_ERRORS))
async def get_model(model_name: str, client: ClientDep) -> ModelInfo:
    """Get a chat model. Its name may contain slashes and colons. The tag is optional."""
    return await client.find_model(model_name)
