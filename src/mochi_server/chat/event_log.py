"""Event log of a run: its events as encoded lines, in limited memory."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

import orjson

from mochi_server.chat.limits import DEFAULT_LIMITS
from mochi_server.events import (
    ChatEvent,
    ContentDelta,
    ContextCompacted,
    Snapshot,
    ThinkingDelta,
    ToolConfirmationRequired,
    TurnWarning,
)

_MAX_BATCH_EVENTS = 1000
"""In a batch from the log, so that a slow client does not fill the send buffer."""
_RECENT_BATCHES = 4
_LINE_BYTES = 48  # memory that each line needs in addition to its characters
_CLASSES = {event_class.type.encode(): event_class for event_class in get_args(ChatEvent)}
_TYPE_PREFIXES: dict[type, bytes] = {
    event_class: name + b" " for name, event_class in _CLASSES.items()
}


def encode(event: ChatEvent) -> bytes:
    """Return an event as a line: its type, a space and its JSON payload."""
    payload: bytes = orjson.dumps(event)
    return _TYPE_PREFIXES[type(event)] + payload


def decode(line: bytes) -> ChatEvent:
    name, _, payload = line.partition(b" ")
    event: ChatEvent = _CLASSES[name](**orjson.loads(payload))
    return event


class Batch(NamedTuple):
    """Consecutive events.

    ``first`` is the number of the first event; ``lines`` are the encoded events.
    """

    first: int
    lines: Sequence[bytes]
    published: Sequence[ChatEvent] | None = None  # None in a batch that was read from the log

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1

    @property
    def events(self) -> Sequence[ChatEvent]:
        return [decode(line) for line in self.lines] if self.published is None else self.published


@dataclass(slots=True)
class EventLog:
    """Event log of limited size.

    When the log is full, a snapshot of the text replaces the older half of the events.
    """

    max_bytes: int = DEFAULT_LIMITS.log_bytes
    last: int = 0
    size: int = 0  # memory of the stored events in bytes
    warnings: list[TurnWarning] = field(default_factory=list)
    """All warnings of the run, oldest first."""
    compacted: ContextCompacted | None = None
    """Latest event about a prompt that was shortened."""
    confirmations: dict[str, int] = field(default_factory=dict)
    """Number of the event, by confirmation ID."""
    _lines: list[bytes] = field(default_factory=list)
    _recent: deque[Batch] = field(default_factory=lambda: deque(maxlen=_RECENT_BATCHES))
    """Latest batches as they were published, so that a subscriber that is a little slow needs no
    decoding.
    """
    _dropped: int = 0
    """Number of the last event that the snapshot replaces, or 0 if there is no snapshot."""
    _snapshot: Snapshot | None = None
    _restored: Sequence[ChatEvent] = ()
    """Events of calls that follow the snapshot of a restored log."""

    @classmethod
    def restored(cls, snapshot: Snapshot, last: int, calls: Sequence[ChatEvent] = ()) -> "EventLog":
        """Return the log of a run whose events are lost.

        ``snapshot`` and ``calls`` replace its first ``last`` events.

        ``calls`` are the events of its calls with their results.
        """
        return cls(last=last, _dropped=last, _snapshot=snapshot, _restored=calls)

    def ends_with(self, confirmation_id: str) -> bool:
        """Return whether the last event is the request with this confirmation ID."""
        return self.confirmations.get(confirmation_id) == self.last

    def add(self, events: list[ChatEvent]) -> Batch:
        lines = []
        for number, event in enumerate(events, self.last + 1):
            line = encode(event)
            lines.append(line)
            self.size += len(line) + _LINE_BYTES
            if type(event) is TurnWarning:
                self.warnings.append(event)
            elif type(event) is ContextCompacted:
                self.compacted = event
            elif type(event) is ToolConfirmationRequired:
                self.confirmations[event.confirmation_id] = number
        batch = Batch(self.last + 1, lines, events)
        self._recent.append(batch)
        self._lines += lines
        self.last += len(lines)
        if self.size > self.max_bytes:
            self._drop_older_half()
        return batch

    def after(self, position: int) -> Batch | None:
        """Return the events after number ``position`` or some of them, or None if there are none.

        The batch may begin with the snapshot in place of events that were dropped.
        """
        if position >= self.last:
            return None
        recent = [batch for batch in self._recent if batch.first > position]
        if recent and recent[0].first == position + 1:
            lines: list[bytes] = []
            events: list[ChatEvent] = []
            for batch in recent:
                lines += batch.lines
                events += batch.events
            return Batch(position + 1, lines, events)
        if self._snapshot is not None and position < self._dropped:
            replaced = (self._snapshot, *self._restored)
            first = self._dropped - len(self._restored)
            return Batch(first, [*map(encode, replaced)], replaced)
        begin = position - self._dropped
        return Batch(position + 1, self._lines[begin : begin + _MAX_BATCH_EVENTS])

    def release(self) -> None:
        """Free the event objects after the end of the run.

        Clients that resume it need only the lines.
        """
        self._recent.clear()

    def _drop_older_half(self) -> None:
        """Replace the older half of the events by a snapshot of their text.

        The latest event is always retained.
        """
        count = size = 0
        while size < self.size // 2 and count < len(self._lines) - 1:
            size += len(self._lines[count]) + _LINE_BYTES
            count += 1
        earlier = self._snapshot or Snapshot("", "")
        content = [earlier.content]
        thinking = [earlier.thinking]
        for event in map(decode, self._lines[:count]):
            if isinstance(event, Snapshot):
                content = [event.content]
                thinking = [event.thinking]
            elif isinstance(event, ContentDelta):
                content.append(event.content)
            elif isinstance(event, ThinkingDelta):
                thinking.append(event.content)
        self._snapshot = Snapshot("".join(content), "".join(thinking))
        del self._lines[:count]
        self._recent.clear()
        self.size -= size
        self._dropped += count
