"""Schemas of agents and of the sessions they keep."""

from collections.abc import Mapping

from pydantic import BaseModel

from mochi_server.agents.config import AgentDefinition
from mochi_server.models.sessions import Session, SessionDetail
from mochi_server.models.tools import ToolProblem, ToolSummary
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import SessionPage


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
        return cls(
            name=agent.name,
            description=agent.description,
            model=agent.model,
            valid=agent.valid,
            error_message=agent.error_message,
            tool_count=len(agent.tools),
            tools=list(agent.tools),
        )


class AgentDetails(AgentSummary):
    """An agent with its prompt, its tools, and which of its tools cannot be used."""

    system_prompt: str
    tool_details: dict[str, ToolSummary]
    problems: list[ToolProblem]

    @classmethod
    def of(cls, agent: AgentDefinition) -> "AgentDetails":
        return cls(
            **AgentSummary.of(agent).model_dump(),
            system_prompt=agent.system_prompt,
            tool_details={name: ToolSummary.of(tool) for name, tool in agent.catalogue.tools.items()},
            problems=[ToolProblem(name=p.name, message=p.message) for p in agent.catalogue.problems],
        )


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

    @classmethod
    def of(cls, session: ChatSession) -> "AgentChatDetail":
        return cls.model_validate(session.summary_object() | {"messages": list(session.history)})


class AgentChatList(BaseModel):
    """Conversations with agents, the last changed first."""

    sessions: list[AgentChat]

    @classmethod
    def of(cls, page: SessionPage) -> "AgentChatList":
        return cls(sessions=[AgentChat.model_validate(entry) for entry in page.entries])
