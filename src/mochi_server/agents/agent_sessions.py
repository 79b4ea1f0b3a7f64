"""Sessions of agents. Each session belongs to one agent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mochi_server.agents.config import AgentDefinition
from mochi_server.errors import SessionNotFound
from mochi_server.sessions.history_edits import with_system_prompt, without_system_prompt
from mochi_server.sessions.session import OWNER, ChatSession, is_session_id
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import SessionCreationOptions
from mochi_server.util.clock import new_id


@asynccontextmanager
async def open_agent_session(
    store: SessionStore, agent: AgentDefinition, model: str, session_id: str | None
) -> AsyncIterator[ChatSession]:
    """Lock the session, update its model and system prompt, and yield it. If ``session_id`` is None, create a session.

    Raises:
        SessionNotFound: The agent has no session with this ID.
        SessionBusy: Another turn uses the session.
    """
    if session_id is None:
        session = ChatSession.create(SessionCreationOptions(model, system_prompt=agent.system_prompt or None))
        session.metadata.extra[OWNER] = agent.name
        session_id = (await store.create(session)).session_id
    elif not is_session_id(session_id):
        raise SessionNotFound(session_id)
    async with store.hold(session_id, run_id=new_id()):
        yield await _load_updated(store, agent, model, session_id)


async def _load_updated(store: SessionStore, agent: AgentDefinition, model: str, session_id: str) -> ChatSession:
    session = await store.load(session_id)
    if session.metadata.extra.get(OWNER) != agent.name:
        raise SessionNotFound(session_id)
    if session.model != model:
        session = await store.patch(session_id, {"model": model})
    if (session.system_prompt["content"] if session.system_prompt else "") == agent.system_prompt:
        return session
    prompt = agent.system_prompt
    start, messages = with_system_prompt(session, prompt) if prompt else without_system_prompt(session)
    return await store.replace_tail(session_id, start, messages)
