"""/models"""

from mochi_server.dependencies import ClientDep, Router
from mochi_server.models.models import Model, ModelList
from mochi_server.routers.errors import MODEL_ERRORS, OLLAMA_ERRORS, responses

router = Router(prefix="/models", tags=["models"])


@router.get("", responses=responses(*OLLAMA_ERRORS))
async def list_models(client: ClientDep) -> ModelList:
    """List the models that can chat."""
    return ModelList(models=[Model.of(model) for model in await client.list_models()])


@router.get("/{model_name:path}", responses=responses(*MODEL_ERRORS))
async def get_model(model_name: str, client: ClientDep) -> Model:
    """Get one model; names may hold slashes and colons, the tag is optional."""
    return Model.of(await client.find_model(model_name))
