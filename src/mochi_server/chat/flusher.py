"""Periodic flushes of partial answers, so that a crash loses only the last seconds of text."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message

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
    second: with more than two thousand concurrent turns, each turn is flushed less often. Answers are written in
    batches, because starting a task and a thread costs more than a write.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._scheduled: dict[str, tuple[float, GetPartial]] = {}
        """For each session, the time of its next flush on the loop's clock. The entries are ordered by time."""
        self._timer: asyncio.TimerHandle | None = None
        self._batch: asyncio.Task[None] | None = None
        self._in_batch: dict[str, GetPartial] = {}

    def schedule(self, session_id: str, get_partial: GetPartial) -> None:
        """Schedule a flush of the session's partial answer, unless one is scheduled already."""
        if session_id not in self._scheduled:
            self._scheduled[session_id] = asyncio.get_running_loop().time() + FLUSH_SECONDS, get_partial
            self._set_timer()

    async def finish(self, session_id: str) -> None:
        """Cancel the scheduled flush of a session, and wait until a flush that has begun ends."""
        while self._batch is not None and session_id in self._in_batch:
            await asyncio.wait([self._batch])
        self._scheduled.pop(session_id, None)

    def _set_timer(self) -> None:
        if self._scheduled and self._timer is None and self._batch is None:
            loop = asyncio.get_running_loop()
            first_due, _ = next(iter(self._scheduled.values()))
            self._timer = loop.call_at(max(first_due, loop.time() + _PAUSE_SECONDS), self._begin_batch)

    def _begin_batch(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        messages = {}
        for index, (session_id, (due, get_partial)) in enumerate(list(self._scheduled.items())):
            if due > loop.time() + (_EARLY_SECONDS if index < _FLUSHES_PER_BATCH else -_OVERDUE_SECONDS):
                break
            del self._scheduled[session_id]
            if (message := get_partial()) is not None:
                messages[session_id] = message
                self._in_batch[session_id] = get_partial
        if messages:
            self._batch = loop.create_task(self._flush_batch(messages))
        else:
            self._set_timer()

    async def _flush_batch(self, messages: Mapping[str, Message]) -> None:
        try:
            for session_id, error in (await self._store.flush_all(messages)).items():
                logger.warning("Partial answer not stored session_id=%s: %s", session_id, error.message)
                self.schedule(session_id, self._in_batch[session_id])
        finally:
            self._batch, self._in_batch = None, {}
            self._set_timer()
