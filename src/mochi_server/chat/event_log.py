"""Event log of a run. Events are numbered from 1.

Each event is encoded once and stored as a line in one buffer. A single buffer is less work for the garbage
collector than one object per event.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import NamedTuple, get_args

import orjson

from mochi_server.events import (
    ChatEvent,
    ContentDelta,
    Snapshot,
    ThinkingDelta,
    ToolConfirmationRequired,
    TurnWarning,
)

MAX_BYTES = 8 * 1024 * 1024
"""Memory limit for the events of one run, in bytes."""

_MAX_BATCH_BYTES = 256 * 1024
"""Size limit of a batch in bytes, so that a slow client does not fill the send buffer."""

_MAX_BACKLOG_BYTES = 32 * 1024
"""Size limit of the lines in a backlog of several batches, in bytes. The events need several times as much memory."""

_INDEX_BYTES = array("Q").itemsize + array("i").itemsize

_CLASSES = {event_class.type.encode(): event_class for event_class in get_args(ChatEvent)}
_TYPE_PREFIXES: dict[type, bytes] = {event_class: name + b" " for name, event_class in _CLASSES.items()}


def encode(event: ChatEvent) -> bytes:
    """Return an event as a line: its type, a space and its JSON payload."""
    payload: bytes = orjson.dumps(event)
    return _TYPE_PREFIXES[type(event)] + payload


def decode(line: bytes) -> ChatEvent:
    """Return the event that ``encode`` has converted to a line."""
    name, _, payload = line.partition(b" ")
    event: ChatEvent = _CLASSES[name](**orjson.loads(payload))
    return event


class Batch(NamedTuple):
    """Consecutive events. ``first`` is the number of the first event; ``lines`` are the encoded events."""

    first: int
    lines: Sequence[bytes]
    published: Sequence[ChatEvent] | None = None
    """The events as they were published, or None in a batch that was read from the log."""

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1

    @property
    def events(self) -> Sequence[ChatEvent]:
        """Return the events. The events of a batch from the log are decoded."""
        return [decode(line) for line in self.lines] if self.published is None else self.published


class Backlog:
    """Batches that a subscriber has not received yet, for a subscriber that is a little slow.

    If the backlog is full, its batches are dropped, and the subscriber reads the log.
    """

    __slots__ = ("_batches", "_size")

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._size = 0

    def add(self, batch: Batch) -> None:
        self._batches.append(batch)
        self._size += sum(map(len, batch.lines))
        if self._size > _MAX_BACKLOG_BYTES and len(self._batches) > 1:
            self._clear()

    def take(self, position: int) -> Batch | None:
        """Remove and return the events that follow event number ``position`` as one batch, or None."""
        batches = self._batches
        if not batches:
            return None
        self._clear()
        if batches[0].first != position + 1:
            return None
        lines = [line for batch in batches for line in batch.lines]
        return Batch(position + 1, lines, [event for batch in batches for event in batch.events])

    def _clear(self) -> None:
        self._batches, self._size = [], 0


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
    warnings: list[TurnWarning] = field(default_factory=list)
    """All warnings of the run, oldest first."""
    confirmations: dict[str, int] = field(default_factory=dict)
    """For each confirmation ID, the number of the event that requests this approval."""
    _content: StringIO = field(default_factory=StringIO)
    _thinking: StringIO = field(default_factory=StringIO)
    _lengths: "array[int]" = field(default_factory=lambda: array("i"))
    """For each line in ``_lines``, the number of characters that its event adds to the text.

    The number is positive for content, negative for reasoning and 0 for all other events.
    """
    _snapshot_lengths: tuple[int, int] = (0, 0)
    """Numbers of characters of content and reasoning that the snapshot has."""

    @property
    def size(self) -> int:
        """Memory of the stored events in bytes."""
        return len(self._lines) + len(self._ends) * _INDEX_BYTES

    def add(self, events: list[ChatEvent]) -> Batch:
        """Append events and return them as a batch."""
        first, stored = self.last + 1, self._lines
        lines = []
        for event in events:
            lines.append(line := encode(event))
            stored += line
            stored += b"\n"
            self._ends.append(len(stored))
            length = self._content.write(event.content) if type(event) is ContentDelta else self._keep(event)
            self._lengths.append(length)
        self.last += len(lines)
        if self.size > MAX_BYTES:
            self._drop_older_half()
        return Batch(first, lines, events)

    def after(self, position: int) -> Batch | None:
        """Return a batch of the events that follow event number ``position``, or None if there are no such events.

        If some of these events are dropped, return only the snapshot that replaces them.
        """
        if position >= self.last:
            return None
        if position < self._dropped:
            content, thinking = self._snapshot_lengths
            snapshot = Snapshot(self._content.getvalue()[:content], self._thinking.getvalue()[:thinking])
            return Batch(self._dropped, (encode(snapshot),), (snapshot,))
        index = position - self._dropped
        begin, end = self._end_of(index), len(self._lines)
        if end - begin > _MAX_BATCH_BYTES:
            end = self._end_of(max(index + 1, bisect_right(self._ends, begin + _MAX_BATCH_BYTES)))
        return Batch(position + 1, self._lines_between(begin, end))

    def _end_of(self, count: int) -> int:
        return self._ends[count - 1] if count else 0

    def _lines_between(self, begin: int, end: int) -> list[bytes]:
        return bytes(self._lines[begin : end - 1]).split(b"\n")

    def _keep(self, event: ChatEvent) -> int:
        """Keep what the log needs of an event that is not content. Return its number for ``_lengths``."""
        if isinstance(event, ThinkingDelta):
            return -self._thinking.write(event.content)
        if isinstance(event, TurnWarning):
            self.warnings.append(event)
        elif isinstance(event, ToolConfirmationRequired):
            self.confirmations[event.confirmation_id] = self._dropped + len(self._ends)
        return 0

    def _drop_older_half(self) -> None:
        """Replace the older half of the events by a snapshot of their text. The latest event is always retained."""
        count = min(bisect_right(self._ends, len(self._lines) // 2) + 1, len(self._ends) - 1)
        if count:
            cut = self._end_of(count)
            dropped, (content, thinking) = self._lengths[:count], self._snapshot_lengths
            content += sum(length for length in dropped if length > 0)
            self._snapshot_lengths = content, thinking - sum(length for length in dropped if length < 0)
            del self._lines[:cut]
            self._ends = array("Q", [end - cut for end in self._ends[count:]])
            del self._lengths[:count]
            self._dropped += count
