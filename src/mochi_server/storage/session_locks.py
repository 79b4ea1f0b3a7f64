"""Locks of sessions within one event loop: one turn or edit at a time, in the order of requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from mochi_server.errors import SessionBusy


@dataclass(eq=False)
class _Waiter:
    run_id: str | None
    wait: bool
    turn: asyncio.Future[None]


@dataclass
class _Lock:
    run_id: str | None
    waiting: list[_Waiter] = field(default_factory=list)


class SessionLocks:
    """One holder per session, in the order of requests. For one event loop; free sessions leave nothing here."""

    def __init__(self) -> None:
        self._locks: dict[str, _Lock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def lock(self, session_id: str, *, run_id: str | None = None, wait: bool = False) -> AsyncIterator[None]:
        """Be the one holder inside, after those that were first. Raises SessionBusy during a turn, unless ``wait``."""
        await self._acquire(session_id, run_id, wait)
        try:
            yield
        finally:
            self._release(session_id)

    async def _acquire(self, session_id: str, run_id: str | None, wait: bool) -> None:
        hold = self._locks.get(session_id)
        if hold is None:
            self._locks[session_id] = _Lock(run_id)
            return
        if hold.run_id is not None and not wait:
            raise SessionBusy(session_id, hold.run_id)
        waiter = _Waiter(run_id, wait, asyncio.get_running_loop().create_future())
        hold.waiting.append(waiter)
        try:
            await waiter.turn
        except asyncio.CancelledError:
            if waiter in hold.waiting:
                hold.waiting.remove(waiter)
            elif waiter.turn.done() and not waiter.turn.cancelled() and waiter.turn.exception() is None:
                self._release(session_id)
            raise

    def _release(self, session_id: str) -> None:
        """Make the next waiter the holder; if that is a turn, refuse those that do not want to wait for one."""
        hold = self._locks[session_id]
        waiting = [waiter for waiter in hold.waiting if not waiter.turn.done()]
        if not waiting:
            del self._locks[session_id]
            return
        chosen, *hold.waiting = waiting
        hold.run_id = chosen.run_id
        chosen.turn.set_result(None)
        if chosen.run_id is not None:
            for waiter in hold.waiting:
                if not waiter.wait:
                    waiter.turn.set_exception(SessionBusy(session_id, chosen.run_id))
            hold.waiting = [waiter for waiter in hold.waiting if waiter.wait]
