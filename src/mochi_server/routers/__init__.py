"""One file per noun; a route is a signature and one call."""

from fastapi import APIRouter

from mochi_server.routers import agents, chat, compare, health, metrics, models, openai, sessions, system_prompts, tools
from mochi_server.routers.errors import any_error

api = APIRouter(responses=any_error())
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
