"""Session locks within one process, which allow one turn or edit of a session at a time."""

import asyncio
import threading
from dataclasses import dataclass, field

from mochi_server.errors import SessionBusy


@dataclass(eq=False)
class _Waiter:
    run_id: str | None
    wait: bool
    woken: asyncio.Future[None]
    is_granted: bool = False
    error: SessionBusy | None = None

    def wake(self) -> None:
        loop = self.woken.get_loop()
        if loop is asyncio.get_running_loop():
            self._set_result()
        else:
            loop.call_soon_threadsafe(self._set_result)

    def _set_result(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


@dataclass
class _Lock:
    run_id: str | None
    waiting: list[_Waiter] = field(default_factory=list)


class SessionLocks:
    """Exclusive locks, one per session, granted in the order of the requests. Released locks use no memory.

    Several event loops can share the locks. Each lock that ``acquire`` grants must be released with ``release``.
    """

    def __init__(self) -> None:
        self._locks: dict[str, _Lock] = {}
        self._mutex = threading.Lock()

    def __len__(self) -> int:
        return len(self._locks)

    async def acquire(self, session_id: str, *, run_id: str | None = None, wait: bool = False) -> None:
        """Lock a session. Raises SessionBusy if a turn has the lock and ``wait`` is false."""
        with self._mutex:
            lock = self._locks.get(session_id)
            if lock is None:
                self._locks[session_id] = _Lock(run_id)
                return
            if lock.run_id is not None and not wait:
                raise SessionBusy(session_id, lock.run_id)
            waiter = _Waiter(run_id, wait, asyncio.get_running_loop().create_future())
            lock.waiting.append(waiter)
        try:
            await waiter.woken
        except asyncio.CancelledError:
            with self._mutex:
                if waiter in lock.waiting:
                    lock.waiting.remove(waiter)
            if waiter.is_granted:
                self.release(session_id)
            raise
        if waiter.error is not None:
            raise waiter.error

    def release(self, session_id: str) -> None:
        """Unlock a session, and grant its lock to the next waiter.

        If that waiter is a turn, all other waiting calls of ``acquire`` with ``wait=False`` raise SessionBusy.
        """
        with self._mutex:
            lock = self._locks[session_id]
            waiting = [waiter for waiter in lock.waiting if not waiter.woken.done()]
            if not waiting:
                del self._locks[session_id]
                return
            first, *lock.waiting = waiting
            first.is_granted, lock.run_id = True, first.run_id
            refused = [waiter for waiter in lock.waiting if first.run_id is not None and not waiter.wait]
            for waiter in refused:
                lock.waiting.remove(waiter)
                waiter.error = SessionBusy(session_id, str(first.run_id))
        for waiter in (first, *refused):
            waiter.wake()
