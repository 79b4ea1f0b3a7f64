"""Session store in memory, for conversations that are not saved."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from mochi_server.errors import BlobNotFound, SessionConflict, SessionNotFound
from mochi_server.sessions import store as rules
from mochi_server.sessions.change import Change
from mochi_server.sessions.serialization import encode
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Blob, SessionQuery, blobs_in
from mochi_server.sessions.versions import Versions, blobs_in_versions
from mochi_server.storage.session_record import SessionLocks, SessionRecord
from mochi_server.util.clock import new_id, now, timestamp


class MemorySessionStore(rules.SessionStore):
    """``SessionStore`` in memory. Use it from one event loop only. There is no crash recovery."""

    def __init__(self) -> None:
        self._records: dict[str, SessionRecord] = {}
        self._images: dict[str, bytes] = {}
        self._locks = SessionLocks()

    async def create(self, session: ChatSession, *, images: Sequence[Blob] = ()) -> ChatSession:
        fresh = rules.normalized(session)
        while fresh.session_id in self._records:
            fresh.metadata.session_id = new_id()
        return self._put(SessionRecord.of(fresh), images)

    async def put(self, session: ChatSession, *, images: Sequence[Blob] = ()) -> ChatSession:
        return self._put(SessionRecord.of(rules.normalized(session)), images)

    async def load(self, session_id: str) -> ChatSession:
        return self._find(session_id).session()

    async def write(self, session_id: str, change: Change) -> int:
        record = self._find(session_id, change.revision)
        if change.only_partial is not None:
            return 0  # there is no crash recovery
        start = record.position(change.start)
        messages = rules.normalized_messages(change.messages, start)
        changed = record.versions_after(start, messages, change.versions)
        after = record.with_tail(start, messages, now(), change.turn, versions=changed.versions)
        self._put(after, change.images)
        return changed.removed

    async def load_versions(self, session_id: str) -> Versions:
        return self._find(session_id).versions

    async def load_image(self, sha256: str) -> bytes:
        for record in self._records.values():
            if sha256 in blobs_in(record.messages) | blobs_in_versions(record.versions):
                return self._images[sha256]
        raise BlobNotFound(sha256)

    async def patch(
        self,
        session_id: str,
        fields: rules.FieldChanges,
        *,
        revision: str | None = None,
        touch: bool = True,
    ) -> ChatSession:
        record = self._find(session_id, revision)
        values = rules.normalized_fields(fields, record.metadata)
        moment = now() if touch else record.metadata.updated_at
        return self._put(record.with_fields(values, moment))

    async def delete(self, session_id: str) -> None:
        self._find(session_id)
        del self._records[session_id]

    def _matching(self, query: SessionQuery) -> list[ChatSession]:
        """Return the sessions that match the filters of ``query``, in any order."""
        found = []
        for record in self._records.values():
            metadata = record.metadata
            if (
                query.owner in (None, metadata.owner)
                and query.archived in (None, metadata.archived)
                and query.temporary in (None, metadata.temporary)
                and set(query.tags).issubset(metadata.tags)
            ):
                found.append(record.view)
        return found

    async def list(self, query: SessionQuery) -> rules.SessionPage:
        found = self._matching(query)
        for word in rules.words(query.text):
            found = [session for session in found if word in rules.searchable_text(session)]
        found.sort(key=lambda session: timestamp(session.metadata.updated_at), reverse=True)
        if query.pinned_first:
            found.sort(key=lambda session: not session.metadata.pinned)
        end = None if query.limit is None else query.offset + query.limit
        entries = [encode(session.summary_object()) for session in found[query.offset : end]]
        return rules.SessionPage.of(entries, len(found))

    async def count_tags(self, query: SessionQuery) -> Mapping[str, int]:
        return Counter(tag for session in self._matching(query) for tag in session.metadata.tags)

    async def expired(self, idle_seconds: float, moment: float) -> Sequence[str]:
        return [
            session_id
            for session_id, record in self._records.items()
            if record.metadata.has_expired(idle_seconds, moment)
        ]

    @asynccontextmanager
    async def hold(
        self, session_id: str, *, run_id: str | None = None, wait: bool = False
    ) -> AsyncIterator[None]:
        self._find(session_id)
        async with self._locks.holding(session_id, run_id=run_id, wait=wait):
            self._find(session_id)  # it may have been deleted meanwhile
            yield

    def _find(self, session_id: str, revision: str | None = None) -> SessionRecord:
        record = self._records.get(session_id)
        if record is None:
            raise SessionNotFound(session_id)
        if revision not in (None, record.revision):
            raise SessionConflict(session_id)
        return record

    def _put(self, record: SessionRecord, images: Sequence[Blob] = ()) -> ChatSession:
        self._images.update({image.sha256: image.data for image in images})
        self._records[record.metadata.session_id] = record
        return record.session()


class MemorySecretStore(rules.SecretStore):
    """``SecretStore`` in memory."""

    def __init__(self) -> None:
        self._secrets: dict[str, bytes] = {}

    async def get(self, key: str) -> bytes | None:
        return self._secrets.get(key)

    async def put(self, key: str, data: bytes) -> None:
        self._secrets[key] = data

    async def remove(self, key: str) -> None:
        self._secrets.pop(key, None)
