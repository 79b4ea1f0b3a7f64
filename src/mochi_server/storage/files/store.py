"""Asynchronous session store in JSON files. Worker threads do the blocking I/O."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from contextvars import copy_context
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio.to_thread

from mochi_server.errors import SessionNotFound, StorageBusy, StorageFailed
from mochi_server.sessions.session import ChatSession, is_session_id
from mochi_server.sessions.store import SessionPage, SessionStore
from mochi_server.sessions.types import SessionQuery
from mochi_server.storage.files.backend import SessionDirectory
from mochi_server.storage.files.locks import LOCK_TIMEOUT_SECONDS
from mochi_server.storage.files.session_files import FileSnapshot
from mochi_server.storage.session_cache import SessionCache
from mochi_server.storage.session_locks import SessionLocks
from mochi_server.util.shielding import run_shielded

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_TURN_THREADS = 2
"""Number of threads for the writes of turns. Python runs one thread at a time, so more threads delay the event loop."""
_OTHER_THREADS = 3
"""Number of threads for all other work, so that long lists, searches and imports do not delay turns."""
_THREAD_WAIT_SECONDS = 0.05
"""Time for which a thread waits for locked files. Then the work goes to the end of the queue, behind other writes."""
_FIRST_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.1
_SHARED_DIRECTORY = (
    "sessions directory shared process=%d directory=%s: turns of one session are not coordinated between processes. "
    "Run only one server per directory."
)

logger = logging.getLogger(__name__)


def _in_thread(
    method: Callable[Concatenate[SessionDirectory, _Arguments], _Result], *, of_turn: bool = False
) -> Callable[Concatenate["FileSessionStore", _Arguments], Coroutine[Any, Any, _Result]]:
    @wraps(method)
    async def run(self: "FileSessionStore", /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        return await self.run(partial(method, self.directory, *args, **kwargs), of_turn=of_turn)

    return run


class FileSessionStore(SessionStore):
    """``SessionStore`` in a directory of ``<session_id>.json`` files. A cancelled call still completes its writes."""

    def __init__(
        self,
        sessions_dir: str | Path,
        recent: SessionCache[FileSnapshot] | None = None,
        *,
        wait_seconds: float = LOCK_TIMEOUT_SECONDS,
    ) -> None:
        """``recent`` is a cache that several stores may share. ``wait_seconds`` is the lock timeout."""
        self._path = Path(sessions_dir)
        self.directory = SessionDirectory(self._path, recent, timeout=_THREAD_WAIT_SECONDS)
        self._wait_seconds = wait_seconds
        self.locks = SessionLocks()
        self.other_processes: tuple[int, ...] = ()
        """Process ids of the other servers that were using the directory when this store was opened."""
        self._search_lock = asyncio.Lock()  # limits searches to one thread, because the first may read every file
        self._turn_threads = ThreadPoolExecutor(_TURN_THREADS, thread_name_prefix="turns")
        self._threads = ThreadPoolExecutor(_OTHER_THREADS, thread_name_prefix="sessions")

    async def open(self) -> None:
        """Open the directory and warn about other servers that use it. I/O errors are logged, not raised.

        Unreferenced images are removed in the background.
        """
        try:
            self.other_processes = await self.run(self.directory.open)
            for process_id in self.other_processes:
                logger.warning(_SHARED_DIRECTORY, process_id, self._path.absolute())
        except StorageFailed as error:
            logger.warning("%s", error.message)
        self._threads.submit(self.directory.sweep)

    check = _in_thread(SessionDirectory.check)
    create = _in_thread(SessionDirectory.create)
    create_all = _in_thread(SessionDirectory.create_all)
    put = _in_thread(SessionDirectory.put)
    load_image = _in_thread(SessionDirectory.load_image)
    append = _in_thread(SessionDirectory.append, of_turn=True)
    patch = _in_thread(SessionDirectory.patch, of_turn=True)
    flush = _in_thread(SessionDirectory.flush, of_turn=True)
    delete = _in_thread(SessionDirectory.delete)

    async def load(self, session_id: str) -> ChatSession:
        session = self.directory.load_cached(session_id)  # saves half a millisecond, because it needs no thread
        return session if session is not None else await self.run(partial(self.directory.load, session_id))

    async def list(self, query: SessionQuery) -> SessionPage:
        async with self._search_lock if query.text else nullcontext():
            return await self.run(partial(self.directory.list, query))

    def hold(
        self, session_id: str, *, run_id: str | None = None, wait: bool = False
    ) -> AbstractAsyncContextManager[None]:
        return _Hold(self, session_id, run_id, wait)

    async def aclose(self) -> None:
        """Wait for pending work, stop the threads and unregister this process."""
        for threads in (self._turn_threads, self._threads):
            await anyio.to_thread.run_sync(threads.shutdown)
        self.directory.close()

    async def run(self, work: Callable[[], _Result], *, of_turn: bool = False) -> _Result:
        """Run ``work`` in a worker thread and return its result. On cancellation, first wait until ``work`` ends.

        Set ``of_turn`` for work on which a turn may wait. Such work has its own threads.
        """
        result = await run_shielded(self._retry_while_locked(work, self._turn_threads if of_turn else self._threads))
        if self.directory.sweep_is_due:
            self.directory.sweep_is_due = False
            with suppress(RuntimeError):  # the store was closed meanwhile
                self._threads.submit(self.directory.sweep)
        return result

    async def _retry_while_locked(self, work: Callable[[], _Result], threads: ThreadPoolExecutor) -> _Result:
        """Run ``work``, and repeat it while its files are locked. Raises ``StorageBusy`` after ``wait_seconds``."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + self._wait_seconds, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return await loop.run_in_executor(threads, copy_context().run, work)
            except StorageBusy:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


