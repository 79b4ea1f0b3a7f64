"""Registry of runs. It starts turns as tasks, finds runs by ID, and stops or cancels them."""

import asyncio
import logging
import sys
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

import anyio

from mochi_server.chat.conversation import Conversation
from mochi_server.chat.engine import ChatEngine
from mochi_server.chat.run import Run, RunState
from mochi_server.chat.run_cache import RunCache
from mochi_server.chat.turn import Turn, TurnResult
from mochi_server.chat.turn_input import TurnInput
from mochi_server.errors import InternalError, MochiError, SessionTaken, ShuttingDown
from mochi_server.events import Done, Stopped, TurnError
from mochi_server.sessions.store import SessionStore
from mochi_server.util.clock import new_id

logger = logging.getLogger(__name__)


class RunObserver(Protocol):
    """Observer that the registry calls when a turn starts or ends, and before a session is deleted.

    ``answer_id`` is the message ID of the turn's last answer. It is None if the model has not answered.
    """

    def turn_starting(self, session_id: str) -> None: ...
    def turn_ended(self, session_id: str, answer_id: str | None) -> None: ...
    def session_deleting(self, session_id: str) -> None: ...


@dataclass(eq=False)
class RunRegistry:
    """Registry of this process's runs. A session has at most one running turn. All times are in seconds."""

    store: SessionStore
    """Store of the sessions whose runs clients can find."""
    engine: ChatEngine
    observer: RunObserver
    prefetch: Callable[[], object] = lambda: None
    """Function that a turn calls when it starts, to request what the server will soon need."""
    disconnect_grace: float = 0
    shutdown_grace: float = 5
    on_ended: Callable[[Run], None] = lambda _: None
    cache: RunCache = field(default_factory=RunCache)
    shutdown: anyio.Event = field(default_factory=anyio.Event)
    """Event that begins the shutdown. After it is set, ``start`` raises ``ShuttingDown``."""
    _shutdown_task: "asyncio.Task[None] | None" = field(default=None, init=False)

    async def start(self, conversation: Conversation, turn_input: TurnInput) -> Run:
        """Start a turn and return its run. If a run with the same idempotency key exists, return that run.

        Raise a ``MochiError`` if the session is busy, the input is invalid or the server shuts down.
        """
        if turn_input.key is None:
            return await self._start(conversation, turn_input)
        return await self.cache.get_or_start(
            conversation.session_id, turn_input.key, turn_input, lambda: self._start(conversation, turn_input)
        )

    async def _start(self, conversation: Conversation, turn_input: TurnInput) -> Run:
        if self._shutdown_task is None:
            self._shutdown_task = asyncio.get_running_loop().create_task(self._wait_for_shutdown())
        self.prefetch()  # in the background, so that the turn need not wait for it
        self._refuse_at_shutdown()
        run_id = new_id()
        lock = conversation.store.hold(conversation.session_id, run_id=run_id, wait=turn_input.if_busy == "wait")
        await lock.__aenter__()
        try:
            turn = await self.engine.prepare(conversation, turn_input)
            self._refuse_at_shutdown()
            grace = self.disconnect_grace if conversation.kind == "session" else 0
            run = Run(conversation, turn_input.without_data(), run_id, turn.position, grace)
            self.observer.turn_starting(conversation.session_id)
        except BaseException:
            await lock.__aexit__(*sys.exc_info())
            raise
        self.cache.add(run)
        run.task = asyncio.get_running_loop().create_task(self._execute(run, turn, lock))
        return run

    async def find(self, session_id: str, run_id: str | None = None) -> Run | None:
        """Return the run with ``run_id``, or None if no run of the session is cached.

        If ``run_id`` is None or that run is not cached, return the session's latest run. Raises ``SessionNotFound``.
        """
        run = self.cache.find(session_id, run_id)
        if run is None or not run.running:
            await self.store.load(session_id)
        return run

    async def stop(self, session_id: str) -> Run | None:
        """Stop the running turn of a session. Return its latest run, if any. Raise ``SessionNotFound``."""
        run = await self.find(session_id)
        if run is not None and run.running:
            await _cancel(run, stopped=True)
        return run

    async def abandon(self, session_id: str) -> None:
        """Prepare the deletion of a session: stop its running turn and drop its ended runs."""
        run = self.cache.find(session_id)
        if run is not None and run.running:
            await _cancel(run, stopped=True)
        self.cache.drop_session(session_id)
        self.observer.session_deleting(session_id)

    async def drain(self) -> None:
        """Refuse new turns, wait at most ``shutdown_grace`` seconds for running turns, then cancel the rest."""
        self.shutdown.set()
        if running := self.cache.running():
            await asyncio.wait([run.task for run in running if run.task], timeout=self.shutdown_grace)
        await self.end_all()

    async def end_all(self) -> None:
        """Cancel running turns for a shutdown and store their partial answers."""
        self.engine.retry.close()
        running = self.cache.running()
        for run in running:
            run.abort_error = ShuttingDown(was_running=True)
        await asyncio.gather(*(_cancel(run) for run in running))

    def abort_all(self, session_ids: Collection[str]) -> None:
        """Cancel the running turns of the given sessions, because other servers have taken these sessions over."""
        for run in self.cache.running():
            if run.session_id in session_ids:
                run.abort_error = SessionTaken(run.session_id)
                run.cancel()

    async def aclose(self) -> None:
        """Refuse new turns, cancel the running turns and store their partial answers."""
        self.shutdown.set()
        if self._shutdown_task is not None:
            self._shutdown_task.cancel()
        await self.end_all()

    async def _execute(self, run: Run, turn: Turn, lock: AbstractAsyncContextManager[None]) -> None:
        result: TurnResult | None = None
        try:
            try:
                running = self.engine.run(turn, run)
                del turn  # so that the engine can free the bytes of its images
                result = await running
            finally:
                await lock.__aexit__(*sys.exc_info())
        except asyncio.CancelledError:
            result = result or TurnResult(cancelled=True)
        except Exception as error:
            logger.exception("Run failed unexpectedly run_id=%s", run.run_id)
            failure = error if isinstance(error, MochiError) else InternalError()
            result = replace(result or TurnResult(), failure=failure)
        run.result = result
        if run.failure is not None:
            run.publish([TurnError.of(run.failure)])
        if result.cancelled:
            self._end(run, "stopped" if run.stopped else "cancelled")
        else:
            self._end(run, "failed" if run.failure else "completed")
        if (stored_error := run.failure) is not None:  # the traceback refers to all data of the turn
            stored_error.__traceback__ = stored_error.__cause__ = stored_error.__context__ = None

    def _end(self, run: Run, state: RunState) -> None:
        # The session lock is released before `done`, because a client may start its next turn on `done`.
        run.state = state
        self.on_ended(run)
        if state == "stopped" and run.failure is None:
            run.publish([Stopped(run.result.partial_id)])
        run.publish([Done(run.session_id)])
        if run.conversation.kind != "session":
            self.observer.session_deleting(run.session_id)
        elif not self.shutdown.is_set():
            answer = run.result.answer
            self.observer.turn_ended(run.session_id, answer["message_id"] if answer else None)
        self.cache.retain(run)

    async def _wait_for_shutdown(self) -> None:
        await self.shutdown.wait()
        await self.drain()

    def _refuse_at_shutdown(self) -> None:
        if self.shutdown.is_set():
            raise ShuttingDown


async def _cancel(run: Run, *, stopped: bool = False) -> None:
    """Cancel a run and wait until it has ended. ``stopped`` states whether a client has requested the cancellation."""
    run.stopped = run.stopped or stopped
    run.cancel()
    if run.task is not None:
        await asyncio.wait([run.task])
