"""One file per noun; a route is a signature and one call."""

from mochi_server.routers import agents, chat, compare, health, models, openai, sessions, system_prompts, tools

__all__ = ["ALIASED", "API", "openai"]

API = (chat, sessions, compare, models, tools, agents, system_prompts, health)
"""Below ``API_PREFIX``, in the order of matching: the most frequent requests first."""

ALIASED = (compare, health)
"""Also without the prefix: where frontends written for another document, Prometheus and orchestrators look first."""
