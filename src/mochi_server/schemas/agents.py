"""Schemas of agents and of their sessions."""

from typing import Annotated

from pydantic import AliasPath, BeforeValidator, Field

from mochi_server.schemas.common import Schema
from mochi_server.schemas.sessions import Session, SessionDetail
from mochi_server.schemas.tools import ToolProblem, ToolSummary


class AgentSummary(Schema, from_attributes=True):
    """An agent. If it is invalid, ``error_message`` names the file and the problem."""

    name: str
    description: str
    model: str | None
    valid: bool
    error_message: str | None
    tool_count: Annotated[int, BeforeValidator(len)] = Field(validation_alias="tools")
    tools: Annotated[list[str], BeforeValidator(list)]


class AgentDetails(AgentSummary):
    """An agent with its prompt and its tools. ``problems`` lists the tools that cannot be used."""

    system_prompt: str
    tool_details: dict[str, ToolSummary] = Field(validation_alias=AliasPath("catalogue", "tools"))
    problems: list[ToolProblem] = Field(validation_alias=AliasPath("catalogue", "problems"))


class AgentList(Schema):
    """All agents, including invalid ones. ``agents`` maps each name to an agent."""

    agents: dict[str, AgentSummary]


class AgentChat(Session):
    """A session of an agent, without its messages."""

    agent_name: str | None = None


class AgentChatDetail(SessionDetail):
    """A session of an agent, with its messages."""

    agent_name: str | None = None


class AgentChatList(Schema):
    """Sessions of agents, the most recently changed first."""

    sessions: list[AgentChat]
