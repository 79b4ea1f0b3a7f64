"""/health and /metrics"""

from fastapi import APIRouter, Response

from mochi_server import __version__
from mochi_server.constants import API_PREFIX
from mochi_server.dependencies import ClientDep, ServicesDep
from mochi_server.errors import NotReady, ShuttingDown
from mochi_server.models.health import Alive, Health, Ready
from mochi_server.routers.errors import Responses, responses

router = APIRouter(tags=["health"])

WITHOUT_KEY = frozenset(f"{prefix}/health/{question}" for prefix in ("", API_PREFIX) for question in ("live", "ready"))
"""Paths for those who watch over the process and know no key. They tell nothing but what is asked."""

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_METRICS: Responses = {200: {"description": "Metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}}}


@router.get("/health")
async def get_health(client: ClientDep) -> Health:
    """Whether the server serves, and whether Ollama answers it."""
    return Health(ollama_connected=await client.is_reachable(), ollama_host=client.endpoint.url, version=__version__)


@router.get("/health/live")
async def get_live() -> Alive:
    """Whether the process serves; who gets no answer may start it anew. Needs no key."""
    return Alive()


@router.get("/health/ready", responses=responses(ShuttingDown, NotReady))
async def get_ready(services: ServicesDep) -> Ready:
    """Whether new turns are taken and can be stored; 503 says why they are not. Needs no key, and no Ollama."""
    await services.check_ready()
    return Ready()


@router.get("/metrics", response_class=Response, responses=_METRICS)
async def get_metrics(services: ServicesDep) -> Response:
    """What the server counts of itself, in Prometheus' text format; also at `/metrics` alone."""
    return Response(services.metrics.text(), headers={"Content-Type": _TEXT})
