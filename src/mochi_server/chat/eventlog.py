"""The events of a run, numbered from 1: the latest of them as they were, of those before only what they said."""

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

import orjson

from mochi_server.events import ChatEvent, ContentDelta, Snapshot, ThinkingDelta

MAX_WEIGHT = 8 * 1024 * 1024
"""What the events of one run may take up in memory, in bytes, roughly."""

_DELTA_WEIGHT = 240
"""Of an event beside its text, together with what it is sent as."""
_OTHER_WEIGHT = 600
_PORTION = 256 * 1024
"""Roughly the bytes that are handed out at a time: more would only lie in the buffers of a slow reader."""


@dataclass(slots=True)
class Batch:
    """Events that came together. ``first`` is the number of the first one."""

    first: int
    events: list[ChatEvent]
    weight: int = 0
    encoded: bytes | None = None
    """The batch as whoever sends it wrote it, so that it is written once for all listeners."""

    @property
    def last(self) -> int:
        return self.first + len(self.events) - 1

    def behind(self, position: int) -> "Batch":
        """The part of it that comes after a position."""
        if position < self.first:
            return self
        return Batch(position + 1, self.events[position + 1 - self.first :])


@dataclass(slots=True)
class EventLog:
    """Forgets its oldest events rather than grow beyond bounds; a snapshot then says what they said."""

    weight: int = 0
    last: int = 0
    """The number of the latest event."""
    _batches: deque[Batch] = field(default_factory=deque)
    _gone: int = 0
    """The number of the latest event that is forgotten."""
    _content: list[str] = field(default_factory=list)
    _thinking: list[str] = field(default_factory=list)

    def add(self, events: list[ChatEvent]) -> None:
        """Number the events and keep them."""
        batch = Batch(self.last + 1, events, sum(map(_weight, events)))
        self._batches.append(batch)
        self.last = batch.last
        self.weight += batch.weight
        while self.weight > MAX_WEIGHT and len(self._batches) > 1:
            self._forget(self._batches.popleft())

    def after(self, position: int) -> list[Batch]:
        """Some of the events behind a position, those next to it; in place of forgotten ones a snapshot."""
        if position >= self.last:
            return []
        if position < self._gone:
            snapshot = Snapshot("".join(self._content), "".join(self._thinking))
            return [Batch(self._gone, [snapshot])]
        found: list[Batch] = []
        weight = 0
        for batch in islice(self._batches, self._index(position), None):
            found.append(batch.behind(position))
            weight += batch.weight
            if weight > _PORTION:
                break
        return found

    def _index(self, position: int) -> int:
        """Where the batch with the next event stands; listeners are nearly always close to the end."""
        index = len(self._batches) - 1
        while self._batches[index].first > position + 1:
            index -= 1
        return index

    def _forget(self, batch: Batch) -> None:
        self.weight -= batch.weight
        self._gone = batch.last
        for event in batch.events:
            if isinstance(event, ContentDelta):
                self._content.append(event.content)
            elif isinstance(event, ThinkingDelta):
                self._thinking.append(event.content)


def _weight(event: ChatEvent) -> int:
    if isinstance(event, ContentDelta | ThinkingDelta):
        return _DELTA_WEIGHT + 3 * len(event.content)
    return _OTHER_WEIGHT + 3 * len(orjson.dumps(event))
