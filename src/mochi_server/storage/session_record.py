"""Parts of all session stores: the state of a session with the partial answer of its turn, a cache,
and locks.

A turn log contains the changes since the session's file was written. Each line contains one change
and the digest of the history before the change, so that changes of messages are never applied
twice. Changes of metadata fields do not change the digest, and can be applied again.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from copy import copy, deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from cachetools import LRUCache

from mochi_server.errors import SessionBusy
from mochi_server.sessions.change import Notice, VersionChange
from mochi_server.sessions.history import History, close_partial, with_missing_results
from mochi_server.sessions.migration import read_turn
from mochi_server.sessions.serialization import MESSAGE_SEPARATOR, decode, encode, encode_file
from mochi_server.sessions.session import (
    ChatSession,
    SessionMetadata,
    complete_message,
    revision_at,
)
from mochi_server.sessions.turn import StoredTurn
from mochi_server.sessions.types import Message, PartialMessage
from mochi_server.sessions.versions import (
    ChangedVersions,
    Versions,
    changed_versions,
    places_of,
    split_versions,
)
from mochi_server.util.clock import now, timestamp


@dataclass(frozen=True)
class SessionRecord:
    """Metadata, messages and unknown keys of a session.

    ``partial`` is the partial answer of a turn.
    """

    metadata: SessionMetadata
    messages: History
    extra: dict[str, Any] = field(default_factory=dict)
    partial: PartialMessage | None = None
    versions: Versions = ()

    @classmethod
    def of(cls, session: ChatSession) -> "SessionRecord":
        versions, extra = split_versions(session.extra)
        metadata = session.metadata
        if versions or metadata.versions:
            metadata = replace(metadata, versions=places_of(versions))
        return cls(metadata, session.history, extra, versions=versions)

    @property
    def lines(self) -> list[bytes]:
        """Encoded messages for a session file: an item for each block, then one for each message
        after the blocks.
        """
        return [*(block.cached(_encode_block) for block in self.messages.blocks), *self._tail]

    @cached_property
    def digest(self) -> str:
        """Hash of all messages, in hex. It does not depend on their division into blocks."""
        # No message contains the separator.
        messages = b"\n".join(self.lines).replace(MESSAGE_SEPARATOR, b"\n")
        return blake2b(messages, digest_size=8).hexdigest()

    @property
    def revision(self) -> str:
        return revision_at(len(self.messages), self.messages[-1] if self.messages else None)

    def file(self) -> bytes:
        """Return the content of the session file, which has no partial answer."""
        metadata = copy(self.metadata)
        metadata.message_count = len(self.messages)
        versions = [version.line for version in self.versions]
        return encode_file(metadata, self.lines, self.extra, versions)

    def session(self) -> ChatSession:
        """Return the session for callers, without the partial answer and the earlier versions of
        messages.
        """
        metadata = deepcopy(self.metadata)
        metadata.message_count = len(self.messages)
        return ChatSession(metadata, self.messages, dict(self.extra))

    @property
    def view(self) -> ChatSession:
        """Session for reading, which shares its metadata with this record."""
        return ChatSession(self.metadata, self.messages)

    def position(self, index: int | None) -> int:
        """Return ``index``, limited to the range of positions in the history.

        None is the end of the history.
        """
        end = len(self.messages)
        return end if index is None else max(0, min(index, end))

    def with_tail(
        self,
        from_index: int,
        messages: Sequence[Message],
        updated_at: str,
        turn: StoredTurn | None = None,
        notices: Sequence[Notice] = (),
        *,
        versions: Versions | None = None,
    ) -> "SessionRecord":
        """Return a copy without the partial answer, in which ``messages`` replace all messages from
        ``from_index``.

        ``turn`` and ``versions`` replace the stored ones, unless they are None. ``notices`` are
        added to those that are not delivered.
        """
        prefix = self.messages.prefix(self.position(from_index))
        history = prefix.extended(messages)
        metadata = copy(self.metadata)
        metadata.updated_at = updated_at
        metadata.turn = turn or metadata.turn
        metadata.notices = [*(metadata.notices or ()), *map(asdict, notices)] or None
        if versions is None:
            versions = self.versions
        else:
            metadata.versions = places_of(versions)
        after = SessionRecord(metadata, history, self.extra, versions=versions)
        if prefix is self.messages and len(prefix.blocks) == len(history.blocks):
            # The old messages need not be encoded again.
            vars(after)["_tail"] = (*self._tail, *map(encode, messages))
        return after

    def versions_after(
        self, from_index: int, messages: Sequence[Message], change: VersionChange | None
    ) -> ChangedVersions:
        """Return the versions after ``messages`` have replaced those from ``from_index``, and how
        many were removed.
        """
        if change is None:
            return ChangedVersions(self.versions)
        replaced = self.messages[self.position(from_index) :]
        return changed_versions(self.versions, replaced, messages, change)

    def with_fields(self, fields: Mapping[str, Any], updated_at: str) -> "SessionRecord":
        """Return a copy with these metadata fields changed.

        None resets a field. The later of the old and the new ``updated_at`` remains. Raises
        ValueError for model=None.
        """
        latest = max(self.metadata.updated_at, updated_at, key=timestamp)
        changed = {**self.metadata.to_dict(), **fields, "updated_at": latest}
        return self._same_history(metadata=SessionMetadata.from_dict(changed))

    def with_partial(self, partial: PartialMessage | None) -> "SessionRecord":
        return self._same_history(partial=partial)

    def with_partial_line(self, partial: PartialMessage) -> tuple["SessionRecord", bytes]:
        """Return a copy with a partial answer, and the line of the turn log for this change."""
        message = complete_message(partial.copy(), len(self.messages), now())
        # This caches the digest for the copy, too.
        line = encode({"at": self.digest, "partial": message}) + b"\n"
        return self.with_partial(message), line

    def tail_line(
        self, from_index: int, after: "SessionRecord", change: VersionChange | None = None
    ) -> bytes:
        """Return the line of the turn log for the change from this record to ``after``.

        The messages differ only from position ``from_index``. ``change`` is that of the versions.
        """
        head = {"at": self.digest, "from": from_index, "updated_at": after.metadata.updated_at}
        if after.metadata.turn is not None:
            head["turn"] = after.metadata.turn.to_dict()
        if after.metadata.notices:
            head["notices"] = after.metadata.notices
        if change is not None:
            head["versions"] = asdict(change)
        new = map(encode, after.messages[from_index:])
        return encode(head)[:-1] + b',"messages":[' + b",".join(new) + b"]}\n"

    def fields_line(self, fields: Mapping[str, Any], updated_at: str) -> bytes:
        """Return the line of the turn log for a change of metadata fields."""
        return encode({"at": self.digest, "fields": fields, "updated_at": updated_at}) + b"\n"

    def with_log(self, log: bytes) -> "SessionRecord":
        """Return a copy with the changes of a turn log.

        Damaged and incomplete lines, and those for another history, are ignored.
        """
        record = self
        for encoded in log.split(b"\n")[:-1]:
            with suppress(ValueError, TypeError, KeyError, AttributeError):
                line = decode(encoded)
                if line["at"] != record.digest:
                    continue
                if "fields" in line:
                    record = record.with_fields(line["fields"], line["updated_at"])
                elif "partial" in line:
                    record = record.with_partial(line["partial"])
                else:
                    turn = read_turn({"session_id": record.metadata.session_id, **line})
                    start, messages = line["from"], line["messages"]
                    changed = VersionChange(**line["versions"]) if "versions" in line else None
                    record = record.with_tail(
                        start,
                        messages,
                        line["updated_at"],
                        turn,
                        versions=record.versions_after(start, messages, changed).versions,
                    )
                    record.metadata.notices = line.get("notices")  # all of them
        return record

    def after_crash(self) -> "SessionRecord":
        """Return a copy after crash recovery, or the record itself if there is nothing to recover.

        The partial answer becomes a message, and each tool call gets a result. If the turn
        continues after a crash, its partial answer is dropped, and its calls stay without results.
        """
        if self.metadata.turn is not None and self.metadata.turn.survives:
            return self if self.partial is None else self.with_partial(None)
        history = self.messages
        if self.partial is not None:
            history = history.extended(close_partial(self.partial))
        complete = with_missing_results(history)
        if complete is self.messages:
            return self
        # Missing results can be anywhere in the history.
        start = len(self.messages) if complete is history else 0
        return self.with_tail(start, complete[start:], self.metadata.updated_at)

    @cached_property
    def _tail(self) -> tuple[bytes, ...]:
        return tuple(map(encode, self.messages.tail))

    def _same_history(self, **changes: Any) -> "SessionRecord":
        after = copy(self)  # with the cached properties, which depend only on the messages
        vars(after).update(changes)
        return after


def _encode_block(messages: Sequence[Message]) -> bytes:
    return MESSAGE_SEPARATOR.join(map(encode, messages))


MAX_BYTES = 64 * 1024 * 1024


class _Sized(Protocol):
    @property
    def memory(self) -> int: ...


_T = TypeVar("_T", bound=_Sized)


class SessionCache(Generic[_T]):
    """Thread-safe LRU cache of sessions with a memory limit in bytes.

    Callers check that a session is current.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        limit = MAX_BYTES if max_bytes is None else max_bytes
        self._sessions: LRUCache[str, _T] = LRUCache(limit, getsizeof=lambda stored: stored.memory)
        self._lock = threading.Lock()

    def get(self, session_id: str) -> _T | None:
        with self._lock:
            return self._sessions.get(session_id)

    def put(self, session_id: str, stored: _T) -> None:
        """Cache a session in place of an earlier state.

        If it alone exceeds the memory limit, cache neither.
        """
        with self._lock, suppress(ValueError):
            self._sessions.pop(session_id, None)
            self._sessions[session_id] = stored

    def remove(self, session_id: str) -> None:
        with self._lock:
            self._sessions.pop(session_id, None)


