"""/metrics"""

from fastapi import APIRouter, Response

from mochi_server.dependencies import ServicesDep

router = APIRouter(tags=["health"])

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_SHOWN = "# HELP mochi_running_turns Turns under way.\n# TYPE mochi_running_turns gauge\nmochi_running_turns 1.0\n"
_METRICS = {"schema": {"type": "string"}, "example": _SHOWN}


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"description": "Metrics.", "content": {"text/plain": _METRICS}}},
)
async def get_metrics(services: ServicesDep) -> Response:
    """What the server counts of itself, in Prometheus' text format; also at `/metrics` alone."""
    return Response(services.metrics.text(), headers={"Content-Type": _TEXT})
