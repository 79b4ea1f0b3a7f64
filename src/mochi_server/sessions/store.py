"""Protocols of the session stores. One contract test suite covers all implementations."""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from mochi_server.sessions.images import Image
from mochi_server.sessions.patching import FieldChanges
from mochi_server.sessions.serialization import decode
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message, SessionQuery

NewSession = tuple[ChatSession, Sequence[Image]]
"""Session with the images that its messages reference."""


@dataclass(frozen=True)
class SessionPage:
    """One page of a list of sessions. ``total`` is the number of sessions on all pages.

    ``encoded`` is the JSON text ``{"sessions": [...]}`` with flat objects without messages.
    """

    encoded: bytes
    total: int

    @classmethod
    def of(cls, entries: Iterable[bytes], total: int) -> "SessionPage":
        """Create a page from sessions that are already encoded as JSON."""
        parts = [part for entry in entries for part in (b",", entry)] or [b""]
        parts[0] = b'{"sessions":['
        return cls(b"".join([*parts, b"]}"]), total)

    @cached_property
    def entries(self) -> list[dict[str, Any]]:
        """Sessions on this page, decoded from JSON to dictionaries."""
        entries: list[dict[str, Any]] = decode(self.encoded)["sessions"]
        return entries


class SessionStore(Protocol):
    """Protocol of a session store.

    If the argument ``revision`` is not None and differs from the revision of the stored history, a method raises
    ``SessionConflict``. Every method raises ``SessionNotFound`` for an unknown or invalid session id and
    ``StorageFailed`` for an I/O error. After an error, the stored session is unchanged.
    """

    async def create(self, session: ChatSession, *, images: Sequence[Image] = ()) -> ChatSession:
        """Store a new session and the images it references. If its id is in use, assign a new id."""

    async def create_all(
        self, sessions: Sequence[NewSession], *, check: Callable[[], None] = lambda: None
    ) -> Sequence[ChatSession]:
        """Store all new sessions in order. After an error, an exception of ``check`` or a crash, store none of them.

        ``check`` may be called before each session, possibly in a thread.
        """

    async def put(self, session: ChatSession, *, images: Sequence[Image] = ()) -> ChatSession:
        """Create or replace a session without changing its id and times, and store its images."""

    async def load(self, session_id: str) -> ChatSession:
        """Return the current state of a session, including the stored messages of a running or crashed turn."""

    async def append(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        from_index: int | None = None,
        revision: str | None = None,
        ends_turn: bool = False,
        unfinished: Message | None = None,
        images: Sequence[Image] = (),
    ) -> None:
        """Append messages to the history.

        If ``from_index`` is not None, the messages replace all messages from that position instead.
        ``ends_turn`` is true if ``messages`` are the last messages of a turn. The partial answer ``unfinished`` and the
        ``images`` are stored atomically with the messages. An image is removed when no message of any session
        references it any more.
        """

    async def load_image(self, sha256: str) -> bytes:
        """Return the bytes of an image. Raises ``BlobNotFound`` if no message references it."""

    async def replace_tail(
        self,
        session_id: str,
        from_index: int,
        messages: Sequence[Message],
        *,
        revision: str | None = None,
        images: Sequence[Image] = (),
    ) -> ChatSession:
        """Replace all messages from position ``from_index``, and store ``images``. Return the changed session."""
        await self.append(session_id, messages, from_index=from_index, revision=revision, images=images)
        return await self.load(session_id)

    async def patch(self, session_id: str, fields: FieldChanges, *, revision: str | None = None) -> ChatSession:
        """Set metadata fields atomically. A function computes the new fields from the stored metadata."""

    async def flush(self, session_id: str, partial: Message) -> None:
        """Store the partial answer of a turn for crash recovery. The next change of the history removes it."""

    async def delete(self, session_id: str) -> None:
        """Remove a session."""

    async def list(self, query: SessionQuery) -> SessionPage:
        """Return one page of the sessions that match ``query``, most recently changed first."""

    def hold(
        self, session_id: str, *, run_id: str | None = None, wait: bool = False
    ) -> AbstractAsyncContextManager[None]:
        """Return a context manager that locks a session for changes. Only ``patch`` needs no lock.

        A turn passes its ``run_id``. While a turn has the lock, other calls raise ``SessionBusy``, or wait if ``wait``
        is true. All calls wait for the short locks of other operations. When a turn releases the lock, all changes of
        the turn are durable.
        """


class Stores(Protocol):
    """Protocol of the session stores of a server, which are opened and closed together."""

    @property
    def chats(self) -> SessionStore:
        """Store of the sessions of users."""

    @property
    def agents(self) -> SessionStore:
        """Store of the sessions of agents."""

    @property
    def connected(self) -> bool:
        """Whether the storage was reachable at the last access."""

    async def open(self) -> None:
        """Open the stores and register this process. Raises ``MochiError`` if the storage is unusable."""

    async def check(self) -> None:
        """Raise ``StorageFailed`` if sessions cannot be stored."""

    def on_sessions_lost(self, callback: Callable[[Collection[str]], None]) -> None:
        """Call ``callback`` with the ids of sessions that this process had locked and another server has taken over."""

    async def aclose(self) -> None:
        """Wait for pending writes and close the stores."""
