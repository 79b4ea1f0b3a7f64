"""Sessions that live as long as somebody works on them: conversations that nobody asked to be stored."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mochi_server.errors import BlobNotFound, SessionConflict, SessionNotFound
from mochi_server.sessions.changes import FieldChanges, settled_fields
from mochi_server.sessions.encoding import settle
from mochi_server.sessions.images import Image, images_in
from mochi_server.sessions.locks import Holds
from mochi_server.sessions.search import matches, pieces, words
from mochi_server.sessions.session import ChatSession, new_id, now, timestamp
from mochi_server.sessions.store import NewSession, SessionPage
from mochi_server.sessions.types import Message, SessionQuery


class MemorySessionStore:
    """A ``SessionStore`` that writes nothing. For one event loop."""

    def __init__(self) -> None:
        self._sessions: dict[str, ChatSession] = {}
        self._images: dict[str, bytes] = {}
        self._holds = Holds()

    def forget(self, session_id: str) -> None:
        """Remove a session, if it is there."""
        self._sessions.pop(session_id, None)
        self._sweep()

    async def create(self, session: ChatSession, *, images: Sequence[Image] = ()) -> ChatSession:
        self._images.update({image.sha256: image.data for image in images})
        fresh = _copy(session)
        while fresh.session_id in self._sessions:
            fresh.metadata.session_id = new_id()
        self._sessions[fresh.session_id] = fresh
        return _copy(fresh)

    async def create_all(
        self, sessions: Sequence[NewSession], *, check: Callable[[], None] = lambda: None
    ) -> Sequence[ChatSession]:
        check()
        return [await self.create(session, images=images) for session, images in sessions]

    async def put(self, session: ChatSession, *, images: Sequence[Image] = ()) -> ChatSession:
        self._images.update({image.sha256: image.data for image in images})
        self._sessions[session.session_id] = _copy(session)
        self._sweep()
        return _copy(session)

    async def load(self, session_id: str) -> ChatSession:
        return _copy(self._find(session_id))

    async def append(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        revision: str | None = None,
        ends_turn: bool = False,
        unfinished: Message | None = None,
        images: Sequence[Image] = (),
    ) -> ChatSession:
        del ends_turn, unfinished  # a crash leaves nothing
        session = self._find(session_id, revision)
        self._images.update({image.sha256: image.data for image in images})
        return await self.replace_tail(session_id, len(session.messages), messages)

    async def load_image(self, sha256: str) -> bytes:
        if sha256 not in self._images:
            raise BlobNotFound(sha256)
        return self._images[sha256]

    async def replace_tail(
        self, session_id: str, from_index: int, messages: Sequence[Message], *, revision: str | None = None
    ) -> ChatSession:
        session = self._find(session_id, revision)
        return self._change(session, {"messages": [*session.messages[:from_index], *messages]})

    async def patch(self, session_id: str, fields: FieldChanges, *, revision: str | None = None) -> ChatSession:
        session = self._find(session_id, revision)
        return self._change(session, {"metadata": settled_fields(fields, session.metadata)})

    async def checkpoint(self, session_id: str, partial: Message) -> None:
        del partial
        self._find(session_id)

    async def delete(self, session_id: str) -> None:
        self.forget(self._find(session_id).session_id)

    async def list(self, query: SessionQuery) -> SessionPage:
        wanted = words(query.text)
        found = [one for one in self._sessions.values() if not wanted or matches(pieces(one), wanted)]
        newest = sorted(found, key=lambda one: timestamp(one.metadata.updated_at), reverse=True)
        end = None if query.limit is None else query.offset + query.limit
        return SessionPage.of([_copy(one).summary_object() for one in newest[query.offset : end]], len(newest))

    @asynccontextmanager
    async def hold(self, session_id: str, *, run_id: str | None = None, wait: bool = False) -> AsyncIterator[None]:
        self._find(session_id)
        async with self._holds.hold(session_id, run_id=run_id, wait=wait):
            self._find(session_id)
            yield

    def _find(self, session_id: str, revision: str | None = None) -> ChatSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionNotFound(session_id)
        if revision not in (None, session.revision):
            raise SessionConflict(session_id)
        return session

    def _change(self, session: ChatSession, parts: dict[str, Any]) -> ChatSession:
        """The session with other messages, or with some other metadata."""
        before = session.to_dict()
        metadata = before["metadata"] | parts.get("metadata", {}) | {"updated_at": now()}
        changed = ChatSession.from_dict(settle(before | parts | {"metadata": metadata}))
        self._sessions[session.session_id] = changed
        self._sweep()
        return _copy(changed)

    def _sweep(self) -> None:
        """Let go of images that no message names any more."""
        if self._images:
            named = {name for session in self._sessions.values() for name in images_in(session.messages)}
            self._images = {name: data for name, data in self._images.items() if name in named}


def _copy(session: ChatSession) -> ChatSession:
    """The session as it would be read back, sharing nothing with the given one."""
    return ChatSession.from_dict(settle(session.to_dict()))
