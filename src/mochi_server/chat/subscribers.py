"""Subscribers, which receive the events of a run as they are published."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from mochi_server.chat.event_log import Batch, EventLog
from mochi_server.util.tasks import EagerCall

Receive = Callable[[Batch], Coroutine[Any, Any, None]]


class EventSource(Protocol):
    """What subscribers need of a run."""

    log: EventLog

    @property
    def running(self) -> bool:
        """Whether further events can follow."""


class Subscriber:
    """Subscriber to the events of a run, which it passes to ``receive``.

    Its task repeats ``catch_up`` and ``wait_for_events`` until the run has ended. As long as
    ``receive`` returns without waiting, it is called without a task switch.
    """

    def __init__(self, source: EventSource, receive: Receive, position: int) -> None:
        """``position`` is the number of the last event that the subscriber has."""
        self._source = source
        self._receive = receive
        self._position = position
        self._is_fast = False  # whether the latest call of ``receive`` returned without waiting
        self._call: EagerCall | None = None
        self._loop = asyncio.get_running_loop()
        self._wakeup: asyncio.Future[None] | None = None  # ends the wait of the task, if it waits
        self._last_activity = self._loop.time()

    def notify(self, batch: Batch) -> None:
        """Pass the latest batch directly to ``receive`` if ``receive`` is fast and the task waits.

        Otherwise, wake the task if it waits.
        """
        self._last_activity = self._loop.time()
        if self._wakeup is None or self._wakeup.done():
            return
        if self._is_fast:
            self._position = batch.last
            call = EagerCall(self._receive(batch))
            if call.is_done and self._source.running:
                return
            self._call = call  # it waits or has failed, or the run has ended
        self._wakeup.set_result(None)

    def wake(self) -> None:
        """End the wait of the task, if it waits."""
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def catch_up(self) -> bool:
        """Pass the new events to ``receive``. Return whether the run is still running."""
        while True:
            if self._call is None:
                batch = self._source.log.after(self._position)
                if batch is None:
                    return self._source.running
                self._position = batch.last
                self._call = EagerCall(self._receive(batch))
            call, self._call = self._call, None
            self._is_fast = call.is_done
            await call

    async def wait_for_events(self, idle: float | None) -> bool:
        """Wait until ``notify`` or ``wake`` wakes the task, and return True.

        Return False if ``idle`` seconds have passed since the latest ``notify``. True does not mean
        that there are new events: ``notify`` may have passed them to ``receive``.
        """
        self._wakeup = self._loop.create_future()
        if idle is None:
            await self._wakeup
            return True
        timer = self._loop.call_at(self._last_activity + idle, self.wake)
        try:
            await self._wakeup
        finally:
            timer.cancel()
        if self._loop.time() - self._last_activity < idle:
            return True
        self._last_activity = self._loop.time()
        return False

    def close(self) -> None:
        if self._call is not None:
            self._call.close()
