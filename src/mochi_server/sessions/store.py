"""Protocol of session stores, and the rules for changes and searches that all stores share."""

import asyncio
import re
import unicodedata
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeAlias

from pydantic import BaseModel

from mochi_server.errors import SessionDamaged, SessionNotFound
from mochi_server.sessions.caller import CALLER
from mochi_server.sessions.change import Change, Notice
from mochi_server.sessions.serialization import decode, normalize, sanitize
from mochi_server.sessions.session import ChatSession, SessionMetadata, complete_message
from mochi_server.sessions.settings import checked_fields
from mochi_server.sessions.turn_counts import TurnCounter
from mochi_server.sessions.types import APPROVED, Blob, Message, SessionQuery, ToolSettings
from mochi_server.sessions.usage import UsageStore
from mochi_server.sessions.versions import Versions
from mochi_server.util.clock import now

FieldChanges = Mapping[str, Any] | Callable[[SessionMetadata], Mapping[str, Any]]
"""Metadata fields by name, or a function that computes them from the stored metadata."""

_WORD_SEPARATOR = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


def normalized_fields(changes: FieldChanges, stored: SessionMetadata) -> dict[str, Any]:
    """Return the changes as JSON values.

    Raises ValueError for an unknown or read-only field, or an invalid value.
    """
    if callable(changes):
        changes = changes(stored)
    checked = checked_fields(changes)
    models = {
        name: value.model_dump(mode="json")
        for name, value in checked.items()
        if isinstance(value, BaseModel)
    }
    values: dict[str, Any] = normalize({**checked, **models})
    return values


def approve_tool(tool: str) -> FieldChanges:
    """Return a metadata change that adds ``tool`` to the approved tools of a session."""

    def change(stored: SessionMetadata) -> dict[str, Any]:
        settings = stored.tool_settings
        if tool in settings.approved:
            return {}
        names = sorted({*settings.approved, tool})
        return {
            "tool_settings": ToolSettings.model_validate(settings.model_dump() | {APPROVED: names})
        }

    return change


def normalized(session: ChatSession) -> ChatSession:
    """Return a copy of a session as it would be after saving and loading it."""
    return ChatSession.from_dict(normalize(session.to_dict()))


def normalized_messages(messages: Sequence[Message], start: int) -> list[Message]:
    """Return copies of the messages from position ``start`` as they would be after saving and
    loading them.
    """
    return [
        complete_message(normalize(message), index, now())
        for index, message in enumerate(messages, start)
    ]


_ACCENTS = re.compile("[\u0300-\u036f]")


def normalized_text(text: str) -> str:
    """Return a text with folded case, without accents and without characters that databases reject.

    The search for `munchen` finds `München`.
    """
    if text.isascii():
        return text.lower().replace("\0", " ")
    folded = unicodedata.normalize("NFC", sanitize(text)).casefold()
    letters = _ACCENTS.sub("", unicodedata.normalize("NFD", folded))
    return unicodedata.normalize("NFC", letters).replace("\0", " ")


def words(query: str | None) -> list[str]:
    """Return the distinct normalized words of a query, longest first, or an empty list for a blank
    query.
    """
    parts = _WORD_SEPARATOR.split(normalized_text(query or ""))
    distinct = sorted(set(parts) - {""})
    return sorted(distinct, key=len, reverse=True)


def searchable_text(session: ChatSession) -> str:
    """Return the normalized title and messages, in which a search looks for each word of a
    query.
    """
    texts = [session.summary_object()["title"] or ""]
    for message in session.history:
        texts.append(str(message.get("content") or ""))
    return "\n".join(map(normalized_text, texts))


NewSession = tuple[ChatSession, Sequence[Blob]]
"""Session with the images and files that its messages reference."""


