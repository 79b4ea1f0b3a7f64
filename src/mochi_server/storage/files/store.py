"""Asynchronous session store in JSON files. Worker threads do the blocking I/O."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import copy_context
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio.to_thread

from mochi_server.errors import DirectoryInUse, SessionNotFound, StorageBusy, StorageFailed
from mochi_server.sessions.session import ChatSession, is_session_id
from mochi_server.sessions.store import NewSession, SessionPage, SessionStore
from mochi_server.sessions.types import SessionQuery
from mochi_server.storage.files.backend import SessionDirectory
from mochi_server.storage.files.shared import DirectoryUse
from mochi_server.storage.session_locks import SessionLocks
from mochi_server.util.shielding import run_shielded

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_TURN_THREADS = 2
"""Number of threads for the writes of turns. Python runs one thread at a time, so more threads delay the event loop."""
_OTHER_THREADS = 3
"""Number of threads for all other work, so that long lists, searches and imports do not delay turns."""
_EDIT_WAIT_SECONDS = 10.0
"""Time for which a request waits for a session file that another program is writing."""
_FIRST_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.1

logger = logging.getLogger(__name__)


def _in_thread(
    method: Callable[Concatenate[SessionDirectory, _Arguments], _Result], *, of_turn: bool = False
) -> Callable[Concatenate["FileSessionStore", _Arguments], Coroutine[Any, Any, _Result]]:
    @wraps(method)
    async def run(self: "FileSessionStore", /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        return await self.run(partial(method, self.directory, *args, **kwargs), of_turn=of_turn)

    return run


class FileSessionStore(SessionStore):
    """``SessionStore`` in a directory of ``<session_id>.json`` files. A cancelled call still completes its writes.

    ``open`` or the first change locks the directory for this process. Changes raise ``DirectoryInUse`` if another
    process has locked it.
    """

    def __init__(self, sessions_dir: str | Path) -> None:
        self.path = Path(sessions_dir)
        self._use = DirectoryUse(self.path)
        # These locks limit searches and imports to one thread each, because they may take long.
        self._search_lock, self._import_lock = asyncio.Lock(), asyncio.Lock()
        self._turn_threads = ThreadPoolExecutor(_TURN_THREADS, thread_name_prefix="turns")
        self._threads = ThreadPoolExecutor(_OTHER_THREADS, thread_name_prefix="sessions")

    @property
    def directory(self) -> SessionDirectory:
        """Directory that all stores and managers of this process share, until ``aclose``."""
        return self._use.directory

    @property
    def locks(self) -> SessionLocks:
        return self.directory.locks

    def lock(self) -> None:
        """Create and lock the directory. Blocks. I/O errors are logged, other processes raise ``DirectoryInUse``."""
        try:
            self.directory.open()
        except StorageFailed as error:
            logger.warning("%s", error.message)

    async def open(self) -> None:
        """Run ``lock``, and remove unreferenced images in the background."""
        await self.run(self.lock)
        self._threads.submit(self.directory.sweep)

    check = _in_thread(SessionDirectory.check)
    create = _in_thread(SessionDirectory.create)
    put = _in_thread(SessionDirectory.put)
    load_image = _in_thread(SessionDirectory.load_image)
    append = _in_thread(SessionDirectory.append, of_turn=True)
    patch = _in_thread(SessionDirectory.patch, of_turn=True)
    flush = _in_thread(SessionDirectory.flush, of_turn=True)
    delete = _in_thread(SessionDirectory.delete)

    async def create_all(
        self, sessions: Sequence[NewSession], *, check: Callable[[], None] = lambda: None
    ) -> Sequence[ChatSession]:
        async with self._import_lock:
            return await self.run(partial(self.directory.create_all, sessions, check=check))

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
        """Wait for pending work and stop the threads. The last store of a directory unlocks it."""
        for threads in (self._turn_threads, self._threads):
            await anyio.to_thread.run_sync(threads.shutdown)
        self._use.close()

    async def run(self, work: Callable[[], _Result], *, of_turn: bool = False) -> _Result:
        """Run ``work`` in a worker thread and return its result. On cancellation, first wait until ``work`` ends.

        Set ``of_turn`` for work on which a turn may wait. Such work has its own threads.
        """
        return await run_shielded(self._run(work, self._turn_threads if of_turn else self._threads))

    async def _run(self, work: Callable[[], _Result], threads: ThreadPoolExecutor) -> _Result:
        """Run ``work``, and repeat it while another program is writing its session file."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + _EDIT_WAIT_SECONDS, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return await loop.run_in_executor(threads, copy_context().run, work)
            except StorageBusy as error:
                if isinstance(error, DirectoryInUse) or loop.time() >= deadline:
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

    def __init__(self, sessions_dir: str | Path, agent_chats_dir: str | Path) -> None:
        self.chats = FileSessionStore(sessions_dir)
        self.agents = FileSessionStore(agent_chats_dir)

    def lock(self) -> None:
        """Lock both directories. A missing directory of agent sessions is created and locked by its first session."""
        self.chats.lock()
        if self.agents.path.exists():
            self.agents.lock()

    async def open(self) -> None:
        await self.chats.open()
        if self.agents.path.exists():
            await self.agents.open()

    async def check(self) -> None:
        await self.chats.check()

    def on_sessions_lost(self, _: Callable[[Collection[str]], None]) -> None:
        """Do nothing, because another process never takes over a session that is stored in files."""

    async def aclose(self) -> None:
        await self.chats.aclose()
        await self.agents.aclose()
