"""Event log of a run. Events are numbered from 1.

Each event is encoded once and stored as a line in one buffer. A single buffer is less work for the garbage
collector than one object per event.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args

import orjson

from mochi_server.events import ChatEvent, ContentDelta, Snapshot, ThinkingDelta, TurnWarning

MAX_BYTES = 8 * 1024 * 1024
"""Memory limit for the events of one run, in bytes."""

_MAX_BATCH_BYTES = 256 * 1024
"""Size limit of a batch in bytes, so that a slow client does not fill the send buffer."""

_TYPE_PREFIXES = {kind.type: kind.type.encode() + b" " for kind in get_args(ChatEvent)}
_CONTENT, _THINKING, _WARNING = (kind.type.encode() for kind in (ContentDelta, ThinkingDelta, TurnWarning))


class Batch(NamedTuple):
    """Consecutive events. ``first`` is the number of the first event; ``lines`` are the encoded events."""

    first: int
    lines: Sequence[bytes]

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1

    def events(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield the number, the type and the JSON payload of each event."""
        for number, line in enumerate(self.lines, self.first):
            kind, _, payload = line.partition(b" ")
            yield number, kind, payload


@dataclass(slots=True)
class EventLog:
    """Event log of limited size. When the log is full, a snapshot of the text replaces the older half of the events."""

    last: int = 0
    """Number of the latest event."""
    _lines: bytearray = field(default_factory=bytearray)
    _ends: "array[int]" = field(default_factory=lambda: array("Q"))
    """For each line in ``_lines``, the byte offset at which the next line begins."""
    _dropped: int = 0
    """Number of the last event that the snapshot replaces, or 0 if there is no snapshot."""
    _content: str = ""
    _thinking: str = ""
    _warnings: list[TurnWarning] = field(default_factory=list)
    """Warnings of the events that the snapshot has replaced."""

    @property
    def warnings(self) -> list[TurnWarning]:
        """All warnings of the run, oldest first."""
        stored = Batch(0, self._lines_between(0, len(self._lines))) if _WARNING in self._lines else Batch(0, ())
        return [*self._warnings, *(TurnWarning(**payload) for payload in _payloads(stored, _WARNING))]

    @property
    def size(self) -> int:
        """Memory of the stored events in bytes."""
        return len(self._lines) + len(self._ends) * self._ends.itemsize

    def add(self, events: list[ChatEvent]) -> Batch:
        """Append events and return them as a batch."""
        first = self.last + 1
        lines = []
        for event in events:
            line = _TYPE_PREFIXES[event.type] + orjson.dumps(event)
            lines.append(line)
            self._lines += line
            self._lines += b"\n"
            self._ends.append(len(self._lines))
        self.last += len(lines)
        if self.size > MAX_BYTES:
            self._drop_older_half()
        return Batch(first, lines)

    def after(self, position: int) -> Batch | None:
        """Return a batch of the events that follow event number ``position``, or None if there are no such events.

        If some of these events are dropped, return only the snapshot that replaces them.
        """
        if position >= self.last:
            return None
        if position < self._dropped:
            snapshot = Snapshot(self._content, self._thinking)
            return Batch(self._dropped, (_TYPE_PREFIXES[snapshot.type] + orjson.dumps(snapshot),))
        index = position - self._dropped
        begin, end = self._end_of(index), len(self._lines)
        if end - begin > _MAX_BATCH_BYTES:
            end = self._end_of(max(index + 1, bisect_right(self._ends, begin + _MAX_BATCH_BYTES)))
        return Batch(position + 1, self._lines_between(begin, end))

    def _end_of(self, count: int) -> int:
        return self._ends[count - 1] if count else 0

    def _lines_between(self, begin: int, end: int) -> list[bytes]:
        return bytes(self._lines[begin : end - 1]).split(b"\n")

    def _drop_older_half(self) -> None:
        """Replace the older half of the events by a snapshot of their text. The latest event is always retained."""
        count = min(bisect_right(self._ends, len(self._lines) // 2) + 1, len(self._ends) - 1)
        if count:
            cut = self._end_of(count)
            dropped = Batch(0, self._lines_between(0, cut))
            self._warnings += [TurnWarning(**payload) for payload in _payloads(dropped, _WARNING)]
            self._content += "".join(payload["content"] for payload in _payloads(dropped, _CONTENT))
            self._thinking += "".join(payload["content"] for payload in _payloads(dropped, _THINKING))
            del self._lines[:cut]
            self._ends = array("Q", [end - cut for end in self._ends[count:]])
            self._dropped += count


def _payloads(batch: Batch, event_type: bytes) -> list[dict[str, Any]]:
    return [orjson.loads(payload) for _, kind, payload in batch.events() if kind == event_type]
