"""Session locks within one process, which allow one turn or edit of a session at a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from mochi_server.errors import SessionBusy


class _Request(NamedTuple):
    run_id: str | None
    wait: bool
    granted: "asyncio.Future[None]"


class SessionLocks:
    """Exclusive locks, one per session, granted in the order of the requests. Use them in one event loop."""

    def __init__(self) -> None:
        self._queues: dict[str, list[_Request]] = {}
        """Requests by session. The first one has the lock."""

    def __len__(self) -> int:
        return len(self._queues)

    @asynccontextmanager
    async def holding(self, session_id: str, *, run_id: str | None = None, wait: bool = False) -> AsyncIterator[None]:
        """Lock a session. Raises SessionBusy if a turn has the lock, or gets it first, and ``wait`` is false."""
        queue = self._queues.get(session_id, [])
        if queue and queue[0].run_id is not None and not wait:
            raise SessionBusy(session_id, queue[0].run_id)
        request = _Request(run_id, wait, asyncio.get_running_loop().create_future())
        queue.append(request)
        if len(queue) == 1:
            self._grant_first(session_id, queue)
        try:
            await request.granted
            yield
        finally:
            if request in queue:
                had_lock = queue[0] is request
                queue.remove(request)
                if had_lock:
                    self._grant_first(session_id, queue)

    def _grant_first(self, session_id: str, queue: list[_Request]) -> None:
        """Grant the first request that is not cancelled. If it is a turn, refuse others without ``wait``."""
        queue[:] = [request for request in queue if not request.granted.done()]
        if not queue:
            del self._queues[session_id]
            return
        first, *others = queue
        self._queues[session_id] = queue
        first.granted.set_result(None)
        if first.run_id is not None:
            queue[1:] = [request for request in others if request.wait]
            for request in others:
                if not request.wait:
                    request.granted.set_exception(SessionBusy(session_id, first.run_id))
