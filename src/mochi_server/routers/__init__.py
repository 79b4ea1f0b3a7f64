"""Routes, one module per resource. Each route makes one call to a service."""

from mochi_server.routers import (
    agents,
    chat,
    health,
    hosts,
    mcp,
    models,
    sessions,
    system_prompts,
    tools,
    usage,
    versions,
)

API = (
    chat.router,
    sessions.router,
    versions.router,
    models.comparison_router,
    models.router,
    tools.router,
    mcp.router,
    mcp.callback_router,
    agents.router,
    system_prompts.router,
    hosts.router,
    usage.router,
    health.router,
)
"""Routers below ``API_PREFIX``, in the order of matching: the most frequent requests first."""

ALIASED = (models.comparison_router, health.router)
"""Routers whose routes also exist without ``API_PREFIX``, where monitoring tools and frontends
expect them.
"""
