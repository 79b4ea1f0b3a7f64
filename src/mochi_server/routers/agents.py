"""Routes under `/agents`."""

from typing import Any

from mochi_server.agents.config import AgentDefinition
from mochi_server.dependencies import ServicesDep
from mochi_server.errors import (
    AgentChatNotFound,
    AgentInvalid,
    AgentNotFound,
    SessionNotFound,
    ValidationFailed,
)
from mochi_server.routers.sessions import OwnerQuery
from mochi_server.schemas.agents import AgentChatDetail, AgentChatList, AgentDetails, AgentList
from mochi_server.schemas.sessions import SessionDetail
from mochi_server.sessions.types import SessionQuery
from mochi_server.web.routes import PrefixRouter, responses

router = PrefixRouter(prefix="/agents", tags=["agents"])


@router.get("", response_model=AgentList)
async def list_agents(services: ServicesDep) -> dict[str, Any]:
    """List the agents. Invalid agents have an error message."""
    return {"agents": await services.agents.agents()}


@router.post("/reload", response_model=AgentList)
async def reload_agents(services: ServicesDep) -> dict[str, Any]:
    """Read the agents directory again."""
    return {"agents": await services.agents.reload()}


@router.get("/chats", response_model=AgentChatList, responses=responses(ValidationFailed))
async def list_agent_chats(services: ServicesDep, owner: OwnerQuery = None) -> dict[str, Any]:
    """List the sessions of agents, the most recently changed first."""
    return {"sessions": (await services.agent_chats.list(SessionQuery(owner=owner))).entries}


@router.get(
    "/chats/{session_id}", response_model=AgentChatDetail, responses=responses(AgentChatNotFound)
)
async def get_agent_chat(session_id: str, services: ServicesDep) -> SessionDetail:
    """Get a session of an agent with its messages."""
    try:
        return AgentChatDetail.of(await services.agent_chats.load(session_id))
    except SessionNotFound as error:
        raise AgentChatNotFound(session_id) from error


@router.get(
    "/{agent_name}", response_model=AgentDetails, responses=responses(AgentNotFound, AgentInvalid)
)
async def get_agent(agent_name: str, services: ServicesDep) -> AgentDefinition:
    """Get an agent with its prompt and its tools."""
    return await services.agents.get(agent_name)
