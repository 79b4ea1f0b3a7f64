"""Copy of all sessions from one store (files or database) to another. Each copied session is compared with its source.

The source does not change, and a server may use it. To continue a stopped copy, start the same copy again. Sessions
that are equal in both stores are skipped.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from mochi_server.config import MochiServerSettings, without_credentials
from mochi_server.container import build_stores
from mochi_server.errors import BlobNotFound, SessionNotFound
from mochi_server.sessions.serialization import sanitize
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import SessionStore, Stores
from mochi_server.sessions.types import Image, SessionQuery, images_in
from mochi_server.util.clock import timestamp

_TIMES = ("created_at", "updated_at")

logger = logging.getLogger(__name__)


@dataclass
class CopyReport:
    """Result of a copy. ``hashes`` are the hashes of the sessions that are equal in both stores."""

    copied: int = 0
    existing: int = 0
    messages: int = 0
    different: list[str] = field(default_factory=list)
    """IDs of sessions that are newer in the target and were not copied, or that the target stored with changes."""
    hashes: list[str] = field(default_factory=list)

    @property
    def sessions(self) -> int:
        """Number of sessions that are equal in both stores."""
        return self.copied + self.existing

    @property
    def hash(self) -> str:
        return sha256("".join(sorted(self.hashes)).encode()).hexdigest()[:16]


async def copy(source: str, target: str, progress: Callable[[CopyReport, int], None]) -> CopyReport:
    """Copy all sessions, including agent sessions, between data directories or database URLs. Raises ``MochiError``."""
    result = CopyReport()
    async with _open_stores(source, reads_only=True) as from_stores, _open_stores(target) as to_stores:
        pairs = [(from_stores.chats, to_stores.chats), (from_stores.agents, to_stores.agents)]
        sessions = [
            (*pair, entry["session_id"]) for pair in pairs for entry in (await pair[0].list(SessionQuery())).entries
        ]
        for session in sessions:
            await _copy_one(*session, result)
            progress(result, len(sessions))
    return result


def find_problem(source: str, target: str) -> str | None:
    """Return the reason why sessions cannot be copied from ``source`` to ``target``, or None if they can."""
    for place in (source, target):
        if not _is_url(place) and not (place and Path(place).is_dir()):
            return f"there is no directory {without_credentials(place)}; create it, or use a postgresql:// URL"
    if source == target:
        return "FROM and TO are the same place"
    if _is_url(source):
        return None
    settings = _settings(source)
    directory = settings.resolved_sessions_dir
    if not _is_url(target) and directory.resolve() == _settings(target).resolved_sessions_dir.resolve():
        return "FROM and TO are the same place"
    if not directory.is_dir() and not settings.resolved(settings.agent_chats_dir).is_dir():
        return f"there are no sessions in {source}: it has no directory {settings.sessions_dir}"
    return None


def hash_of(session: ChatSession) -> str:
    """Return a hash of a session's content. The hash does not depend on how the session's timestamps are written."""
    data = session.to_dict()
    data["metadata"] |= {name: timestamp(data["metadata"].get(name)) for name in _TIMES}
    return sha256(orjson.dumps(sanitize(data), option=orjson.OPT_SORT_KEYS)).hexdigest()


async def _copy_one(source: SessionStore, target: SessionStore, session_id: str, result: CopyReport) -> None:
    try:
        session = await source.load(session_id)
    except SessionNotFound:  # the session was deleted during the copy
        return
    try:
        existing = await target.load(session_id)
    except SessionNotFound:
        existing = None
    content_hash = hash_of(session)
    if existing is not None and hash_of(existing) == content_hash:
        result.existing += 1
    elif existing is not None and timestamp(existing.metadata.updated_at) > timestamp(session.metadata.updated_at):
        result.different.append(session_id)
        return
    else:
        copied = await target.put(session, images=await _images(source, session))
        if hash_of(copied) != content_hash:
            result.different.append(session_id)
            return
        result.copied += 1
    result.messages += len(session.history)
    result.hashes.append(content_hash)


async def _images(store: SessionStore, session: ChatSession) -> list[Image]:
    """Return the images of ``session`` from ``store``, without missing and invalid images."""
    images = []
    for name in sorted(images_in(session.history)):
        try:
            images.append(Image.of(await store.load_image(name)))
        except (BlobNotFound, ValueError):
            logger.warning("image is missing and is not copied: session_id=%s sha256=%s", session.session_id, name)
    return images


@asynccontextmanager
async def _open_stores(place: str, *, reads_only: bool = False) -> AsyncIterator[Stores]:
    async with aclosing(build_stores(_settings(place))) as stores:
        if _is_url(place) or not reads_only:  # opening a directory locks it
            await stores.open()
        yield stores


def _settings(place: str) -> MochiServerSettings:
    values: dict[str, Any] = {"store_url": place} if _is_url(place) else {"data_dir": place, "store_url": ""}
    return MochiServerSettings(**values, workers=1)


def _is_url(place: str) -> bool:
    return place.startswith(("postgresql://", "postgres://"))
