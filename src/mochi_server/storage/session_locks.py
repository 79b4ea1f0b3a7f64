"""Session locks within one process, which allow one turn or edit of a session at a time."""

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from mochi_server.errors import SessionBusy


class _Waiter(NamedTuple):
    run_id: str | None
    wait: bool
    granted: "asyncio.Future[None]"


@dataclass
class _Lock:
    run_id: str | None
    waiting: list[_Waiter] = field(default_factory=list)


class SessionLocks:
    """Exclusive locks, one per session, granted in the order of the requests. Use them in one event loop."""

    def __init__(self) -> None:
        self._locks: dict[str, _Lock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    async def acquire(self, session_id: str, *, run_id: str | None = None, wait: bool = False) -> None:
        """Lock a session. Raises SessionBusy if a turn has the lock and ``wait`` is false."""
        lock = self._locks.get(session_id)
        if lock is None:
            self._locks[session_id] = _Lock(run_id)
            return
        if lock.run_id is not None and not wait:
            raise SessionBusy(session_id, lock.run_id)
        granted = asyncio.get_running_loop().create_future()
        lock.waiting.append(_Waiter(run_id, wait, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self.release(session_id)
            raise

    def release(self, session_id: str) -> None:
        """Unlock a session for the next waiter. If that is a turn, other waiters without ``wait`` are refused."""
        waiting = [waiter for waiter in self._locks[session_id].waiting if not waiter.granted.done()]
        if not waiting:
            del self._locks[session_id]
            return
        first, *others = waiting
        lock = self._locks[session_id] = _Lock(first.run_id)
        first.granted.set_result(None)
        for waiter in others:
            if first.run_id is not None and not waiter.wait:
                waiter.granted.set_exception(SessionBusy(session_id, first.run_id))
            else:
                lock.waiting.append(waiter)
