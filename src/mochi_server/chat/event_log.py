"""The events of a run, numbered from 1: the latest of them as they were, of those before only what they said.

Events are kept as bytes, each a line of its type and its payload, all of them in one piece: the collector of garbage
has nothing to look at, however many there are, and whoever sends them finds them encoded.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args

import orjson

from mochi_server.events import ChatEvent, ContentDelta, Snapshot, ThinkingDelta

MAX_BYTES = 8 * 1024 * 1024
"""What the events of one run may take up."""

_PORTION = 256 * 1024
"""Bytes that are handed out at a time: more would only lie in the buffers of a slow reader."""


_KINDS = {kind.type: kind.type.encode() + b" " for kind in get_args(ChatEvent)}
_CONTENT, _THINKING = ContentDelta.type.encode(), ThinkingDelta.type.encode()


class Batch(NamedTuple):
    """Events that follow each other. ``first`` is the number of the first one."""

    first: int
    lines: Sequence[bytes]

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1

    def events(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Number, type and payload of each, the payload as JSON."""
        for number, line in enumerate(self.lines, self.first):
            kind, _, payload = line.partition(b" ")
            yield number, kind, payload


@dataclass(slots=True)
class EventLog:
    """Forgets its oldest events rather than grow beyond bounds; a snapshot then says what they said."""

    last: int = 0
    """The number of the latest event."""
    _lines: bytearray = field(default_factory=bytearray)
    _ends: "array[int]" = field(default_factory=lambda: array("Q"))
    """Where each line ends, its line feed included."""
    _dropped: int = 0
    """The number of the latest event that is forgotten."""
    _content: str = ""
    _thinking: str = ""

    @property
    def size(self) -> int:
        """What the events take up, in bytes."""
        return len(self._lines) + len(self._ends) * self._ends.itemsize

    def add(self, events: list[ChatEvent]) -> Batch:
        """Number the events and keep them. Return them as a batch."""
        first = self.last + 1
        lines = []
        for event in events:
            line = _KINDS[event.type] + orjson.dumps(event)
            lines.append(line)
            self._lines += line
            self._lines += b"\n"
            self._ends.append(len(self._lines))
        self.last += len(lines)
        if self.size > MAX_BYTES:
            self._drop_older_half()
        return Batch(first, lines)

    def after(self, position: int) -> Batch | None:
        """Some of the events behind a position, those next to it; in place of forgotten ones a snapshot."""
        if position >= self.last:
            return None
        if position < self._dropped:
            snapshot = Snapshot(self._content, self._thinking)
            return Batch(self._dropped, (_KINDS[snapshot.type] + orjson.dumps(snapshot),))
        index = position - self._dropped
        begin, end = self._end(index), len(self._lines)
        if end - begin > _PORTION:
            end = self._end(max(index + 1, bisect_right(self._ends, begin + _PORTION)))
        return Batch(position + 1, self._between(begin, end))

    def _end(self, count: int) -> int:
        """Where the first so many lines end."""
        return self._ends[count - 1] if count else 0

    def _between(self, begin: int, end: int) -> list[bytes]:
        return bytes(self._lines[begin : end - 1]).split(b"\n")

    def _drop_older_half(self) -> None:
        """Let go of the older half, so that it is seldom done; the latest event stays."""
        count = min(bisect_right(self._ends, len(self._lines) // 2) + 1, len(self._ends) - 1)
        if count:
            cut = self._end(count)
            self._summarise(Batch(0, self._between(0, cut)))
            del self._lines[:cut]
            self._ends = array("Q", [end - cut for end in self._ends[count:]])
            self._dropped += count

    def _summarise(self, batch: Batch) -> None:
        said: dict[bytes, list[str]] = {_CONTENT: [], _THINKING: []}
        for _, kind, payload in batch.events():
            if kind in said:
                said[kind].append(_content(payload))
        self._content += "".join(said[_CONTENT])
        self._thinking += "".join(said[_THINKING])


def _content(payload: bytes) -> str:
    event: dict[str, Any] = orjson.loads(payload)
    return str(event["content"])
