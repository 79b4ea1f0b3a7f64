"""Conversations: where a turn reads and writes its messages."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from mochi_server.chat.notices import notices_of
from mochi_server.errors import SessionNotFound
from mochi_server.sessions.change import Change
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import FieldChanges, SessionStore
from mochi_server.sessions.types import Blob
from mochi_server.storage.memory import MemorySessionStore
from mochi_server.storage.retry import StorageRetry

ConversationKind = Literal["session", "agent_chat", "in_memory"]


@dataclass(frozen=True, eq=False)
class Conversation:
    """One session together with the store that contains it."""

    session_id: str
    store: SessionStore
    kind: ConversationKind = "session"
    retry: StorageRetry = field(default_factory=StorageRetry)
    reports: bool = False
    """Whether webhooks report the turns of the session."""

    @property
    def run_key(self) -> str:
        """Key of the conversation's runs.

        Sessions, agent chats and conversations in memory may have equal IDs.
        """
        return self.session_id if self.kind == "session" else f"{self.kind}/{self.session_id}"

    async def load(self) -> ChatSession:
        """Load the session, whose settings may have changed during the turn."""
        return await self.retry.run(lambda: self.store.load(self.session_id))

    async def write(self, change: Change) -> int:
        """Store a change, with the webhook that reports the new state of its turn, if any.

        Return the number of old versions that were removed because of a limit.
        """
        if self.reports and change.turn is not None:
            notices = notices_of(self.session_id, change.turn)
            change = replace(change, notices=notices)
        return await self.retry.run(lambda: self.store.write(self.session_id, change))

    async def patch(self, fields: FieldChanges) -> None:
        await self.retry.run(lambda: self.store.patch(self.session_id, fields))


@dataclass(frozen=True)
class Conversations:
    """Factory of conversations.

    ``chats`` contains the sessions of users, ``agent_chats`` those of agents.
    """

    chats: SessionStore
    agent_chats: SessionStore
    retry: StorageRetry = field(default_factory=StorageRetry)
    reports: bool = False
    """Whether webhooks report the turns of users' sessions."""

    def stored(self, session_id: str) -> Conversation:
        return Conversation(session_id, self.chats, "session", self.retry, self.reports)

    def agent_chat(self, session_id: str) -> Conversation:
        return Conversation(session_id, self.agent_chats, "agent_chat", self.retry)

    async def load(self, session_id: str) -> tuple[Conversation, ChatSession] | None:
        """Return the conversation with the ID of a session of a user or agent, and the session.

        Return None if neither has this ID. Storage errors are raised without retries.
        """
        for conversation in (self.stored(session_id), self.agent_chat(session_id)):
            with suppress(SessionNotFound):
                return conversation, await conversation.store.load(session_id)
        return None

    async def in_memory(self, session: ChatSession, images: Sequence[Blob] = ()) -> Conversation:
        """Return a conversation that contains ``session`` with its ``images`` and is never
        saved.
        """
        store = MemorySessionStore()
        stored = await store.put(session, images=images)
        return Conversation(stored.session_id, store, "in_memory")
