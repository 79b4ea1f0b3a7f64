"""What another process does with sessions while this one runs a turn on them."""

import asyncio
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mochi_server.sessions import FileSessionStore, SessionManager, SessionQuery, edited
from tests.sessions.samples import assistant, contents, user


def look_on(say: Connection, directory: Path, session_id: str) -> None:
    """Says what it reads of a session and how many messages the list has of it."""
    manager = SessionManager(directory)
    say.send(contents(manager.load_session(session_id)))
    say.send(manager.list_sessions()[0]["message_count"])


def take_a_turn(say: Connection, directory: Path, session_id: str) -> None:
    """A whole turn; says the history as it is at its end."""

    async def turn(store: FileSessionStore) -> None:
        async with store.hold(session_id, run_id="other"):
            await store.append(session_id, [user("other question")])
            await store.checkpoint(session_id, assistant("other ans"))
            await store.append(session_id, [assistant("other answer")])
        say.send(contents(await store.load(session_id)))

    _with_store(directory, turn)


def edit_the_first(say: Connection, directory: Path, session_id: str) -> None:
    """Edits the first message, as a client does; says the history that leaves."""

    async def edit(store: FileSessionStore) -> None:
        async with store.hold(session_id):
            session = await store.load(session_id)
            tail = edited(session, 0, "edited")
            say.send(contents(await store.replace_tail(session_id, *tail, revision=session.revision)))

    _with_store(directory, edit)


def leave_an_answer_unfinished(say: Connection, directory: Path, session_id: str) -> None:
    """A turn that never ends; says its process id when the answer has come half its way."""

    async def hang(store: FileSessionStore) -> None:
        async with store.hold(session_id, run_id="hanging"):
            await store.append(session_id, [user("question")])
            await store.checkpoint(session_id, assistant("half an ans"))
            say.send(os.getpid())
            await asyncio.Event().wait()

    _with_store(directory, hang)


def serve_beside(say: Connection, directory: Path) -> None:
    """Opens a store as a server does; says what that had logged."""
    import logging

    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]  # as its maker allows
    logging.getLogger("mochi_server.storage").addHandler(handler)

    async def opened(store: FileSessionStore) -> None:
        await store.open()
        await store.list(SessionQuery())
        say.send(lines)

    _with_store(directory, opened)


def _with_store(directory: Path, work: Any) -> None:
    async def run() -> None:
        store = FileSessionStore(directory)
        await work(store)
        await store.aclose()

    asyncio.run(run())
