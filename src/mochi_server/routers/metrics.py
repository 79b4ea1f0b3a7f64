"""/metrics"""

from fastapi import APIRouter, Response

from mochi_server.dependencies import ServicesDep
from mochi_server.routers.errors import Responses

router = APIRouter(tags=["health"])

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_METRICS: Responses = {200: {"description": "Metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}}}


@router.get("/metrics", response_class=Response, responses=_METRICS)
async def get_metrics(services: ServicesDep) -> Response:
    """What the server counts of itself, in Prometheus' text format; also at `/metrics` alone."""
    return Response(services.metrics.text(), headers={"Content-Type": _TEXT})
