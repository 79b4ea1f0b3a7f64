"""Conversations: where a turn reads and writes its messages."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import anyio

from mochi_server.errors import StorageBusy, StorageUnavailable
from mochi_server.sessions.images import Image
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message
from mochi_server.storage.memory import MemorySessionStore

RETRY_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.25
_MAX_PAUSE_SECONDS = 2.0

_Result = TypeVar("_Result")


class StorageRetry:
    """Retry policy for reads and writes of a turn.

    Writes must be idempotent, because a failed write may have been committed.
    """

    def __init__(self, seconds: float = RETRY_SECONDS) -> None:
        self._seconds = seconds
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Stop all retries for a shutdown."""
        self._closed.set()

    async def run(self, operation: Callable[[], Awaitable[_Result]], *, if_locked: bool = True) -> _Result:
        """Run a write or a read and return its result. While the storage is unavailable, retry with growing pauses.

        If ``if_locked`` is false, do not retry while another process has locked the session files.

        Raises:
            StorageBusy, StorageUnavailable: The storage was still unavailable at the time limit or at shutdown.
            MochiError: The operation failed with another error, which is not retried.
        """
        clock = asyncio.get_running_loop().time
        deadline, pause = clock() + self._seconds, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return await operation()
            except (StorageBusy, StorageUnavailable) as error:
                if clock() + pause > deadline or (isinstance(error, StorageBusy) and not if_locked):
                    raise
                with anyio.move_on_after(pause):
                    await self._closed.wait()
                    raise
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)


FLUSH_SECONDS = 2.0
_EARLY_SECONDS = 0.5
"""Time by which a flush can be early, so that several turns share one batch."""
_PAUSE_SECONDS = 0.125
"""Minimum pause between two batches."""
_FLUSHES_PER_BATCH = 125
_OVERDUE_SECONDS = 17.0
"""Delay after which a flush ignores the limit of its batch, so that no text waits longer than about 20 seconds."""

GetPartial = Callable[[], Message | None]
"""Function that returns a partial answer, or None if there is nothing to write."""

logger = logging.getLogger(__name__)


class Flusher:
    """Periodic writer of the partial answers of running turns.

    Each partial answer is flushed about two seconds after its first unsaved text. The limit is a thousand flushes per
    second: with more than two thousand concurrent turns, each turn is flushed less often. If the store can write
    several answers together, they are written in batches, because starting a task and a thread costs more than a write.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._scheduled: dict[str, tuple[float, GetPartial]] = {}
        """For each session, the time of its next flush on the loop's clock. The entries are ordered by time."""
        self._timer: asyncio.TimerHandle | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        """For each session, the flush that is running."""

    def schedule(self, session_id: str, get_partial: GetPartial) -> None:
        """Schedule a flush of the session's partial answer, unless one is scheduled already."""
        if session_id not in self._scheduled:
            self._scheduled[session_id] = asyncio.get_running_loop().time() + FLUSH_SECONDS, get_partial
            self._set_timer()

    async def finish(self, session_id: str) -> None:
        """Cancel the scheduled flush of a session, and wait until a flush that has begun ends."""
        while (task := self._running.get(session_id)) is not None:
            await asyncio.wait([task])
        self._scheduled.pop(session_id, None)

    def _set_timer(self) -> None:
        if self._scheduled and self._timer is None:
            loop = asyncio.get_running_loop()
            first_due, _ = next(iter(self._scheduled.values()))
            self._timer = loop.call_at(max(first_due, loop.time() + _PAUSE_SECONDS), self._start_due)

    def _start_due(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        batch: dict[str, GetPartial] = {}
        for session_id, (due, get_partial) in list(self._scheduled.items()):
            if due > now + (_EARLY_SECONDS if len(batch) < _FLUSHES_PER_BATCH else -_OVERDUE_SECONDS):
                break
            if session_id not in self._running:
                del self._scheduled[session_id]
                batch[session_id] = get_partial
        for group in [batch] if self._store.flushes_together else [{one: batch[one]} for one in batch]:
            self._start(group)
        self._set_timer()

    def _start(self, batch: Mapping[str, GetPartial]) -> None:
        task = asyncio.get_running_loop().create_task(self._flush(batch))
        self._running.update(dict.fromkeys(batch, task))

    async def _flush(self, batch: Mapping[str, GetPartial]) -> None:
        messages = {session_id: message for session_id, get in batch.items() if (message := get()) is not None}
        try:
            errors = await self._store.flush_all(messages) if messages else {}
        finally:
            for session_id in batch:
                del self._running[session_id]
        for session_id, error in errors.items():
            if isinstance(error, StorageBusy) and len(batch) > 1:
                self._start({session_id: batch[session_id]})  # waits for the lock, and delays no other session
            else:
                logger.warning("Partial answer not stored session_id=%s: %s", session_id, error)
                self.schedule(session_id, batch[session_id])


ConversationKind = Literal["session", "agent_chat", "in_memory"]


@dataclass(frozen=True, eq=False)
class Conversation:
    """One session together with the store that contains it."""

    session_id: str
    store: SessionStore
    flusher: Flusher
    """Writer of partial answers to ``store``."""
    kind: ConversationKind = "session"

    @property
    def run_key(self) -> str:
        """Key of the conversation's runs. Sessions, agent chats and conversations in memory may have equal IDs."""
        return self.session_id if self.kind == "session" else f"{self.kind}/{self.session_id}"


class Conversations:
    """Factory of conversations. ``chats`` contains the sessions of users, ``agent_chats`` those of agents."""

    def __init__(self, chats: SessionStore, agent_chats: SessionStore) -> None:
        self._chats, self._chat_flusher = chats, Flusher(chats)
        self._agent_chats, self._agent_flusher = agent_chats, Flusher(agent_chats)

    def stored(self, session_id: str) -> Conversation:
        """Return the conversation of a user's session. The session need not exist."""
        return Conversation(session_id, self._chats, self._chat_flusher)

    def agent_chat(self, session_id: str) -> Conversation:
        """Return the conversation of an agent's stored session. The session need not exist."""
        return Conversation(session_id, self._agent_chats, self._agent_flusher, "agent_chat")

    async def in_memory(self, session: ChatSession, images: Sequence[Image] = ()) -> Conversation:
        """Return a conversation that contains ``session`` and is never saved.

        ``images`` are the images to which the messages of ``session`` refer.
        """
        store = MemorySessionStore()
        stored = await store.put(session, images=images)
        return Conversation(stored.session_id, store, Flusher(store), "in_memory")
