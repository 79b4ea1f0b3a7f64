"""Flushes of partial answers, which limit the text that a crash can lose."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from itertools import islice, takewhile

from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message

FLUSH_SECONDS = 2.0
_EARLY_SECONDS = 0.5
"""Time by which a flush may be early, so that several turns share one batch."""
_PAUSE_SECONDS = 0.125
_FLUSHES_PER_BATCH = 125
_MAX_DELAY_SECONDS = 17.0
"""Delay after the two seconds from which flushes are no longer limited, so that no text waits longer than 20 s."""

Partial = Callable[[], Message | None]
"""Function that returns a partial answer, or None if there is nothing to write."""

logger = logging.getLogger(__name__)


class Flusher:
    """Writer of the partial answers of a store's running turns.

    Each partial answer is flushed at most two seconds after its first unsaved text, and at most a thousand are flushed
    per second. With more than two thousand concurrent turns, each turn is flushed less often. Answers are written in
    batches, because the thread and the task of a flush cost more than its write.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._scheduled: dict[str, tuple[float, Partial]] = {}
        """For each session, the time of its next flush on the loop's clock, and the function that returns the text."""
        self._timer: asyncio.TimerHandle | None = None
        self._batch: asyncio.Task[None] | None = None
        self._in_batch: dict[str, Partial] = {}

    def schedule(self, session_id: str, partial: Partial) -> None:
        """Schedule a flush of the session's partial answer, unless one is scheduled already."""
        if session_id not in self._scheduled:
            self._scheduled[session_id] = asyncio.get_running_loop().time() + FLUSH_SECONDS, partial
            self._set_timer()

    async def finish(self, session_id: str) -> None:
        """Cancel the scheduled flush of a session, and wait until a flush that has begun ends."""
        if self._batch is not None and session_id in self._in_batch:
            await asyncio.shield(self._batch)
        self._scheduled.pop(session_id, None)

    def _set_timer(self) -> None:
        if self._scheduled and self._timer is None and self._batch is None:
            loop = asyncio.get_running_loop()
            first, _ = next(iter(self._scheduled.values()))
            self._timer = loop.call_at(max(first, loop.time() + _PAUSE_SECONDS), self._begin_batch)

    def _begin_batch(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        overdue = self._count_due(loop.time() - _MAX_DELAY_SECONDS)
        due = self._count_due(loop.time() + _EARLY_SECONDS)
        partials = {}
        for session_id in list(islice(self._scheduled, max(overdue, min(due, _FLUSHES_PER_BATCH)))):
            _, partial = self._scheduled.pop(session_id)
            if (message := partial()) is not None:
                partials[session_id] = message
                self._in_batch[session_id] = partial
        if partials:
            self._batch = loop.create_task(self._flush_batch(partials))
        else:
            self._set_timer()

    def _count_due(self, moment: float) -> int:
        """Return how many flushes are scheduled up to ``moment``. Flushes are scheduled in the order of their times."""
        return sum(1 for _ in takewhile(lambda entry: entry[0] <= moment, self._scheduled.values()))

    async def _flush_batch(self, partials: Mapping[str, Message]) -> None:
        try:
            for session_id, error in (await self._store.flush_all(partials)).items():
                logger.warning("Partial answer not stored session_id=%s: %s", session_id, error.message)
                self.schedule(session_id, self._in_batch[session_id])
        finally:
            self._batch, self._in_batch = None, {}
            self._set_timer()
