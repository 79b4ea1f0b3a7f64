"""Event log of a run. Events are numbered from 1. Each event is encoded once, as a line."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
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

_MAX_BATCH_EVENTS = 1000
"""Number of events in a batch from the log, so that a slow client does not fill the send buffer."""

_RECENT_BATCHES = 4

_LINE_BYTES = 48
"""Memory that each line needs in addition to its characters, in bytes."""

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


@dataclass(slots=True)
class EventLog:
    """Event log of limited size. When the log is full, a snapshot of the text replaces the older half of the events."""

    last: int = 0
    """Number of the latest event."""
    size: int = 0
    """Memory of the stored events in bytes."""
    warnings: list[TurnWarning] = field(default_factory=list)
    """All warnings of the run, oldest first."""
    confirmations: dict[str, int] = field(default_factory=dict)
    """For each confirmation ID, the number of the event that requests this approval."""
    _lines: list[bytes] = field(default_factory=list)
    _recent: deque[Batch] = field(default_factory=lambda: deque(maxlen=_RECENT_BATCHES))
    """Latest batches as they were published, so that a subscriber that is a little slow needs no decoding."""
    _dropped: int = 0
    """Number of the last event that the snapshot replaces, or 0 if there is no snapshot."""
    _snapshot: Snapshot | None = None

    def add(self, events: list[ChatEvent]) -> Batch:
        """Append events and return them as a batch."""
        lines = [encode(event) for event in events]
        batch = Batch(self.last + 1, lines, events)
        self._recent.append(batch)
        self._lines += lines
        self.last += len(lines)
        self.size += _size(lines)
        for number, event in enumerate(events, batch.first):
            if type(event) is TurnWarning:
                self.warnings.append(event)
            elif type(event) is ToolConfirmationRequired:
                self.confirmations[event.confirmation_id] = number
        if self.size > MAX_BYTES:
            self._drop_older_half()
        return batch

    def after(self, position: int) -> Batch | None:
        """Return a batch of the events that follow event number ``position``, or None if there are no such events.

        If some of these events are dropped, return only the snapshot that replaces them.
        """
        if position >= self.last:
            return None
        recent = [batch for batch in self._recent if batch.first > position]
        if recent and recent[0].first == position + 1:
            lines = [line for batch in recent for line in batch.lines]
            return Batch(position + 1, lines, [event for batch in recent for event in batch.events])
        if self._snapshot is not None and position < self._dropped:
            return Batch(self._dropped, (encode(self._snapshot),), (self._snapshot,))
        begin = position - self._dropped
        return Batch(position + 1, self._lines[begin : begin + _MAX_BATCH_EVENTS])

    def release(self) -> None:
        """Free the event objects after the end of the run. Clients that resume it need only the lines."""
        self._recent.clear()

    def _drop_older_half(self) -> None:
        """Replace the older half of the events by a snapshot of their text. The latest event is always retained."""
        count = size = 0
        while size < self.size // 2 and count < len(self._lines) - 1:
            size += _size(self._lines[count : count + 1])
            count += 1
        earlier = self._snapshot or Snapshot("", "")
        content, thinking = [earlier.content], [earlier.thinking]
        for event in map(decode, self._lines[:count]):
            if isinstance(event, ContentDelta | ThinkingDelta):
                (content if isinstance(event, ContentDelta) else thinking).append(event.content)
        self._snapshot = Snapshot("".join(content), "".join(thinking))
        del self._lines[:count]
        self._recent.clear()
        self.size -= size
        self._dropped += count


def _size(lines: Sequence[bytes]) -> int:
    return sum(map(len, lines)) + len(lines) * _LINE_BYTES
