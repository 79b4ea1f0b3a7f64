"""/health"""

from fastapi import APIRouter

from mochi_server import __version__
from mochi_server.dependencies import ClientDep
from mochi_server.models.health import Health

router = APIRouter(tags=["health"])


@router.get("/health")
async def get_health(client: ClientDep) -> Health:
    """Whether the server serves, and whether Ollama answers it."""
    return Health(ollama_connected=await client.is_reachable(), ollama_host=client.endpoint.url, version=__version__)
