"""Conversations with agents: ordinary sessions in a directory of their own, each of one agent and with one writer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mochi_server.agents.config import AgentDefinition
from mochi_server.errors import SessionNotFound
from mochi_server.sessions.edits import with_system_prompt, without_system_prompt
from mochi_server.sessions.session import OWNER, ChatSession, is_session_id, new_id
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import SessionCreationOptions


class AgentChats:
    """The sessions of agents."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store

    @asynccontextmanager
    async def opened(self, agent: AgentDefinition, model: str, session_id: str | None) -> AsyncIterator[ChatSession]:
        """A new session of an agent, or the one with that id, held, with the agent's system prompt of now.

        Raises ``SessionNotFound`` for everything but a session of this agent, and ``SessionBusy``.
        """
        if session_id is None:
            session_id = await self._create(agent, model)
        elif not is_session_id(session_id):
            raise SessionNotFound(session_id)
        async with self.store.hold(session_id, run_id=new_id()):
            yield await self._refreshed(agent, model, session_id)

    async def _create(self, agent: AgentDefinition, model: str) -> str:
        session = ChatSession.create(SessionCreationOptions(model, system_prompt=agent.system_prompt or None))
        session.metadata.extra[OWNER] = agent.name
        return (await self.store.create(session)).session_id

    async def _refreshed(self, agent: AgentDefinition, model: str, session_id: str) -> ChatSession:
        session = await self.store.load(session_id)
        if session.metadata.extra.get(OWNER) != agent.name:
            raise SessionNotFound(session_id)
        if session.model != model:
            session = await self.store.patch(session_id, {"model": model})
        told = session.system_prompt["content"] if session.system_prompt else ""
        if told == agent.system_prompt:
            return session
        prompt = agent.system_prompt
        start, messages = with_system_prompt(session, prompt) if prompt else without_system_prompt(session)
        return await self.store.replace_tail(session_id, start, messages)
