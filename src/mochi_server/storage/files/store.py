"""Asynchronous session store in JSON files. Worker threads do the blocking I/O."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from mochi_server.errors import DirectoryInUse, SessionNotFound, StorageBusy, StorageFailed
from mochi_server.sessions.change import Change, Notice
from mochi_server.sessions.session import ChatSession, SessionMetadata
from mochi_server.sessions.store import OnSessionsLost, SessionPage, SessionStore, Stores
from mochi_server.sessions.turn_counts import LocalTurnCounter
from mochi_server.sessions.types import SessionQuery
from mochi_server.storage.files import atomic_files
from mochi_server.storage.files.atomic_files import storage_errors
from mochi_server.storage.files.backend import DirectoryUse, SessionDirectory
from mochi_server.storage.files.secrets import FileSecretStore
from mochi_server.storage.files.usage import FileUsageStore
from mochi_server.storage.files.webhooks import FileWebhookOutbox
from mochi_server.util.platform import scan_directory
from mochi_server.util.tasks import run_shielded

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_EDIT_WAIT_SECONDS = 10.0
_EDIT_POLL_SECONDS = 0.05

logger = logging.getLogger(__name__)


def _in_thread(
    method: Callable[Concatenate[SessionDirectory, _Arguments], _Result],
) -> Callable[Concatenate["FileSessionStore", _Arguments], Coroutine[Any, Any, _Result]]:
    """Return a coroutine function that runs ``method`` in a worker thread.

    While another program writes a file of the session, it tries again, up to the limit of the
    store.
    """

    @wraps(method)
    async def run(
        self: "FileSessionStore", /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> _Result:
        work = partial(copy_context().run, method, self.directory, *args, **kwargs)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._edit_wait_seconds
        while True:
            try:
                return await run_shielded(loop.run_in_executor(None, work))
            except StorageBusy as error:
                if isinstance(error, DirectoryInUse) or loop.time() >= deadline:
                    raise
            await asyncio.sleep(_EDIT_POLL_SECONDS)

    return run


class FileSessionStore(SessionStore):
    """``SessionStore`` in a directory of files, which it locks.

    A cancelled ``write`` completes, with its webhooks. Another cancelled call completes what it
    has begun in a thread, and does not try again.
    """

    def __init__(
        self, sessions_dir: str | Path, *, edit_wait_seconds: float = _EDIT_WAIT_SECONDS
    ) -> None:
        """``edit_wait_seconds`` limits how long a call waits for a file that another program is
        writing.
        """
        self.path = Path(sessions_dir)
        self._edit_wait_seconds = edit_wait_seconds
        self._use = DirectoryUse(self.path)
        self.outbox = FileWebhookOutbox(self._remove_notice)
        # Lists use one thread at a time, so that threads remain for turns.
        self._list_lock = asyncio.Lock()
        self._sweep: asyncio.Future[None] | None = None

    @property
    def directory(self) -> SessionDirectory:
        """Directory that all stores and managers of its path in this process share.

        The first access, also after ``aclose``, begins the use of the directory.
        """
        return self._use.directory

    def lock(self) -> None:
        """Create and lock the directory. Blocks.

        A directory that can only be read is not locked, with a warning. Raises ``StorageFailed`` if
        it cannot be read, ``DirectoryInUse`` if another process uses it.
        """
        reading = f"read the sessions directory {self.path}"
        with storage_errors(reading), suppress(FileNotFoundError), scan_directory(self.path):
            pass
        try:
            self.directory.open()
        # The sessions can be read, but not changed. ``DirectoryInUse`` is no ``StorageFailed``.
        except StorageFailed as error:
            logger.warning("%s", error.message)

    async def open(self) -> None:
        """Run ``lock``, and remove unreferenced images in the background."""
        await asyncio.to_thread(self.lock)
        self._sweep = asyncio.ensure_future(asyncio.to_thread(self.directory.sweep))

    async def find_notices(self) -> None:
        """Add the notices that were not delivered before the start to the outbox."""
        self.outbox.add(await self.undelivered())

    check = _in_thread(SessionDirectory.check)
    create = _in_thread(SessionDirectory.create)
    create_all = _in_thread(SessionDirectory.create_all)
    put = _in_thread(SessionDirectory.put)
    _load = _in_thread(SessionDirectory.load)
    load_image = _in_thread(SessionDirectory.load_image)
    _write = _in_thread(SessionDirectory.write)
    load_versions = _in_thread(SessionDirectory.load_versions)
    patch = _in_thread(SessionDirectory.patch)
    delete = _in_thread(SessionDirectory.delete)
    ids = _in_thread(SessionDirectory.ids)
    count_tags = _in_thread(SessionDirectory.count_tags)
    expired = _in_thread(SessionDirectory.expired)
    due_turns = _in_thread(SessionDirectory.due_turns)
    undelivered = _in_thread(SessionDirectory.undelivered)
    _list = _in_thread(SessionDirectory.list)
    _begin = _in_thread(SessionDirectory.begin)
    _save_logged = _in_thread(SessionDirectory.save_logged)

    async def load(self, session_id: str) -> ChatSession:
        # This takes less time than the change to a thread.
        session = self.directory.load_cached(session_id)
        return session if session is not None else await self._load(session_id)

    async def write(self, session_id: str, change: Change) -> int:
        return await run_shielded(self._write_and_report(session_id, change))

    async def _write_and_report(self, session_id: str, change: Change) -> int:
        removed = await self._write(session_id, change)
        self.outbox.add(change.notices)
        return removed

    async def list(self, query: SessionQuery) -> SessionPage:
        async with self._list_lock:
            return await self._list(query)

    @asynccontextmanager
    async def hold(
        self, session_id: str, *, run_id: str | None = None, wait: bool = False
    ) -> AsyncIterator[None]:
        """Lock the session and repair it after a crash.

        At the end, store changes that are only in the turn log.
        """
        directory = self.directory
        is_turn = run_id is not None
        async with directory.locks.holding(session_id, run_id=run_id, wait=wait):
            try:
                if not directory.begin_cached(session_id, is_turn=is_turn):
                    await self._begin(session_id, is_turn=is_turn)
                yield
            finally:
                try:
                    await self._save_turn(directory, session_id)
                finally:
                    directory.turns.pop(session_id, None)

    async def _save_turn(self, directory: SessionDirectory, session_id: str) -> None:
        turn = directory.turns.get(session_id)
        if turn is None or turn.stored.log is None:
            return
        try:
            await self._save_logged(session_id)
        except SessionNotFound:
            logger.debug("session deleted during its turn session_id=%s", session_id)
        except (StorageBusy, StorageFailed) as error:  # the log is durable
            logger.warning(
                "turn saved only in the turn log session_id=%s: %s", session_id, error.message
            )

    async def _remove_notice(self, notice: Notice) -> None:
        with suppress(SessionNotFound):
            remove = partial(_without_notice, notice.webhook_id)
            # The delivery of a webhook is no change for clients.
            await self.patch(notice.session_id, remove, touch=False)

    async def aclose(self) -> None:
        """Wait for the removal of unreferenced images. The last store of a directory unlocks it.

        Calls that still run are not awaited.
        """
        if self._sweep is not None:
            await asyncio.wait([self._sweep])
        self._use.close()


def _without_notice(webhook_id: str, stored: SessionMetadata) -> dict[str, Any]:
    others = []
    for notice in stored.notices or ():
        if notice.get("webhook_id") != webhook_id:
            others.append(notice)
    return {"notices": others or None}


class FileStores(Stores):
    """``Stores`` in directories: for the sessions of users, the sessions of agents, secrets and
    usage.
    """

    def __init__(
        self,
        sessions_dir: str | Path,
        agent_chats_dir: str | Path,
        secrets_dir: str | Path,
        usage_dir: str | Path | None = None,
    ) -> None:
        """``usage_dir`` is by default the folder ``usage`` beside the agents' sessions."""
        self.chats: FileSessionStore = FileSessionStore(sessions_dir)
        self.agents: FileSessionStore = FileSessionStore(agent_chats_dir)
        self.secrets: FileSecretStore = FileSecretStore(secrets_dir)
        usage_dir = usage_dir or Path(agent_chats_dir).parent / "usage"
        self.usage: FileUsageStore = FileUsageStore(Path(usage_dir))
        # Directories without a lock, which would remove the temporary files of a killed process.
        self._unlocked_directories = (Path(secrets_dir), Path(usage_dir))
        self.turn_counts: LocalTurnCounter = LocalTurnCounter()

    @property
    def webhooks(self) -> FileWebhookOutbox:  # type: ignore[override]  # a protocol attribute
        return self.chats.outbox

    def lock(self) -> None:
        """Lock both directories.

        A missing directory of agent sessions is created and locked by its first session.
        """
        self.chats.lock()
        if self._has_agents():
            self.agents.lock()

    async def open(self, _: OnSessionsLost = lambda _: None) -> None:
        """Open the stores. Another process never takes over a session that is stored in files."""
        await self.chats.open()
        for directory in self._unlocked_directories:
            await asyncio.to_thread(atomic_files.remove_temporary, directory)
        await self.chats.find_notices()
        if self._has_agents():
            await self.agents.open()

    def _has_agents(self) -> bool:
        return os.path.lexists(self.agents.path)  # false without permission

    async def check(self) -> None:
        await self.chats.check()

    async def aclose(self) -> None:
        await self.chats.aclose()
        await self.agents.aclose()
