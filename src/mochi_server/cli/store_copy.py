"""Moving sessions between files and a database: each one whole, compared when it has arrived.

Can be ended and begun again: what is there already is only compared. The source stays as it is.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from mochi_server.config import MochiServerSettings, without_credentials
from mochi_server.container import build_stores
from mochi_server.errors import BlobNotFound, SessionNotFound
from mochi_server.sessions.images import Image, images_in
from mochi_server.sessions.serialization import sanitize
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import SessionStore, Stores
from mochi_server.sessions.types import SessionQuery
from mochi_server.util.clock import timestamp

_TIMES = ("created_at", "updated_at")
_PAGE = 500

logger = logging.getLogger(__name__)


@dataclass
class CopyReport:
    """What a copy came to; ``hashes`` are of everything that was compared."""

    copied: int = 0
    existing: int = 0
    messages: int = 0
    different: list[str] = field(default_factory=list)
    """Sessions that the target has in a later state, or that did not arrive as they were; left as they are."""
    hashes: list[str] = field(default_factory=list)

    @property
    def sessions(self) -> int:
        """How many are the same in both."""
        return self.copied + self.existing

    @property
    def hash(self) -> str:
        return sha256("".join(sorted(self.hashes)).encode()).hexdigest()[:16]


async def copy(source: str, target: str, progress: Callable[[CopyReport, int], None]) -> CopyReport:
    """Copy all sessions, those of agents too. Places are data directories or URLs. Raises ``MochiError``."""
    result = CopyReport()
    async with _opened(source) as from_stores, _opened(target) as to_stores:
        pairs = [(from_stores.chats, to_stores.chats), (from_stores.agents, to_stores.agents)]
        all_ids = [await _ids(mine) for mine, _ in pairs]
        for (mine, theirs), ids in zip(pairs, all_ids, strict=True):
            for session_id in ids:
                await _copy_one(mine, theirs, session_id, result)
                progress(result, sum(map(len, all_ids)))
    return result


def find_problem(source: str, target: str) -> str | None:
    """Return why nothing can be copied between these places, in words."""
    for place in (source, target):
        if "://" in place and not _is_url(place):
            return f"{without_credentials(place)} is neither a directory nor a postgresql:// URL"
        if not place or (not _is_url(place) and Path(place).exists() and not Path(place).is_dir()):
            return f"{place!r} is not a directory"
    if source == target or (not _is_url(source) and Path(source).resolve() == Path(target).resolve()):
        return "FROM and TO are the same place"
    return None if _is_url(source) else _problem_of_directory(source)


def _problem_of_directory(source: str) -> str | None:
    settings = _settings(source)
    if not Path(source).is_dir():
        return f"there is no directory {without_credentials(source)}"
    if not settings.resolved_sessions_dir.is_dir() and not settings.resolved(settings.agent_chats_dir).is_dir():
        return f"there are no sessions in {source}: it has no directory {settings.sessions_dir}"
    return None


def hash_of(session: ChatSession) -> str:
    """Names a session's content; times count as moments, however they are written."""
    data = session.to_dict()
    data["metadata"] |= {name: timestamp(data["metadata"].get(name)) for name in _TIMES}
    return sha256(orjson.dumps(sanitize(data), option=orjson.OPT_SORT_KEYS)).hexdigest()


async def _copy_one(source: SessionStore, target: SessionStore, session_id: str, result: CopyReport) -> None:
    try:
        session = await source.load(session_id)
    except SessionNotFound:  # deleted meanwhile
        return
    try:
        found = await target.load(session_id)
    except SessionNotFound:
        found = None
    wanted = hash_of(session)
    if found is not None and hash_of(found) == wanted:
        result.existing += 1
    elif found is not None and timestamp(found.metadata.updated_at) > timestamp(session.metadata.updated_at):
        result.different.append(session_id)
        return
    else:
        arrived = await target.put(session, images=await _images(source, session))
        if hash_of(arrived) != wanted:
            result.different.append(session_id)
            return
        result.copied += 1
    result.messages += len(session.history)
    result.hashes.append(wanted)


async def _images(store: SessionStore, session: ChatSession) -> list[Image]:
    """The images that a session names, but for those that are not there."""
    images = []
    for name in sorted(images_in(session.history)):
        try:
            images.append(Image.of(await store.load_image(name)))
        except (BlobNotFound, ValueError):
            logger.warning("session %s names an image that is lost: %s", session.session_id, name)
    return images


async def _ids(store: SessionStore) -> list[str]:
    """Every session, the last changed first; one that changes its place meanwhile is not missed."""
    ids: dict[str, None] = {}
    offset = 0
    while page := (await store.list(SessionQuery(limit=_PAGE, offset=offset))).entries:
        ids |= dict.fromkeys(entry["session_id"] for entry in page)
        offset += _PAGE
    return list(ids)


@asynccontextmanager
async def _opened(place: str) -> AsyncIterator[Stores]:
    stores = build_stores(_settings(place))
    try:
        await stores.open()
        yield stores
    finally:
        await stores.aclose()


def _settings(place: str) -> MochiServerSettings:
    given: dict[str, Any] = {"store_url": place} if _is_url(place) else {"data_dir": place, "store_url": ""}
    return MochiServerSettings(**given, workers=1)


def _is_url(place: str) -> bool:
    return place.startswith(("postgresql://", "postgres://"))
