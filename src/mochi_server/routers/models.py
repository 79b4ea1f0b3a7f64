"""/models"""

from mochi_server.dependencies import ClientDep
from mochi_server.errors import ModelNotFound, OllamaError, OllamaUnreachable
from mochi_server.models.models import Model, ModelList
from mochi_server.routers.errors import responses
from mochi_server.routers.router import Router

router = Router(prefix="/models", tags=["models"])


@router.get("", responses=responses(OllamaUnreachable, OllamaError))
async def list_models(client: ClientDep) -> ModelList:
    """List the models that can chat."""
    return ModelList(models=[Model.of(model) for model in await client.list_models()])


@router.get("/{model_name:path}", responses=responses(ModelNotFound, OllamaUnreachable, OllamaError))
async def get_model(model_name: str, client: ClientDep) -> Model:
    """Get one model; names may hold slashes and colons, the tag is optional."""
    return Model.of(await client.find_model(model_name))
