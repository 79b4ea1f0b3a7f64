"""Changes of sessions by another process while this process runs a turn on them."""

import asyncio
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mochi_server.sessions import FileSessionStore, SessionManager, SessionQuery, edited
from tests.sessions.samples import assistant, contents, user


def send_session(connection: Connection, directory: Path, session_id: str) -> None:
    """Send a session's messages and its number of messages in the list."""
    manager = SessionManager(directory)
    connection.send(contents(manager.load_session(session_id)))
    connection.send(manager.list_sessions()[0]["message_count"])


def run_turn(connection: Connection, directory: Path, session_id: str) -> None:
    """Run a whole turn and send the history at its end."""

    async def turn(store: FileSessionStore) -> None:
        async with store.hold(session_id, run_id="other"):
            await store.append(session_id, [user("other question")])
            await store.flush(session_id, assistant("other ans"))
            await store.append(session_id, [assistant("other answer")])
        connection.send(contents(await store.load(session_id)))

    _with_store(directory, turn)


def edit_first_message(connection: Connection, directory: Path, session_id: str) -> None:
    """Edit the first message like a client and send the resulting history."""

    async def edit(store: FileSessionStore) -> None:
        async with store.hold(session_id):
            session = await store.load(session_id)
            tail = edited(session, 0, "edited")
            connection.send(contents(await store.replace_tail(session_id, *tail, revision=session.revision)))

    _with_store(directory, edit)


def run_unfinished_turn(connection: Connection, directory: Path, session_id: str) -> None:
    """Start a turn that never ends and send the process id when half of the answer is stored."""

    async def hang(store: FileSessionStore) -> None:
        async with store.hold(session_id, run_id="hanging"):
            await store.append(session_id, [user("question")])
            await store.flush(session_id, assistant("half an ans"))
            connection.send(os.getpid())
            await asyncio.Event().wait()

    _with_store(directory, hang)


def open_store(connection: Connection, directory: Path) -> None:
    """Open a store like a server and send the log lines."""
    import logging

    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]  # documented by logging
    logging.getLogger("mochi_server.storage").addHandler(handler)

    async def run(store: FileSessionStore) -> None:
        await store.open()
        await store.list(SessionQuery())
        connection.send(lines)

    _with_store(directory, run)


def _with_store(directory: Path, work: Any) -> None:
    async def run() -> None:
        store = FileSessionStore(directory)
        await work(store)
        await store.aclose()

    asyncio.run(run())