class _Hold(AbstractAsyncContextManager[None]):
    """Lock of a session during a ``with`` body. It uses a tenth of the memory of a generator, for each running turn."""

    __slots__ = ("_run_id", "_session_id", "_store", "_wait")

    def __init__(self, store: FileSessionStore, session_id: str, run_id: str | None, wait: bool) -> None:
        self._store, self._session_id, self._run_id, self._wait = store, session_id, run_id, wait

    async def __aenter__(self) -> None:
        """Lock the session and repair it after a crash. If ``run_id`` is not None, begin a turn."""
        store, session_id, is_turn = self._store, self._session_id, self._run_id is not None
        if not is_session_id(session_id):
            raise SessionNotFound(session_id)
        await store.locks.acquire(session_id, run_id=self._run_id, wait=self._wait)
        try:
            # This takes microseconds for a cached session; a thread takes half a millisecond.
            if not store.directory.try_begin_fast(session_id, is_turn=is_turn):
                await store.run(partial(store.directory.begin, session_id, is_turn=is_turn), of_turn=True)
        except BaseException:
            await self.__aexit__()
            raise

    async def __aexit__(self, *_: object) -> None:
        """Store the changes of a turn that are only in the turn log, and unlock the session."""
        store, session_id = self._store, self._session_id
        try:
            if (turn := store.directory.turns.get(session_id)) and turn.stored.log:
                await store.run(partial(store.directory.save_logged, session_id), of_turn=True)
        except SessionNotFound:
            logger.debug("session deleted during its turn session_id=%s", session_id)
        except (StorageBusy, StorageFailed) as error:  # the log is durable
            logger.warning("turn saved only in the turn log session_id=%s: %s", session_id, error.message)
        finally:
            store.directory.turns.pop(session_id, None)
            store.locks.release(session_id)


class FileStores:
    """``Stores`` in two directories: one for the sessions of users, one for the sessions of agents."""

    connected = True

    def __init__(self, sessions_dir: str | Path, agent_chats_dir: str | Path, *, wait_seconds: float) -> None:
        recent = SessionCache[FileSnapshot]()
        self.chats = FileSessionStore(sessions_dir, recent, wait_seconds=wait_seconds)
        self.agents = FileSessionStore(agent_chats_dir, recent, wait_seconds=wait_seconds)

    @property
    def problems(self) -> Sequence[str]:
        return [
            f"process {other} serves the same sessions; stop one of the servers" for other in self.chats.other_processes
        ]

    async def open(self) -> None:
        await self.chats.open()

    async def check(self) -> None:
        await self.chats.check()

    def on_sessions_lost(self, _: Callable[[Collection[str]], None]) -> None:
        """Do nothing, because another process never takes over a session that is stored in files."""

    async def aclose(self) -> None:
        await self.chats.aclose()
        await self.agents.aclose()