class _Request(NamedTuple):
    run_id: str | None
    wait: bool
    granted: "asyncio.Future[None]"


class SessionLocks:
    """Exclusive locks, one per session, granted in the order of the requests.

    Use them in one event loop.
    """

    def __init__(self) -> None:
        self._queues: dict[str, list[_Request]] = {}
        """Requests by session. The first one has the lock."""

    def __len__(self) -> int:
        return len(self._queues)

    @asynccontextmanager
    async def holding(
        self, session_id: str, *, run_id: str | None = None, wait: bool = False
    ) -> AsyncIterator[None]:
        """Lock a session. A turn is a request with a ``run_id``.

        Raises SessionBusy if ``wait`` is false and another turn has the lock or gets it first.
        """
        queue = self._queues.setdefault(session_id, [])
        if queue and queue[0].run_id is not None and not wait:
            raise SessionBusy(session_id, queue[0].run_id)
        request = _Request(run_id, wait, asyncio.get_running_loop().create_future())
        queue.append(request)
        if len(queue) == 1:
            self._grant_first(session_id, queue)
        try:
            await request.granted
            yield
        finally:
            if request in queue:  # else it was refused
                had_lock = queue[0] is request
                queue.remove(request)
                if had_lock:
                    self._grant_first(session_id, queue)

    def _grant_first(self, session_id: str, queue: list[_Request]) -> None:
        """Grant the lock to the first request that is not cancelled.

        If it is a turn, refuse the other requests without ``wait``.
        """
        queue[:] = [request for request in queue if not request.granted.done()]
        if not queue:
            del self._queues[session_id]
            return
        first, *others = queue
        first.granted.set_result(None)
        if first.run_id is not None:
            queue[1:] = [request for request in others if request.wait]
            for request in others:
                if not request.wait:
                    request.granted.set_exception(SessionBusy(session_id, first.run_id))
