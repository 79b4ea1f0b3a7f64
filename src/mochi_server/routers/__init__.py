"""Routes, one module per resource. Each route makes one call to a service."""

from mochi_server.routers import (
    agents,
    chat,
    compare,
    health,
    models,
    sessions,
    system_prompts,
    tools,
)

__all__ = ["ALIASED", "API"]

API = (chat, sessions, compare, models, tools, agents, system_prompts, health)
"""Routers below ``API_PREFIX``, in the order of matching: the most frequent requests first."""

ALIASED = (compare, health)
"""Routers whose routes also exist without ``API_PREFIX``, where monitoring tools and frontends expect them."""
