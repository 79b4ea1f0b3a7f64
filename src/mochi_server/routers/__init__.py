"""Routes, one module per resource. Each route makes one call to a service."""

from mochi_server.routers import (
    agents,
    chat,
    health,
    hosts,
    models,
    sessions,
    system_prompts,
    tools,
)

API = (
    chat.router,
    sessions.router,
    models.comparison_router,
    models.router,
    tools.router,
    agents.router,
    system_prompts.router,
    hosts.router,
    health.router,
)
"""Routers below ``API_PREFIX``, in the order of matching: the most frequent requests first."""

ROOT = (models.root_router,)
"""Routers without ``API_PREFIX`` whose routes are in the OpenAPI document."""

ALIASED = (models.comparison_router, health.router)
"""Routers whose routes also exist without ``API_PREFIX``, where monitoring tools and frontends
expect them.
"""
