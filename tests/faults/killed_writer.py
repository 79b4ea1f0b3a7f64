"""Process that changes sessions until it is killed, and reports each change before and after it."""

import asyncio
import random
from dataclasses import dataclass, replace
from hashlib import blake2b
from multiprocessing.connection import Connection
from pathlib import Path

from mochi_server.sessions import ChatSession, FileSessionStore, Image
from mochi_server.sessions.change import Change
from mochi_server.sessions.session import user_message
from tests.sessions.samples import assistant, new_session, user
from tests.support.images import numbered_image


@dataclass(frozen=True)
class State:
    """Stored state of a session, with digests of long texts.

    `partial` is an answer that has not ended.
    """

    contents: tuple[str, ...] = ()
    title: str | None = None
    partial: str | None = None

    @classmethod
    def of(cls, session: ChatSession) -> "State":
        """Return the state of a session that was read after a crash, in which partial answers are
        messages.
        """
        return cls(
            tuple(short(message["content"]) for message in session.messages), session.metadata.title
        )

    def after_crash(self) -> "State":
        return (
            self
            if self.partial is None
            else replace(self, contents=(*self.contents, self.partial), partial=None)
        )


def short(text: str) -> str:
    return f"{text[:20].strip()} {blake2b(text.encode(), digest_size=8).hexdigest()}"


Step = tuple[str, State | None] | None
"""Session id and its next state, or None for a deletion.

None alone reports that the change is done.
"""


def write_until_killed(
    connection: Connection, directory: Path, known: dict[str, State], seed: int
) -> None:
    asyncio.run(_Writer(connection, directory, known, random.Random(seed)).write())


class _Writer:
    def __init__(
        self,
        connection: Connection,
        directory: Path,
        known: dict[str, State],
        chance: random.Random,
    ) -> None:
        self._say, self._chance = connection, chance
        self._store = FileSessionStore(directory)
        self._known = dict(known)
        self._number = 0

    async def write(self) -> None:
        while True:
            await self._chance.choice(
                [self._create, self._turn, self._turn, self._edit, self._patch, self._delete]
            )()

    async def _create(self) -> None:
        if len(self._known) < 6:
            session = new_session(system_prompt=self._text("system"))
            self._about_to(session.session_id, State.of(session))
            await self._store.create(session)
            self._done()

    async def _turn(self) -> None:
        if (session_id := self._any()) is None:
            return
        async with self._store.hold(session_id, run_id="r"):
            await self._append(session_id, self._text("question"))
            for _ in range(self._chance.randint(0, 2)):
                partial = self._text("part")
                self._about_to(session_id, replace(self._known[session_id], partial=short(partial)))
                await self._store.write(session_id, Change(partial=assistant(partial)))
                self._done()
                if self._chance.random() < 0.3:
                    await self._retitle(session_id)
            await self._append(session_id, self._text("answer"))

    async def _edit(self) -> None:
        if (session_id := self._any()) is None:
            return
        before, text = self._known[session_id], self._text("edit")
        start = self._chance.randint(0, len(before.contents))
        async with self._store.hold(session_id):
            self._about_to(
                session_id, replace(before, contents=(*before.contents[:start], short(text)))
            )
            await self._store.write(session_id, Change([user(text)], start=start))
            self._done()

    async def _patch(self) -> None:
        if (session_id := self._any()) is not None:
            await self._retitle(session_id)

    async def _delete(self) -> None:
        if len(self._known) > 3 and (session_id := self._any()) is not None:
            self._about_to(session_id, None)
            await self._store.delete(session_id)
            self._done()

    async def _append(self, session_id: str, text: str) -> None:
        before = self._known[session_id]
        self._about_to(session_id, State((*before.contents, short(text)), before.title))
        images = (
            [Image.of(numbered_image(self._chance.randint(0, 4), 100_000))]
            if self._chance.random() < 0.3
            else []
        )
        await self._store.write(session_id, Change([user_message(text, images)], images=images))
        self._done()

    async def _retitle(self, session_id: str) -> None:
        title = short(self._text("title"))
        self._about_to(session_id, replace(self._known[session_id], title=title))
        await self._store.patch(session_id, {"title": title})
        self._done()

    def _about_to(self, session_id: str, after: State | None) -> None:
        self._say.send((session_id, after))
        if after is None:
            del self._known[session_id]
        else:
            self._known[session_id] = after

    def _done(self) -> None:
        self._say.send(None)

    def _any(self) -> str | None:
        return self._chance.choice(sorted(self._known)) if self._known else None

    def _text(self, kind: str) -> str:
        self._number += 1
        return f"{kind} {self._number} " + "x" * self._chance.choice([0, 10, 200_000])
