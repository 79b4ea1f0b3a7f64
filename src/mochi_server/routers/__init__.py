"""One file per noun; a route is a signature and one call."""

from fastapi import APIRouter

from mochi_server.errors import (
    BodyTooLarge,
    HeadersTooLarge,
    HostForbidden,
    InternalError,
    MalformedRequest,
    OriginForbidden,
    RequestTimedOut,
    Unauthorized,
)
from mochi_server.routers import (
    agents,
    chat,
    compare,
    health,
    metrics,
    models,
    openai,
    sessions,
    system_prompts,
    tools,
)
from mochi_server.routers.errors import described

_ANY_ERROR = described(
    Unauthorized,
    OriginForbidden,
    HostForbidden,
    BodyTooLarge,
    HeadersTooLarge,
    MalformedRequest,
    RequestTimedOut,
    InternalError,
    description="Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431.",
)

api = APIRouter(responses={"default": _ANY_ERROR})
"""To be included under ``API_PREFIX``: without a prefix FastAPI would build each of its routes once more."""
for module in (health, metrics, compare, models, sessions, chat, tools, agents, system_prompts):
    api.include_router(module.router)

openai_api = openai.router
"""For clients of OpenAI's API; errors have its form there."""

aliases = APIRouter(include_in_schema=False)
"""Paths without the prefix: where frontends written for another document, Prometheus and orchestrators look first."""
aliases.include_router(compare.router)
aliases.include_router(health.router)
aliases.include_router(metrics.router)
