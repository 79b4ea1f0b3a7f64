"""Running turns: each its own task, with its log of events, its listeners, and the ways it can end early."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

import anyio

from mochi_server.chat.engine import ChatEngine
from mochi_server.chat.turn import Turn, TurnRequest
from mochi_server.errors import InternalError, MochiError, SessionNotFound, ShuttingDown
from mochi_server.events import ChatEvent, Done, TurnError
from mochi_server.sessions.session import new_id
from mochi_server.sessions.store import SessionStore

RunState = Literal["running", "completed", "failed", "stopped", "cancelled"]
"""``stopped``: a person asked for it; ``cancelled``: the last listener left, or the server shut down."""

KEPT_SECONDS = 300
"""How long the events of an ended run can still be listened to."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Batch:
    """Events that came together. ``first`` is the number of the first one, counted from 1 in its run."""

    first: int
    events: list[ChatEvent]
    encoded: bytes | None = None
    """The batch as whoever sends it wrote it, so that it is written once for all listeners."""


@dataclass(eq=False)
class Run:
    """One turn under way or lately ended."""

    turn: Turn
    run_id: str = field(default_factory=new_id)
    state: RunState = "running"
    batches: list[Batch] = field(default_factory=list)
    listeners: int = 0
    task: "asyncio.Task[None] | None" = None
    _begun: bool = False
    _cancelled: bool = False
    _next: int = 1
    _waiting: "set[asyncio.Future[None]]" = field(default_factory=set)

    @property
    def session_id(self) -> str:
        return self.turn.session.session_id

    @property
    def running(self) -> bool:
        return self.state == "running"

    def cancel(self) -> None:
        """End the run early. A task that has not begun would never run its cleanup, so it is let begin first."""
        self._cancelled = True
        if self._begun and self.task is not None:
            self.task.cancel()

    def begin(self) -> None:
        """Called by the run's task, first of all."""
        self._begun = True
        if self._cancelled:
            raise asyncio.CancelledError

    def publish(self, events: list[ChatEvent]) -> None:
        """Add events to the log and wake each listener once."""
        self.batches.append(Batch(self._next, events))
        self._next += len(events)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    async def listen(self) -> AsyncGenerator[list[Batch], None]:
        """All events from the beginning, in as few pieces as they can be had, until the run has ended."""
        position = 0
        while True:
            if position < len(self.batches):
                news = self.batches[position:]
                position += len(news)
                yield news
            elif self.running:
                await self._change()
            else:
                return

    async def _change(self) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)


class Bystander(Protocol):
    """Somebody who works on sessions while they rest."""

    def turn_begins(self, session_id: str) -> None:
        """The session rests no longer."""
        ...

    def turn_ended(self, session_id: str) -> None:
        """The session rests."""
        ...


class RunRegistry:
    """All runs of this process, at most one at a time for a session."""

    def __init__(
        self,
        store: SessionStore,
        engine: ChatEngine,
        bystander: Bystander,
        *,
        disconnect_grace: float = 0,
        shutdown_grace: float = 5,
    ) -> None:
        self._store = store
        self._engine = engine
        self._bystander = bystander
        self._disconnect_grace = disconnect_grace
        self._shutdown_grace = shutdown_grace
        self._latest: dict[str, Run] = {}
        self._draining: asyncio.Task[None] | None = None
        self.shutdown = anyio.Event()
        """Set it to begin the shutdown; ``start`` then refuses."""

    async def start(self, session_id: str, request: TurnRequest) -> Run:
        """Begin a turn. Raises what a client should get as an HTTP status, ``SessionBusy`` among it."""
        if self._draining is None:
            self._draining = asyncio.get_running_loop().create_task(self._drain())
        if self.shutdown.is_set():
            raise ShuttingDown
        run_id = new_id()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._store.hold(session_id, run_id=run_id, wait=request.if_busy == "wait"))
            run = Run(await self._engine.prepare(session_id, request), run_id)
            self._bystander.turn_begins(session_id)
            hold = stack.pop_all()
        self._latest[session_id] = run
        run.task = asyncio.get_running_loop().create_task(self._drive(run, hold))
        return run

    def latest(self, session_id: str) -> Run | None:
        """The run of a session that is under way or ended lately."""
        return self._latest.get(session_id)

    async def stop(self, session_id: str) -> Run | None:
        """End the running turn of a session, if there is one; what was said is stored when this returns."""
        run = self.latest(session_id)
        if run is not None and run.running:
            run.turn.stopped = True
            await _cancel(run)
        return run

    async def abandon(self, session_id: str) -> None:
        """End the running turn of a session that is about to be deleted."""
        run = self.latest(session_id)
        if run is not None and run.running:
            run.turn.failure = SessionNotFound(session_id)
            await _cancel(run)

    @contextmanager
    def listening(self, run: Run) -> Iterator[None]:
        """Be counted as a listener; when the last one leaves, the turn is cancelled unless it may go on."""
        run.listeners += 1
        try:
            yield
        finally:
            run.listeners -= 1
            if run.listeners == 0 and run.running and run.turn.request.on_disconnect == "cancel":
                asyncio.get_running_loop().call_later(self._disconnect_grace, self._leave, run)

    async def aclose(self) -> None:
        """Cancel what still runs and wait until it is stored."""
        self.shutdown.set()
        if self._draining is not None:
            self._draining.cancel()
        await self._cancel_all()

    async def _drive(self, run: Run, hold: AsyncExitStack) -> None:
        try:
            async with hold:
                run.begin()
                async with aclosing(self._engine.run(run.turn)) as batches:
                    async for batch in batches:
                        run.publish(batch)
        except asyncio.CancelledError:
            if run.turn.failure is not None:
                run.publish([TurnError.of(run.turn.failure)])
            self._end(run, "stopped" if run.turn.stopped else "cancelled")
        except Exception as error:
            run.turn.failure = error if isinstance(error, MochiError) else InternalError()
            logger.exception("Run %s did not end well", run.run_id)
            run.publish([TurnError.of(run.turn.failure)])
            self._end(run, "failed")
        else:
            self._end(run, "failed" if run.turn.failure else "completed")

    def _end(self, run: Run, state: RunState) -> None:
        # The session is free by now: whoever reads `done` may begin the next turn at once.
        run.state = state
        run.turn.session.messages = []  # an ended run need not hold the whole history
        run.publish([Done(run.session_id)])
        if not self.shutdown.is_set():
            self._bystander.turn_ended(run.session_id)
        asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget, run.session_id, run.run_id)

    def _forget(self, session_id: str, run_id: str) -> None:
        run = self._latest.get(session_id)
        if run is not None and run.run_id == run_id:
            del self._latest[session_id]

    def _leave(self, run: Run) -> None:
        if run.listeners == 0 and run.running:
            run.cancel()

    async def _drain(self) -> None:
        await self.shutdown.wait()
        await asyncio.sleep(self._shutdown_grace)
        await self._cancel_all()

    async def _cancel_all(self) -> None:
        running = [run for run in self._latest.values() if run.running]
        for run in running:
            run.turn.failure = ShuttingDown()
        await asyncio.gather(*(_cancel(run) for run in running))


async def _cancel(run: Run) -> None:
    """Cancel a run and wait for its end, also when whoever waits is cancelled meanwhile."""
    run.cancel()
    if run.task is not None:
        await asyncio.wait([run.task])
