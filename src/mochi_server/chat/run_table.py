"""Table of the runs of this process: live ones, and ended ones whose events can still be read."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from weakref import WeakValueDictionary

from mochi_server.chat.conversation import Conversation
from mochi_server.chat.run import Run
from mochi_server.chat.turn_input import TurnInput
from mochi_server.errors import IdempotencyKeyReused
from mochi_server.sessions.caller import CALLER

RETENTION_SECONDS = 300  # time for which the events of an ended run can be read
MAX_BYTES = 64 * 1024 * 1024  # for the events of all ended runs
_RUN_BYTES = 4096


class RunTable:
    """Runs by session and ID. Ended runs are dropped after ``retention_seconds``.

    They are dropped earlier, the oldest first, while the events of all ended runs need more than
    ``max_bytes``. The latest ended run is not dropped earlier.
    """

    def __init__(
        self, retention_seconds: float = RETENTION_SECONDS, max_bytes: int | None = None
    ) -> None:
        self._retention_seconds = retention_seconds
        self._max_bytes = MAX_BYTES if max_bytes is None else max_bytes
        self._runs: dict[str, dict[str, Run]] = {}  # by run key and run ID, the latest run last
        self._starting: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._ended: dict[str, Run] = {}  # ended runs by run ID, oldest first
        # By session ID, while a client is connected.
        self._suspended: WeakValueDictionary[str, Run] = WeakValueDictionary()
        # IDs of the runs that are about to continue suspended turns here, by session ID.
        self._continuing: dict[str, str] = {}
        self._bytes = 0

    def add(self, run: Run) -> None:
        self._runs.setdefault(run.conversation.run_key, {})[run.run_id] = run

    def running(self) -> list[Run]:
        running: list[Run] = []
        for runs in self._runs.values():
            running += [run for run in runs.values() if run.running]
        return running

    def tasks(self) -> "list[asyncio.Task[None]]":
        """Return the tasks that execute turns."""
        return [run.task for run in self.running() if run.task]

    def find(self, run_key: str, run_id: str | None = None) -> Run | None:
        """Return the run with ``run_id`` if the conversation has it here, else its latest run.

        Return None if it has no run here, or the caller may not see the session. The run key of a
        session is its ID.
        """
        runs = self._runs.get(run_key)
        if not runs:
            return None
        latest = runs[next(reversed(runs))]
        run = runs.get(run_id or "", latest)
        return run if CALLER.get().sees(run.caller.owner) else None

    def with_key(self, run_key: str, key: str) -> Run | None:
        """Return the run of a conversation with this idempotency key, or None.

        A failed or cancelled run loses its key.
        """
        for run in self._runs.get(run_key, {}).values():
            if run.input.key == key and run.state not in ("failed", "cancelled"):
                return run
        return None

    def retain(self, run: Run) -> None:
        """Retain an ended run until it expires or the memory limit is reached.

        Remove the run of an agent chat or of a conversation in memory at once.
        """
        run.log.release()
        if run.conversation.kind != "session":
            self._remove(run)
            return
        self._ended[run.run_id] = run
        self._bytes += run.log.size + _RUN_BYTES
        asyncio.get_running_loop().call_later(self._retention_seconds, self._drop, run.run_id)
        while self._bytes > self._max_bytes and len(self._ended) > 1:
            self._drop(next(iter(self._ended)))

    def suspend(self, run: Run) -> None:
        """Retain a suspended run, apart from the live and ended runs, while a client uses it.

        The clients of an earlier suspended run of the session are released.
        """
        runs = self._runs.get(run.conversation.run_key, {})
        if run.run_id in runs:
            self._remove(run)
        earlier = self._suspended.get(run.session_id)
        if earlier is not None and earlier is not run:
            earlier.release_clients()
        self._suspended[run.session_id] = run

    def suspended(self, session_id: str, run_id: str) -> Run | None:
        """Return the suspended run of a session if ``run_id`` is its ID, or None.

        ``run_id`` may also be the ID of the run that is about to continue the turn here.
        """
        run = self._suspended.get(session_id)
        if run is None or not run.is_suspended:
            return None
        return run if run_id in (run.run_id, self._continuing.get(session_id)) else None

    @contextmanager
    def continuing(self, new_run: Run) -> Iterator[None]:
        """Let ``suspended`` find the suspended run of a session by the ID of ``new_run`` too.

        Use it until ``new_run`` is live: the stored turn already has its ID.
        """
        self._continuing[new_run.session_id] = new_run.run_id
        try:
            yield
        finally:
            del self._continuing[new_run.session_id]

    def take_suspended(self, session_id: str) -> Run | None:
        """Remove and return the suspended run of a session, which continues or ends."""
        return self._suspended.pop(session_id, None)

    def all_suspended(self) -> list[Run]:
        return list(self._suspended.values())

    def drop_session(self, session_id: str) -> None:
        """Drop the ended runs of a session. A running turn stays."""
        for run_id in list(self._runs.get(session_id, {})):
            self._drop(run_id)

    @asynccontextmanager
    async def starting(
        self, conversation: Conversation, turn_input: TurnInput
    ) -> AsyncIterator[Run | None]:
        """Return a context that yields the run with the input's idempotency key, or None to start
        one in it.

        Another request with this key waits until the context ends. Raises ``IdempotencyKeyReused``
        and ``SessionNotFound``.
        """
        key = turn_input.key
        if key is None:
            yield None
            return
        run_key = conversation.run_key
        async with self._starting.setdefault((run_key, key), asyncio.Lock()):
            run = self.with_key(run_key, key)
            if run is not None:  # a turn that continues is found by its history
                # Another server may have deleted the session.
                await conversation.store.load(conversation.session_id)
                if not run.input.is_same_request(turn_input):
                    raise IdempotencyKeyReused(key, run.run_id)
            yield run

    def _drop(self, run_id: str) -> None:
        run = self._ended.pop(run_id, None)
        if run is not None:
            self._bytes -= run.log.size + _RUN_BYTES
            self._remove(run)

    def _remove(self, run: Run) -> None:
        runs = self._runs[run.conversation.run_key]
        del runs[run.run_id]
        if not runs:
            del self._runs[run.conversation.run_key]
