"""The events of a run, numbered from 1: the latest of them as they were, of those before only what they said.

Events are kept as bytes, each a line of its type and its payload: the collector of garbage need not look at them, and
whoever sends them finds them encoded.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args

import orjson

from mochi_server.events import ChatEvent, ContentDelta, Snapshot, ThinkingDelta

MAX_BYTES = 8 * 1024 * 1024
"""What the events of one run may take up."""

_BATCH_BYTES = 80
"""What a batch takes up besides what it says; a model that speaks slowly has as many batches as tokens."""

_PORTION = 256 * 1024
"""Bytes that are handed out at a time: more would only lie in the buffers of a slow reader."""


_KINDS = {kind.type: kind.type.encode() + b" " for kind in get_args(ChatEvent)}


class Batch(NamedTuple):
    """Events that follow each other. ``first`` is the number of the first one."""

    first: int
    lines: tuple[bytes, ...]

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

    size: int = 0
    """In bytes."""
    last: int = 0
    """The number of the latest event."""
    _firsts: list[int] = field(default_factory=list)
    _batches: list[bytes] = field(default_factory=list)
    _gone: int = 0
    """The number of the latest event that is forgotten."""
    _content: list[str] = field(default_factory=list)
    _thinking: list[str] = field(default_factory=list)

    def add(self, events: list[ChatEvent]) -> None:
        """Number the events and keep them."""
        batch = b"\n".join([_KINDS[event.type] + orjson.dumps(event) for event in events])
        self._firsts.append(self.last + 1)
        self._batches.append(batch)
        self.last += len(events)
        self.size += len(batch) + _BATCH_BYTES
        if self.size > MAX_BYTES:
            self._forget()

    def after(self, position: int) -> Batch | None:
        """Some of the events behind a position, those next to it; in place of forgotten ones a snapshot."""
        if position >= self.last:
            return None
        if position < self._gone:
            snapshot = Snapshot("".join(self._content), "".join(self._thinking))
            return Batch(self._gone, (_KINDS[snapshot.type] + orjson.dumps(snapshot),))
        index = bisect_right(self._firsts, position + 1) - 1
        lines = self._batches[index].split(b"\n")[position + 1 - self._firsts[index] :]
        size = 0
        for batch in self._batches[index + 1 :]:
            size += len(batch)
            if size > _PORTION:
                break
            lines += batch.split(b"\n")
        return Batch(position + 1, tuple(lines))

    def compact(self) -> None:
        """Nothing more is added: join what came in pieces, and take up half the memory or less."""
        firsts: list[int] = []
        portions: list[list[bytes]] = []
        size = _PORTION
        for first, batch in zip(self._firsts, self._batches, strict=True):
            if size + len(batch) > _PORTION:
                firsts.append(first)
                portions.append([])
                size = 0
            portions[-1].append(batch)
            size += len(batch)
        self._firsts, self._batches = firsts, [b"\n".join(portion) for portion in portions]
        self.size = sum(len(batch) + _BATCH_BYTES for batch in self._batches)

    def _forget(self) -> None:
        """Let go of the older half, so that it is seldom done."""
        count = 0
        while self.size > MAX_BYTES // 2 and count < len(self._batches) - 1:
            self.size -= len(self._batches[count]) + _BATCH_BYTES
            self._summarise(self._batches[count])
            count += 1
        del self._firsts[:count], self._batches[:count]
        self._gone = self._firsts[0] - 1

    def _summarise(self, batch: bytes) -> None:
        for _, kind, payload in Batch(0, tuple(batch.split(b"\n"))).events():
            if kind == ContentDelta.type.encode():
                self._content.append(_content(payload))
            elif kind == ThinkingDelta.type.encode():
                self._thinking.append(_content(payload))


def _content(payload: bytes) -> str:
    event: dict[str, Any] = orjson.loads(payload)
    return str(event["content"])
