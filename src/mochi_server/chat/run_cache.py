"""Ended runs, which can be listened to for a while, and the idempotency keys of all runs."""

import asyncio
from collections.abc import Awaitable, Callable

from mochi_server.chat.run import Run
from mochi_server.chat.turn import TurnRequest
from mochi_server.errors import IdempotencyKeyReused

RETENTION_SECONDS = 300
"""How long the events of an ended run can still be listened to."""

MAX_BYTES = 64 * 1024 * 1024
"""What the events of all ended runs together may take up in memory, in bytes; the oldest go first."""
_RUN_BYTES = 4096


class RunCache:
    """The runs of all sessions, those under way and those that ended lately."""

    def __init__(self, retention_seconds: float = RETENTION_SECONDS) -> None:
        self._retention_seconds = retention_seconds
        self._runs: dict[str, dict[str, Run]] = {}
        """By session and by id, the latest last."""
        self._keys: dict[tuple[str, str], Run] = {}
        self._starting: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._ended: dict[str, tuple[Run, int, float]] = {}
        """Ended runs with what they take up, and when they are forgotten, the oldest first."""
        self._sweep: asyncio.TimerHandle | None = None
        self._bytes = 0

    def add(self, run: Run) -> None:
        """A run has begun."""
        self._runs.setdefault(run.session_id, {})[run.run_id] = run

    def running(self) -> list[Run]:
        """The runs under way."""
        return [run for runs in self._runs.values() for run in runs.values() if run.running]

    def find(self, session_id: str, run_id: str | None = None) -> Run | None:
        """The run of that id, else the one of the session that is under way or ended last."""
        runs = self._runs.get(session_id)
        return None if not runs else runs.get(run_id or "") or runs[next(reversed(runs))]

    def retain(self, run: Run) -> None:
        """Keep an ended run for a while, unless there are too many."""
        run.task = None  # it keeps everything that the turn worked with
        size = run.log.size + _RUN_BYTES
        loop = asyncio.get_running_loop()
        until = loop.time() + self._retention_seconds
        self._ended[run.run_id] = (run, size, until)
        self._bytes += size
        if self._sweep is None:
            self._sweep = loop.call_at(until, self._drop_expired, loop)
        while self._bytes > MAX_BYTES and len(self._ended) > 1:
            self._drop(self._oldest[0])

    def drop_session(self, session_id: str) -> None:
        """Forget the ended runs of a session that is gone."""
        for run in list(self._runs.get(session_id, {}).values()):
            self._drop(run)

    async def get_or_start(
        self, session_id: str, key: str, request: TurnRequest, start: Callable[[], Awaitable[Run]]
    ) -> Run:
        """The run that a key has begun, or else a new one. Raises ``IdempotencyKeyReused``, and what ``start`` does."""
        place = (session_id, key)
        while (starting := self._starting.get(place)) is not None:
            await asyncio.wait([starting])
        if (run := self._keys.get(place)) is not None:
            if not run.request.is_same_request(request):
                raise IdempotencyKeyReused(key, run.run_id)
            return run
        self._starting[place] = asyncio.get_running_loop().create_future()
        try:
            run = self._keys[place] = await start()
            run.key = key
            return run
        finally:
            self._starting.pop(place).set_result(None)

    @property
    def _oldest(self) -> tuple[Run, int, float]:
        return next(iter(self._ended.values()))

    def _drop_expired(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._ended and self._oldest[2] <= loop.time():
            self._drop(self._oldest[0])
        self._sweep = loop.call_at(self._oldest[2], self._drop_expired, loop) if self._ended else None

    def _drop(self, run: Run) -> None:
        if run.run_id not in self._ended:
            return
        _, size, _ = self._ended.pop(run.run_id)
        self._bytes -= size
        runs = self._runs[run.session_id]
        del runs[run.run_id]
        if not runs:
            del self._runs[run.session_id]
        if run.key is not None:
            del self._keys[run.session_id, run.key]
