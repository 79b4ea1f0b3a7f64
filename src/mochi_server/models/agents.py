"""Schemas of agents and of the sessions they keep."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from mochi_server.agents.config import AgentDefinition
from mochi_server.models.sessions import Session, SessionDetail
from mochi_server.models.tools import ToolProblem, ToolSummary


class AgentSummary(BaseModel):
    """An agent. An invalid one has an ``error_message`` that names the file and what is wrong with it."""

    name: str
    description: str
    model: str | None
    valid: bool
    error_message: str | None
    tool_count: int
    tools: list[str]

    @classmethod
    def of(cls, agent: AgentDefinition) -> "AgentSummary":
        return cls.model_validate(_shown(agent))


class AgentDetails(AgentSummary):
    """An agent with its prompt, its tools, and which of its tools cannot be used."""

    system_prompt: str
    tool_details: dict[str, ToolSummary]
    problems: list[ToolProblem]

    @classmethod
    def of(cls, agent: AgentDefinition) -> "AgentDetails":
        tools = {name: ToolSummary.of(tool) for name, tool in agent.catalogue.tools.items()}
        return cls.model_validate(_shown(agent) | {"tool_details": tools, "problems": agent.catalogue.problems})


def _shown(agent: AgentDefinition) -> dict[str, Any]:
    return vars(agent) | {"tool_count": len(agent.tools), "tools": list(agent.tools)}


class AgentList(BaseModel):
    """All agents by name, invalid ones among them."""

    agents: dict[str, AgentSummary]

    @classmethod
    def of(cls, agents: Mapping[str, AgentDefinition]) -> "AgentList":
        return cls(agents={name: AgentSummary.of(agent) for name, agent in agents.items()})


class AgentChat(Session):
    """A conversation with an agent, without its messages."""

    agent_name: str | None = None


class AgentChatDetail(SessionDetail):
    """A conversation with an agent."""

    agent_name: str | None = None


class AgentChatList(BaseModel):
    """Conversations with agents, the last changed first."""

    sessions: list[AgentChat]
