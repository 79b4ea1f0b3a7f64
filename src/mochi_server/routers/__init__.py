"""One file per noun; a route is a signature and one call."""

from fastapi import APIRouter

from mochi_server.constants import API_PREFIX
from mochi_server.routers import agents, chat, health, models, sessions, system_prompts, tools

api = APIRouter(prefix=API_PREFIX)
for module in (health, models, sessions, chat, tools, agents, system_prompts):
    api.include_router(module.router)
