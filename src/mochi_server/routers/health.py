"""Routes under `/health`, and `/metrics`."""

from typing import Literal

from fastapi import APIRouter, Response

from mochi_server import __version__
from mochi_server.constants import API_PREFIX
from mochi_server.dependencies import ServicesDep
from mochi_server.errors import NotReady, ShuttingDown
from mochi_server.schemas.common import Schema
from mochi_server.web.routes import Responses, responses


class Health(Schema):
    """State of the server.

    ``status`` is always ``ok``. ``ollama_connected`` is true if Ollama responds.
    """

    status: Literal["ok"] = "ok"
    ollama_connected: bool
    ollama_host: str
    version: str


class Alive(Schema):
    """The process responds."""

    status: Literal["alive"] = "alive"


class Ready(Schema):
    """The server accepts new turns and can store them."""

    status: Literal["ready"] = "ready"


router = APIRouter(tags=["health"])

WITHOUT_KEY = frozenset(
    (
        "/health/live",
        "/health/ready",
        f"{API_PREFIX}/health/live",
        f"{API_PREFIX}/health/ready",
        f"{API_PREFIX}/mcp/callback",
    )
)
"""Paths that require no API key, because orchestrators such as Kubernetes have none, and a browser
has none after a redirect.
"""

_METRICS: Responses = {
    200: {"description": "Metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("/health")
async def get_health(services: ServicesDep) -> Health:
    """Check the server and its connection to Ollama."""
    is_connected = await services.fleet.is_reachable()
    # the first host that responds, or the first host if none responds
    url = services.fleet.up[0].client.endpoint.url
    return Health(ollama_connected=is_connected, ollama_host=url, version=__version__)


@router.get("/health/live")
async def get_live() -> Alive:
    """Check that the process responds (liveness).

    If it does not respond, restart it. Requires no API key.
    """
    return Alive()


@router.get("/health/ready", responses=responses(ShuttingDown, NotReady))
async def get_ready(services: ServicesDep) -> Ready:
    """Check that new turns are accepted and can be stored (readiness).

    Requires neither an API key nor Ollama.
    """
    await services.check_ready()
    return Ready()


@router.get("/metrics", response_class=Response, responses=_METRICS)
async def get_metrics(services: ServicesDep) -> Response:
    """Get the metrics in the text format of Prometheus. `/metrics` returns the same metrics."""
    await services.measure()
    return Response(
        services.metrics.render(),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )
