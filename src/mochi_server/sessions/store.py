"""What keeping sessions means, whoever keeps them. One contract test suite runs over every implementation."""

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
"""A session with the images that its messages name."""


@dataclass(frozen=True)
class SessionPage:
    """A part of the list; ``total`` counts the sessions of the whole list, or of all that were found.

    ``encoded`` is what clients get, ``{"sessions": [...]}``: sessions as flat objects without their messages.
    """

    encoded: bytes
    total: int

    @classmethod
    def of(cls, entries: Iterable[bytes], total: int) -> "SessionPage":
        """A page of these entries in JSON. They are joined in one go: each copy of many is paid for."""
        parts = [part for entry in entries for part in (b",", entry)] or [b""]
        parts[0] = b'{"sessions":['
        return cls(b"".join([*parts, b"]}"]), total)

    @cached_property
    def entries(self) -> list[dict[str, Any]]:
        """The sessions, decoded."""
        entries: list[dict[str, Any]] = decode(self.encoded)["sessions"]
        return entries


class SessionStore(Protocol):
    """Sessions, spoken of in changes and never saved whole.

    A change of the history names the ``revision`` it was decided on (see ``ChatSession.revision``) and gets
    ``SessionConflict`` when the history has moved on; None means "whatever it is now". Every method raises
    ``SessionNotFound`` for what is not there, ids that no session can have included, and ``StorageFailed``
    when the medium fails, in which case the stored session is what it was.
    """

    async def create(self, session: ChatSession, *, images: Sequence[Image] = ()) -> ChatSession:
        """Store a new session, with images it names; its id is replaced by a fresh one should it be taken."""

    async def create_all(
        self, sessions: Sequence[NewSession], *, check: Callable[[], None] = lambda: None
    ) -> Sequence[ChatSession]:
        """Store new sessions in their order: all of them, or none where one fails or the process dies.

        ``check`` is called between them, perhaps in a thread, and ends the import by raising.
        """

    async def put(self, session: ChatSession, *, images: Sequence[Image] = ()) -> ChatSession:
        """Store a session as it is, id and times included, in place of one that is there; with images it names."""

    async def load(self, session_id: str) -> ChatSession:
        """The session as it is now, what a running or crashed turn has brought so far included."""

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
        """Add messages at the end. ``ends_turn``: the turn that holds the session will add no others.

        ``unfinished`` is a checkpoint that is stored together with the messages.

        ``images`` are those that the messages name: each is stored once, together with the messages or not at all,
        and stays as long as a message of any session names it. The change that takes the last such message, be it
        of whatever method, takes the image.
        """

    async def load_image(self, sha256: str) -> bytes:
        """The bytes of an image that a message names. Raises ``BlobNotFound``."""

    async def replace_tail(
        self, session_id: str, from_index: int, messages: Sequence[Message], *, revision: str | None = None
    ) -> ChatSession:
        """Replace everything from a position on (0: the whole history)."""

    async def patch(self, session_id: str, fields: FieldChanges, *, revision: str | None = None) -> ChatSession:
        """Set metadata fields by name; the others stay as they are stored.

        A function gets the stored metadata, and no other change comes between.
        """

    async def checkpoint(self, session_id: str, partial: Message) -> None:
        """Note how far a turn has come; it survives a crash, as the messages of ``unfinished.cut_off``.

        It stands until the next change of the history.
        """

    async def delete(self, session_id: str) -> None:
        """Remove the session."""

    async def list(self, query: SessionQuery) -> SessionPage:
        """Sessions by their last change, newest first; those that are found, where the query has a text."""

    def hold(
        self, session_id: str, *, run_id: str | None = None, wait: bool = False
    ) -> AbstractAsyncContextManager[None]:
        """Be the one writer of the history while inside.

        A turn names its ``run_id``; whoever comes meanwhile gets ``SessionBusy`` with it, or waits with ``wait``.
        Without a ``run_id`` the hold is a short one (an edit), which others wait for. What a turn changes is
        durable when its hold ends. Only ``patch`` may be used without holding.
        """


class Stores(Protocol):
    """The stores of a server, which open and close together."""

    @property
    def chats(self) -> SessionStore:
        """The sessions of users."""

    @property
    def agents(self) -> SessionStore:
        """The sessions of agents."""

    @property
    def connected(self) -> bool:
        """Whether what keeps the sessions can be reached, as far as is known."""

    @property
    def problems(self) -> Sequence[str]:
        """What a person should know, found when they were opened."""

    async def open(self) -> None:
        """Be known to others that use the same stores. Raises ``MochiError`` where nothing can be stored."""

    async def check(self) -> None:
        """See whether sessions can be stored. Raises ``StorageFailed``."""

    def on_sessions_lost(self, callback: Callable[[Collection[str]], None]) -> None:
        """Call ``callback`` with the ids of held sessions that another server has taken over."""

    async def aclose(self) -> None:
        """Finish what was begun, and close."""
