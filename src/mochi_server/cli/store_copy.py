"""Copy of all sessions from one store (files or database) to another.

Each copied session is compared with its source.

The source does not change, and a server may use it. To continue a stopped copy, start the same copy
again. Sessions that are equal in both stores are skipped.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mochi_server.config import MochiServerSettings, without_credentials
from mochi_server.container import build_stores
from mochi_server.errors import (
    BlobNotFound,
    SessionNotFound,
    SessionTooNew,
    StorageBusy,
    StorageFailed,
)
from mochi_server.sessions.serialization import sanitize
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import SessionStore, Stores, WebhookOutbox
from mochi_server.sessions.types import Blob, blobs_in
from mochi_server.sessions.versions import Versions, blobs_in_versions, with_versions
from mochi_server.util.clock import timestamp

_UNREADABLE = (SessionNotFound, SessionTooNew, StorageBusy, StorageFailed)
"""Errors of a session that cannot be read."""

logger = logging.getLogger(__name__)


@dataclass
class CopyReport:
    """Numbers of copied sessions, of sessions that were already equal, and of the messages
    of both.
    """

    copied: int = 0
    existing: int = 0
    messages: int = 0
    different: list[str] = field(default_factory=list)
    """IDs of sessions that differ in the target.

    The target's state is not older or has a format too new to read, and was not replaced, or the
    target stored the session with changes.
    """
    unreadable: list[str] = field(default_factory=list)
    """IDs of sessions that cannot be read in the source."""


async def copy(source: str, target: str, progress: Callable[[int, int], None]) -> CopyReport:
    """Copy all sessions, including agent sessions, between data directories or database URLs.

    ``progress`` receives the number of sessions that were processed and the number of all sessions.

    Raises ``MochiError``, but not for a session that the source cannot read.
    """
    result = CopyReport()
    async with (
        open_stores(source, reads_only=True) as from_stores,
        open_stores(target) as to_stores,
    ):
        pairs = [(from_stores.chats, to_stores.chats), (from_stores.agents, to_stores.agents)]
        sessions = []
        for from_store, to_store in pairs:
            for session_id in await from_store.ids():
                sessions.append((from_store, to_store, session_id))
        for done, (from_store, to_store, session_id) in enumerate(sessions, 1):
            await _copy_one(from_store, from_stores.webhooks, to_store, session_id, result)
            progress(done, len(sessions))
    return result


def find_problem(source: str, target: str) -> str | None:
    """Return the reason why sessions cannot be copied from ``source`` to ``target``, or None if
    they can.
    """
    for place in (source, target):
        if not _is_url(place) and not (place and Path(place).is_dir()):
            return (
                f"there is no directory {without_credentials(place)}; create it, or use a "
                "postgresql:// URL"
            )
    if _place_of(source) == _place_of(target):
        return "FROM and TO are the same place"
    if _is_url(source):
        return None
    settings = _settings(source)
    directories = (settings.resolved_sessions_dir, settings.resolved(settings.agent_chats_dir))
    if not any(directory.is_dir() for directory in directories):
        return f"there are no sessions in {source}: it has no directory {settings.sessions_dir}"
    return None


def _place_of(place: str) -> str | Path:
    if _is_url(place):
        return place
    return _settings(place).resolved_sessions_dir.resolve()


def content_of(session: ChatSession) -> Any:
    """Return the content of a session.

    It does not depend on how the session's timestamps are written, and does not include undelivered
    webhooks, which stores keep in different places.
    """
    data = session.to_dict()
    metadata = data["metadata"]
    metadata.pop("notices", None)
    for name in ("created_at", "updated_at"):
        metadata[name] = timestamp(metadata.get(name))
    return sanitize(data)


async def _copy_one(
    source: SessionStore,
    webhooks: WebhookOutbox,
    target: SessionStore,
    session_id: str,
    result: CopyReport,
) -> None:
    """Copy a session with its undelivered webhooks, which its metadata or ``webhooks`` contain."""
    try:
        session = await source.load(session_id)
    except _UNREADABLE:
        await _add_unreadable(source, session_id, result)
        return
    content = content_of(session)
    try:
        existing = await target.load(session_id)
    except SessionNotFound:
        existing = None
    except SessionTooNew:
        result.different.append(session_id)
        return
    if existing is not None and content_of(existing) == content:
        result.existing += 1
        result.messages += len(session.history)
        return
    if existing is not None and _updated(existing) >= _updated(session):
        result.different.append(session_id)
        return
    versions: Versions = ()
    try:
        if session.metadata.versions:
            versions = await source.load_versions(session_id)
        images = await _images(source, session, versions)
    except _UNREADABLE:
        await _add_unreadable(source, session_id, result)
        return
    copied = with_versions(session, versions)
    notices = [*map(asdict, await webhooks.of_session(session_id))]
    metadata = replace(copied.metadata, notices=notices or copied.metadata.notices)
    copied = ChatSession(metadata, copied.history, copied.extra)
    stored = await target.put(copied, images=images)
    if content_of(stored) != content:
        result.different.append(session_id)
        return
    result.copied += 1
    result.messages += len(session.history)


async def _add_unreadable(source: SessionStore, session_id: str, result: CopyReport) -> None:
    """Add a session that cannot be read to the report, unless it was deleted during the copy."""
    if session_id in await source.ids():
        result.unreadable.append(session_id)


def _updated(session: ChatSession) -> float:
    return timestamp(session.metadata.updated_at)


async def _images(store: SessionStore, session: ChatSession, versions: Versions) -> list[Blob]:
    """Return the images and files of ``session`` and its ``versions`` from ``store``, without
    missing ones.
    """
    blobs = []
    for name in sorted(blobs_in(session.history) | blobs_in_versions(versions)):
        try:
            blobs.append(Blob.hashed(await store.load_image(name), "application/octet-stream"))
        except BlobNotFound:
            logger.warning(
                "blob is missing and is not copied: session_id=%s sha256=%s",
                session.session_id,
                name,
            )
    return blobs


@asynccontextmanager
async def open_stores(place: str, *, reads_only: bool = False) -> AsyncIterator[Stores]:
    """Open the stores of a data directory or a database URL.

    With ``reads_only``, the place does not change, and a server may use it at the same time.
    """
    async with aclosing(build_stores(_settings(place), reads_only=reads_only)) as stores:
        if _is_url(place) or not reads_only:  # opening a directory locks it
            await stores.open()
        yield stores


def _settings(place: str) -> MochiServerSettings:
    values: dict[str, Any] = {"data_dir": place, "store_url": ""}
    if _is_url(place):
        values = {"store_url": place}
    return MochiServerSettings(**values, workers=1)


def _is_url(place: str) -> bool:
    return place.startswith(("postgresql://", "postgres://"))
