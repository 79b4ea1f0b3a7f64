"""Agents: system prompts with their own tools and sessions.

Agents also run without the HTTP server.
"""

from mochi_server.agents.config import AgentDefinition, AgentSettings
from mochi_server.agents.discovery import AgentDiscoveryService
from mochi_server.agents.execution import AgentCaller, AgentExecutionService, AgentResult
from mochi_server.agents.prompt_loader import PromptLoader

__all__ = [
    "AgentCaller",
    "AgentDefinition",
    "AgentDiscoveryService",
    "AgentExecutionService",
    "AgentResult",
    "AgentSettings",
    "PromptLoader",
]
