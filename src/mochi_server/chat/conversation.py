"""Conversations: where a turn reads and writes its messages."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import anyio

from mochi_server.chat.notices import notices_of
from mochi_server.errors import StorageUnavailable
from mochi_server.sessions.change import Change
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import FieldChanges, SessionStore
from mochi_server.sessions.types import Image
from mochi_server.storage.memory import MemorySessionStore

ConversationKind = Literal["session", "agent_chat", "in_memory"]

RETRY_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.25
_MAX_PAUSE_SECONDS = 2.0

_Result = TypeVar("_Result")


class StorageRetry:
    """Retry policy for the idempotent storage operations of turns, while the storage is
    unavailable.
    """

    def __init__(self, seconds: float = RETRY_SECONDS) -> None:
        self._seconds = seconds
        self._closed = asyncio.Event()

    def close(self) -> None:
        self._closed.set()

    async def run(self, operation: Callable[[], Awaitable[_Result]]) -> _Result:
        """Return the result of an operation.

        Raises its last error after ``seconds`` seconds or at shutdown.
        """
        clock = asyncio.get_running_loop().time
        deadline, pause = clock() + self._seconds, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return await operation()
            except StorageUnavailable:
                if clock() + pause > deadline:
                    raise
                with anyio.move_on_after(pause):
                    await self._closed.wait()
                    raise
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)


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

    async def write(self, change: Change) -> None:
        """Store a change, with the webhook that reports the new state of its turn, if any."""
        notices = (
            []
            if change.turn is None or not self.reports
            else notices_of(self.session_id, change.turn)
        )
        reported = replace(change, notices=notices)
        await self.retry.run(lambda: self.store.write(self.session_id, reported))

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

    async def in_memory(self, session: ChatSession, images: Sequence[Image] = ()) -> Conversation:
        """Return a conversation that contains ``session`` with its ``images`` and is never
        saved.
        """
        store = MemorySessionStore()
        stored = await store.put(session, images=images)
        return Conversation(stored.session_id, store, "in_memory")
