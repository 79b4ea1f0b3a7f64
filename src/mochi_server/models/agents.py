"""Schemas of agents and of the sessions they keep."""

from typing import Annotated

from pydantic import AliasPath, BaseModel, BeforeValidator, Field

from mochi_server.models.sessions import Session, SessionDetail
from mochi_server.models.tools import Shown, ToolProblem, ToolSummary


class AgentSummary(Shown):
    """An agent. An invalid one has an ``error_message`` that names the file and what is wrong with it."""

    name: str
    description: str
    model: str | None
    valid: bool
    error_message: str | None
    tool_count: Annotated[int, BeforeValidator(len)] = Field(validation_alias="tools")
    tools: Annotated[list[str], BeforeValidator(list)]


class AgentDetails(AgentSummary):
    """An agent with its prompt, its tools, and which of its tools cannot be used."""

    system_prompt: str
    tool_details: dict[str, ToolSummary] = Field(validation_alias=AliasPath("catalogue", "tools"))
    problems: list[ToolProblem] = Field(validation_alias=AliasPath("catalogue", "problems"))


class AgentList(BaseModel):
    """All agents by name, invalid ones among them."""

    agents: dict[str, AgentSummary]


class AgentChat(Session):
    """A conversation with an agent, without its messages."""

    agent_name: str | None = None


class AgentChatDetail(SessionDetail):
    """A conversation with an agent."""

    agent_name: str | None = None


class AgentChatList(BaseModel):
    """Conversations with agents, the last changed first."""

    sessions: list[AgentChat]