@dataclass(frozen=True)
class SessionPage:
    """One page of a list of sessions, as JSON ``{"sessions": [...]}``.

    ``total`` counts the sessions on all pages.
    """

    encoded: bytes
    total: int

    @classmethod
    def of(cls, entries: Iterable[bytes], total: int) -> "SessionPage":
        return cls(b'{"sessions":[' + b",".join(entries) + b"]}", total)

    @cached_property
    def entries(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = decode(self.encoded)["sessions"]
        return entries


class SessionStore(Protocol):
    """Protocol of a session store.

    Methods raise ``SessionConflict`` if ``revision`` is not None and differs from that of the
    stored history, ``SessionNotFound`` for an unknown or invalid session id, and ``StorageFailed``
    for an I/O error. After an error, the stored session is unchanged.
    """

    async def create(self, session: ChatSession, *, images: Sequence[Blob] = ()) -> ChatSession:
        """Store a new session with the images and files it references.

        ``extra`` may have versions, as in a session file. If its id is in use, assign a new id.
        """

    async def create_all(
        self, sessions: Sequence[NewSession], *, check: Callable[[], None] = lambda: None
    ) -> Sequence[ChatSession]:
        """Store all new sessions with their times, or none of them after an error, an exception of
        ``check`` or a crash.
        """
        check()
        return [await self.create(session, images=images) for session, images in sessions]

    async def put(self, session: ChatSession, *, images: Sequence[Blob] = ()) -> ChatSession:
        """Create or replace a session without changing its id and times, and store its blobs."""

    async def load(self, session_id: str) -> ChatSession:
        """Return the current state of a session, including the stored messages of a running or
        crashed turn.
        """

    async def write(self, session_id: str, change: Change) -> int:
        """Store a change.

        Return how many of the oldest versions it has removed, because they exceeded a limit.
        """

    async def load_versions(self, session_id: str) -> Versions:
        """Return the versions of a session. ``load`` does not read their messages."""

    async def load_image(self, sha256: str) -> bytes:
        """Return the bytes of a blob. Raises ``BlobNotFound`` if it is not stored.

        The store deletes blobs that no message references.
        """

    async def patch(
        self,
        session_id: str,
        fields: FieldChanges,
        *,
        revision: str | None = None,
        touch: bool = True,
    ) -> ChatSession:
        """Set metadata fields atomically.

        A function computes the new fields from the stored metadata. ``updated_at`` changes only if
        ``touch`` is true.
        """

    async def delete(self, session_id: str) -> None:
        """Remove a session."""

    async def list(self, query: SessionQuery) -> SessionPage:
        """Return one page of the sessions that match ``query``, most recently changed first."""

    async def ids(self) -> Sequence[str]:
        """Return the IDs of all sessions, also of those that ``load`` cannot read."""
        page = await self.list(SessionQuery())
        return [entry["session_id"] for entry in page.entries]

    async def count_tags(self, query: SessionQuery) -> Mapping[str, int]:
        """Return how many of the sessions that match the filters of ``query`` have each tag.

        The text and the page of ``query`` are ignored.
        """

    async def expired(self, idle_seconds: float, moment: float) -> Sequence[str]:
        """Return the IDs of the sessions that have expired at ``moment``, in Unix seconds, as
        ``SessionMetadata.has_expired`` defines.
        """

    async def due_turns(self, until: float) -> Mapping[str, float]:
        """Return the IDs of the sessions whose turn goes on without a live server or client, and
        when it is due.

        The times are Unix times not later than ``until``.
        """
        del until
        return {}

    def hold(
        self, session_id: str, *, run_id: str | None = None, wait: bool = False
    ) -> AbstractAsyncContextManager[None]:
        """Return a context manager that locks a session for ``write``. Other methods need no lock.

        A turn passes its ``run_id``. While it has the lock, other calls raise ``SessionBusy``, or
        wait if ``wait`` is true. All calls wait for other locks. If a turn gets the lock meanwhile,
        calls without ``wait`` raise ``SessionBusy``. When a turn releases the lock, all its changes
        are durable.
        """


def is_webhook_id(text: str) -> bool:
    """Return whether ``text`` can be the ID of a webhook, which is the value of a header and part
    of a file name.
    """
    return re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", text) is not None


class WebhookOutbox(Protocol):
    """Protocol of the notices that are not delivered. Methods raise ``StorageFailed``.

    The notices of a session are delivered in the order of their transitions. One that reports a
    call that waits is dropped when a later one exists.
    """

    stored: asyncio.Event
    """Event that is set when a notice was stored by this process."""

    async def claim(self, seconds: float) -> Notice | None:
        """Return a notice that is due and reserve it for ``seconds``, or return None."""

    async def postpone(self, webhook_id: str, seconds: float) -> None:
        """Return a claimed notice, which is due again in ``seconds``."""

    async def remove(self, webhook_id: str) -> None:
        """Remove a notice."""

    async def backlog(self) -> "tuple[int, Notice | None]":
        """Return the number of notices that are not delivered, and the oldest one."""

    async def of_session(self, session_id: str) -> Sequence[Notice]:
        """Return the notices of a session that its metadata does not contain."""
        del session_id
        return ()


class SecretStore(Protocol):
    """Protocol of a store for small secrets, such as the tokens of MCP servers.

    A key consists of letters, digits and hyphens. Methods raise ``StorageFailed``.
    """

    async def get(self, key: str) -> bytes | None:
        """Return a secret, or None if there is none."""

    async def put(self, key: str, data: bytes) -> None:
        """Store or replace a secret."""

    async def remove(self, key: str) -> None:
        """Remove a secret, if it exists."""


class VisibleSessions:
    """View of a ``SessionStore``, in which sessions that the current caller may not see do not
    exist.

    It does not inherit from ``SessionStore``, so that each method of the store must be decided
    here: one that is missing is a type error where the view is used as a store.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def create(self, session: ChatSession, *, images: Sequence[Blob] = ()) -> ChatSession:
        return await self._store.create(session, images=images)  # a new ID, so nothing is replaced

    async def create_all(
        self, sessions: Sequence[NewSession], *, check: Callable[[], None] = lambda: None
    ) -> Sequence[ChatSession]:
        return await self._store.create_all(sessions, check=check)

    async def put(self, session: ChatSession, *, images: Sequence[Blob] = ()) -> ChatSession:
        await self._check(session.session_id)
        return await self._store.put(session, images=images)

    async def load(self, session_id: str) -> ChatSession:
        caller = CALLER.get()
        try:
            session = await self._store.load(session_id)
        except SessionDamaged as error:
            if caller.sees_all:
                raise
            raise SessionNotFound(session_id) from error  # the owner is unknown
        if not caller.sees(session.metadata.owner):
            raise SessionNotFound(session_id)
        return session

    async def write(self, session_id: str, change: Change) -> int:
        # ``hold`` has checked the session
        return await self._store.write(session_id, change)

    async def load_versions(self, session_id: str) -> Versions:
        await self._check(session_id)
        return await self._store.load_versions(session_id)

    async def load_image(self, sha256: str) -> bytes:
        return await self._store.load_image(sha256)  # services find the hash in a session first

    async def patch(
        self,
        session_id: str,
        fields: FieldChanges,
        *,
        revision: str | None = None,
        touch: bool = True,
    ) -> ChatSession:
        await self._check(session_id)
        return await self._store.patch(session_id, fields, revision=revision, touch=touch)

    async def delete(self, session_id: str) -> None:
        await self._check(session_id)
        await self._store.delete(session_id)

    async def list(self, query: SessionQuery) -> SessionPage:
        visible = _visible(query)
        if visible is None:
            return SessionPage.of([], 0)
        return await self._store.list(visible)

    async def ids(self) -> Sequence[str]:
        if not CALLER.get().sees_all:
            return []  # only `store copy` needs them
        return await self._store.ids()

    async def count_tags(self, query: SessionQuery) -> Mapping[str, int]:
        visible = _visible(query)
        if visible is None:
            return {}
        return await self._store.count_tags(visible)

    async def expired(self, idle_seconds: float, moment: float) -> Sequence[str]:
        if not CALLER.get().sees_all:
            return []  # only the server itself deletes expired sessions
        return await self._store.expired(idle_seconds, moment)

    async def due_turns(self, until: float) -> Mapping[str, float]:
        if not CALLER.get().sees_all:
            return {}  # only the server itself continues turns
        return await self._store.due_turns(until)

    @asynccontextmanager
    async def hold(
        self, session_id: str, *, run_id: str | None = None, wait: bool = False
    ) -> AsyncIterator[None]:
        await self._check(session_id)
        async with self._store.hold(session_id, run_id=run_id, wait=wait):
            yield

    async def _check(self, session_id: str) -> None:
        """Raise ``SessionNotFound`` if the caller may not see a session."""
        if not CALLER.get().sees_all:
            await self.load(session_id)


def _visible(query: SessionQuery) -> SessionQuery | None:
    """Return the query for those of its sessions that the caller may see, or None for none."""
    caller = CALLER.get()
    if not caller.sees(query.owner or caller.owner):
        return None
    if caller.sees_all:
        return query
    return replace(query, owner=caller.owner)


OnSessionsLost: TypeAlias = Callable[[Collection[str]], None]


class Stores(Protocol):
    """Protocol of the session stores of a server for the sessions of users and of agents."""

    chats: SessionStore
    agents: SessionStore
    webhooks: WebhookOutbox
    secrets: SecretStore
    usage: UsageStore
    turn_counts: TurnCounter
    is_shared: bool = False  # whether other servers may use the same sessions

    @property
    def connected(self) -> bool:
        """Whether the storage was reachable at the last access."""
        return True

    async def open(self, on_sessions_lost: OnSessionsLost = lambda _: None) -> None:
        """Open the stores and register this process.

        ``on_sessions_lost`` is called with the IDs of sessions that this process had locked and
        another server has taken over. Raises ``MochiError`` if the storage is unusable.
        """

    async def check(self) -> None:
        """Raise ``StorageFailed`` or ``StorageBusy`` if sessions cannot be stored."""

    async def aclose(self) -> None:
        """Wait for pending writes and close the stores."""
