"""Who may write now: one turn at a time within this process, one write at a time among processes."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mochi_server.errors import SessionBusy, StorageBusy
from mochi_server.util.platform import alone_with

SLOTS = 64
"""Lock files of a directory; sessions share them."""

PATIENCE_SECONDS = 30.0
"""How long a thread waits for a lock by default."""


class WriteLocks:
    """Locks among threads and processes, held for one write each. For threads.

    All methods raise StorageBusy after ``patience`` seconds, and OSError if the lock file cannot be opened.
    """

    def __init__(self, directory: Path, patience: float = PATIENCE_SECONDS) -> None:
        self._directory = directory
        self._patience = patience
        names = [*(f"{slot:02d}" for slot in range(SLOTS)), "blobs", "import"]
        self._threads = {name: threading.Lock() for name in names}

    def exclusive(self, session_id: str) -> AbstractContextManager[None]:
        """Lock a session."""
        return self._locked(f"{int(session_id, 16) % SLOTS:02d}")

    def blobs(self) -> AbstractContextManager[None]:
        """Lock the images of all sessions. Lock the session first, if both are needed."""
        return self._locked("blobs")

    def imports(self) -> AbstractContextManager[None]:
        """Lock the directories of imports."""
        return self._locked("import")

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        threads, deadline = self._threads[name], time.monotonic() + self._patience
        busy = StorageBusy(f"Another process or request holds the lock file {name}.lock of the sessions directory.")
        if not threads.acquire(timeout=self._patience):
            raise busy
        with ExitStack() as stack:
            stack.callback(threads.release)
            if not self._directory.is_dir():
                self._directory.mkdir(mode=0o700, exist_ok=True)
            try:
                stack.enter_context(alone_with(self._directory / f"{name}.lock", max(0, deadline - time.monotonic())))
            except TimeoutError as error:
                raise busy from error
            yield


@dataclass(eq=False)
class _Waiter:
    run_id: str | None
    wait: bool
    turn: asyncio.Future[None]


@dataclass
class _Hold:
    run_id: str | None
    waiting: list[_Waiter] = field(default_factory=list)


class Holds:
    """One holder per session, in the order of requests. For one event loop; free sessions leave nothing here."""

    def __init__(self) -> None:
        self._holds: dict[str, _Hold] = {}

    def __len__(self) -> int:
        return len(self._holds)

    @asynccontextmanager
    async def hold(self, session_id: str, *, run_id: str | None = None, wait: bool = False) -> AsyncIterator[None]:
        """Be the one holder inside, after those that were first. Raises SessionBusy during a turn, unless ``wait``."""
        await self._acquire(session_id, run_id, wait)
        try:
            yield
        finally:
            self._release(session_id)

    async def _acquire(self, session_id: str, run_id: str | None, wait: bool) -> None:
        hold = self._holds.get(session_id)
        if hold is None:
            self._holds[session_id] = _Hold(run_id)
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
        hold = self._holds[session_id]
        waiting = [waiter for waiter in hold.waiting if not waiter.turn.done()]
        if not waiting:
            del self._holds[session_id]
            return
        chosen, *hold.waiting = waiting
        hold.run_id = chosen.run_id
        chosen.turn.set_result(None)
        if chosen.run_id is not None:
            for waiter in hold.waiting:
                if not waiter.wait:
                    waiter.turn.set_exception(SessionBusy(session_id, chosen.run_id))
            hold.waiting = [waiter for waiter in hold.waiting if waiter.wait]
