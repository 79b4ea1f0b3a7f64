"""Cache of running and recently ended runs, with their idempotency keys."""

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from mochi_server.chat.run import Run
from mochi_server.chat.turn_input import TurnInput
from mochi_server.errors import IdempotencyKeyReused

RETENTION_SECONDS = 300
"""Time in seconds for which the events of an ended run can be read."""

MAX_BYTES = 64 * 1024 * 1024
"""Memory limit for the events of all ended runs, in bytes. The oldest runs are dropped first."""
_RUN_BYTES = 4096


class RunCache:
    """Cache of runs. Ended runs are dropped after ``retention_seconds``."""

    def __init__(self, retention_seconds: float = RETENTION_SECONDS) -> None:
        self._retention_seconds = retention_seconds
        self._runs: dict[str, dict[str, Run]] = {}
        """Runs by the run key of their conversation, then by run ID. The latest run is last."""
        self._keys: dict[tuple[str, str], Run] = {}
        self._starting: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._ended: dict[str, tuple[Run, int, float]] = {}
        """Ended runs by run ID, oldest first: the run, its size in bytes and its expiry on the loop's clock."""
        self._sweep: asyncio.TimerHandle | None = None
        self._bytes = 0

    def add(self, run: Run) -> None:
        self._runs.setdefault(run.conversation.run_key, {})[run.run_id] = run

    def running(self) -> list[Run]:
        return [run for runs in self._runs.values() for run in runs.values() if run.running]

    def find(self, session_id: str, run_id: str | None = None) -> Run | None:
        """Return the run with ``run_id``, or None if no run of the session is cached.

        If ``run_id`` is None or that run is not cached, return the session's latest run.
        """
        runs = self._runs.get(session_id)
        return None if not runs else runs.get(run_id or "") or runs[next(reversed(runs))]

    def with_key(self, session_id: str, key: str) -> Run | None:
        return self._keys.get((session_id, key))

    def release_key(self, session_id: str, key: str) -> None:
        """Remove an idempotency key from its run, so that a new run can use the key."""
        self._keys.pop((session_id, key), None)

    def retain(self, run: Run) -> None:
        """Retain an ended run until it expires or the memory limit is reached. Clients find only runs of sessions."""
        run.release()
        if run.conversation.kind != "session":
            self._remove(run)
            return
        size = run.log.size + _RUN_BYTES
        loop = asyncio.get_running_loop()
        expires_at = loop.time() + self._retention_seconds
        self._ended[run.run_id] = (run, size, expires_at)
        self._bytes += size
        if self._sweep is None:
            self._sweep = loop.call_at(expires_at, self._drop_expired, loop)
        while self._bytes > MAX_BYTES and len(self._ended) > 1:
            self._drop(self._oldest[0])

    def drop_session(self, session_id: str) -> None:
        """Drop the ended runs of a deleted session."""
        for run in list(self._runs.get(session_id, {}).values()):
            self._drop(run)

    async def get_or_start(
        self, session_id: str, key: str, turn_input: TurnInput, start: Callable[[], Awaitable[Run]]
    ) -> Run:
        """Return the run with this idempotency key. If there is no such run, start a run by calling ``start``.

        Raises:
            IdempotencyKeyReused: The run with this key was started by a different request.
        """
        session_key = (session_id, key)
        lock = self._starting.setdefault(session_key, asyncio.Lock())
        async with lock:
            run = self._keys.get(session_key)
            if run is None:
                run = self._keys[session_key] = await start()
            elif not run.input.is_same_request(turn_input):
                raise IdempotencyKeyReused(key, run.run_id)
            return run

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
        self._remove(run)
        session_key = (run.session_id, run.input.key or "")
        if self._keys.get(session_key) is run:
            del self._keys[session_key]

    def _remove(self, run: Run) -> None:
        run_key = run.conversation.run_key
        runs = self._runs[run_key]
        del runs[run.run_id]
        if not runs:
            del self._runs[run_key]
