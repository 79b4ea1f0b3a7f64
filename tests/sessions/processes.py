"""Functions that tests run in other processes, forked from a process that has done the imports."""

import asyncio
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mochi_server.errors import DirectoryInUse, StorageFailed
from mochi_server.sessions import FileSessionStore, SessionCreationOptions, SessionManager
from mochi_server.sessions.change import Change
from tests.sessions.samples import assistant, user

DEADLINE = 30.0
"""Seconds after which a child without an answer fails its test."""

_context: Any = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
_context.set_forkserver_preload(
    [
        "asyncio",
        "anyio.to_thread",
        "anyio._backends._asyncio",
        "pytest",
        "mochi_server.storage.files.store",
        "mochi_server.sessions.manager",
    ]
)


class Child:
    """A running child process and the connection on which it sends."""

    def __init__(self, process: Any, answers: Any) -> None:
        self.process, self.answers = process, answers

    def next(self) -> Any:
        """Return the next object that the child sends.

        Raises: EOFError: The child has ended.
        """
        assert self.answers.poll(DEADLINE), "the child sends nothing"
        try:
            return self.answers.recv()
        except OSError as error:
            raise EOFError from error

    def rest(self) -> list[Any]:
        """Return everything that the child sends until it ends."""
        sent = []
        try:
            while True:
                sent.append(self.next())
        except EOFError:
            return sent


@contextmanager
def child(work: Callable[..., None], *arguments: object) -> Iterator[Child]:
    """Run `work(connection, *arguments)` in another process, which has ended when the
    context ends.
    """
    ours, theirs = _context.Pipe(duplex=False)
    process = _context.Process(target=work, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Child(process, ours)
    finally:
        process.join(DEADLINE)
        ours.close()
        assert process.exitcode is not None, "the child does not end"
        process.close()


def run_turns_forever(connection: Connection, directory: Path, session_id: str) -> None:
    """Run turns until killed; send each message when the store has acknowledged it."""

    async def run() -> None:
        store = FileSessionStore(directory)
        for turn in count():
            async with store.hold(session_id, run_id="r"):
                for text in (f"{turn} question", f"{turn} call", f"{turn} answer"):
                    await store.write(session_id, Change(partial=assistant("so f")))
                    await store.write(session_id, Change([user(text)]))
                    connection.send(text)
            await store.patch(session_id, {"title": str(turn)})

    asyncio.run(run())


def create_forever(connection: Connection, directory: Path, model: str) -> None:
    """Create sessions until killed; send each id when the session is acknowledged."""
    manager = SessionManager(directory)
    while True:
        session = manager.create_session(SessionCreationOptions(model=model))
        connection.send(session.session_id)


def change(connection: Connection, directory: Path) -> None:
    """Send the number of sessions, and then the error of a change or the new number of sessions."""
    with SessionManager(directory) as manager:
        connection.send(len(manager.list_sessions()))
        try:
            manager.create_session(SessionCreationOptions(model="m"))
        except DirectoryInUse as error:
            connection.send(error.message)
        else:
            connection.send(len(manager.list_sessions()))


def copy(connection: Connection, source: Path, target: Path) -> None:
    """Copy the sessions and send their number or the code of the error."""
    from mochi_server.cli import store_copy

    try:
        connection.send(
            asyncio.run(store_copy.copy(str(source), str(target), lambda *_: None)).copied
        )
    except DirectoryInUse as error:
        connection.send(error.code)


def limit_files(size: int) -> None:
    """Limit the size of this process's files to `size` bytes, as on a full disk."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(
            resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        )


def exceed_disk(connection: Connection, directory: Path, session_id: str, limit: int) -> None:
    """Write more than fits, outside a turn and in one.

    Send the failures and the remaining state.
    """

    async def outgrow() -> None:
        store = FileSessionStore(directory)
        before = await store.load(session_id)
        limit_files(limit)
        connection.send(await failure(store.write(session_id, Change([user("x" * limit)]))))
        connection.send(await store.load(session_id) == before)
        async with store.hold(session_id, run_id="r"):
            connection.send(await failure(store.write(session_id, Change([user("x" * limit)]))))
            await store.write(session_id, Change([user("fits")]))
            await store.write(session_id, Change([user("fits, too")]))
            connection.send(await failure(store.write(session_id, Change([user("x" * limit)]))))
            connection.send(
                await failure(store.write(session_id, Change(partial=assistant("x" * limit))))
            )
            await store.write(session_id, Change([user("fits at last")]))
        connection.send([message["content"] for message in (await store.load(session_id)).messages])
        await store.aclose()

    async def failure(verb: Any) -> str:
        try:
            await verb
        except StorageFailed as error:
            return error.code
        return "nothing failed"

    asyncio.run(outgrow())


def end_turn_on_full_disk(
    connection: Connection, directory: Path, session_id: str, limit: int
) -> None:
    """Run a turn whose log fits on the disk, while the whole file at its end does not."""

    async def turn() -> None:
        store = FileSessionStore(directory)
        async with store.hold(session_id, run_id="r"):
            await store.write(session_id, Change([user("a" * 300)]))
            limit_files(limit)
            await store.write(session_id, Change([assistant("b" * 300)]))
        connection.send("ended")
        await store.aclose()

    asyncio.run(turn())
