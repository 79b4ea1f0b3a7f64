"""Who may write now: one turn at a time within this process, one write at a time among processes."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mochi_server.errors import SessionBusy, StorageBusy
from mochi_server.posix import alone_with

SLOTS = 64
"""Lock files of a directory; sessions share them."""

PATIENCE_SECONDS = 30.0
"""How long a thread waits for a lock by default."""


class WriteLocks:
    """Exclusive use of a session for the length of one write. For threads, which wait ``patience`` seconds for it."""

    def __init__(self, directory: Path, patience: float = PATIENCE_SECONDS) -> None:
        self._directory = directory
        self._patience = patience
        self._threads = [threading.Lock() for _ in range(SLOTS)]
        self._blobs = threading.Lock()
        self._imports = threading.Lock()

    @contextmanager
    def exclusive(self, session_id: str) -> Iterator[None]:
        """Raises StorageBusy while the lock is held elsewhere, OSError when its file cannot be opened."""
        slot = int(session_id, 16) % SLOTS
        with self._locked(self._threads[slot], f"{slot:02d}"):
            yield

    @contextmanager
    def blobs(self) -> Iterator[None]:
        """Exclusive use of the images beside all sessions. Raises StorageBusy and OSError as ``exclusive`` does.

        Within it no session may be asked for: those who have one ask for this.
        """
        with self._locked(self._blobs, "blobs"):
            yield

    @contextmanager
    def imports(self) -> Iterator[None]:
        """Exclusive use of what is being imported. Raises StorageBusy and OSError as ``exclusive`` does."""
        with self._locked(self._imports, "import"):
            yield

    @contextmanager
    def _locked(self, threads: threading.Lock, name: str) -> Iterator[None]:
        """The lock among threads, then the one among processes, with one deadline for both."""
        deadline = time.monotonic() + self._patience
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
    """One holder per session, in the order of asking. For one event loop; free sessions leave nothing here."""

    def __init__(self) -> None:
        self._holds: dict[str, _Hold] = {}

    def __len__(self) -> int:
        return len(self._holds)

    def hold(self, session_id: str, *, run_id: str | None = None, wait: bool = False) -> "_Holding":
        """Inside, nobody else holds the session. Raises SessionBusy at a turn that is not to be waited for."""
        return _Holding(self, session_id, run_id, wait)

    async def acquire(self, session_id: str, run_id: str | None, wait: bool) -> None:
        """Become the holder, in one's turn."""
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
            self._give_up(session_id, hold, waiter)
            raise

    def _give_up(self, session_id: str, hold: _Hold, waiter: _Waiter) -> None:
        if waiter in hold.waiting:
            hold.waiting.remove(waiter)
        elif waiter.turn.done() and not waiter.turn.cancelled() and waiter.turn.exception() is None:
            self.pass_on(session_id)

    def pass_on(self, session_id: str) -> None:
        """Release a session, to the next who waits for it."""
        hold = self._holds[session_id]
        chosen = next((waiter for waiter in hold.waiting if not waiter.turn.done()), None)
        if chosen is None:
            del self._holds[session_id]
            return
        hold.waiting.remove(chosen)
        hold.run_id = chosen.run_id
        chosen.turn.set_result(None)
        if chosen.run_id is not None:
            self._turn_away(session_id, hold, chosen.run_id)

    def _turn_away(self, session_id: str, hold: _Hold, run_id: str) -> None:
        for waiter in hold.waiting:
            if not waiter.wait and not waiter.turn.done():
                waiter.turn.set_exception(SessionBusy(session_id, run_id))
        hold.waiting = [waiter for waiter in hold.waiting if not waiter.turn.done()]


@dataclass(frozen=True, slots=True)
class _Holding:
    """The context; an object of its own, for a generator takes five times the memory, as long as a turn runs."""

    holds: Holds
    session_id: str
    run_id: str | None
    wait: bool

    async def __aenter__(self) -> None:
        await self.holds.acquire(self.session_id, self.run_id, self.wait)

    async def __aexit__(self, *_: object) -> None:
        self.holds.pass_on(self.session_id)
