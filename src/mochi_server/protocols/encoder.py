"""Bases of the encoders, which convert the parts of a run to the bytes of a protocol."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

import orjson

from mochi_server.chat.event_log import Batch
from mochi_server.chat.run import Run
from mochi_server.protocols.part_reader import PartReader
from mochi_server.protocols.parts import (
    Approval,
    Call,
    End,
    Json,
    Notice,
    Part,
    Reasoning,
    Result,
    Step,
    Text,
    TextEnd,
)


class Encoder(ABC):
    """Encoder of a run as server-sent events, with one method for each class of parts.

    Each method returns the bytes to send, or empty bytes if the protocol has nothing for the part.
    """

    headers: ClassVar[dict[str, str]] = {}
    """Headers of the response that the protocol requires."""
    ping: ClassVar[bytes] = b": ping\n\n"
    """Bytes to send after a time without parts."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._reader = PartReader(run)

    def opening(self) -> bytes:
        """Return the bytes that start the stream."""
        return b""

    def encode(self, batch: Batch) -> bytes:
        """Return the bytes for a batch of events."""
        read = self._reader.read
        return b"".join([getattr(self, part.method)(part) for event in batch.events for part in read(event)])

    def closing(self) -> bytes:
        """Return the bytes that end the stream. Call this after the run has ended."""
        return self.encode_parts(self._reader.end(self.run))

    def encode_parts(self, parts: Iterable[Part]) -> bytes:
        """Return the bytes for parts."""
        return b"".join([getattr(self, part.method)(part) for part in parts])

    def complete(self, parts: Sequence[Part]) -> Json:
        """Return the whole response as a JSON object, for clients that do not stream. ``parts`` are all parts.

        Raises:
            NotImplementedError: The protocol has only streams.
        """
        raise NotImplementedError

    @abstractmethod
    def text(self, part: Text) -> bytes: ...

    @abstractmethod
    def reasoning(self, part: Reasoning) -> bytes: ...

    @abstractmethod
    def end(self, part: End) -> bytes:
        """Return the bytes that end the stream: an error, or the client's tool calls and the token counts."""

    def text_end(self, _: TextEnd) -> bytes:
        return b""

    def call(self, _: Call) -> bytes:
        return b""

    def approval(self, _: Approval) -> bytes:
        return b""

    def result(self, _: Result) -> bytes:
        return b""

    def notice(self, _: Notice) -> bytes:
        return b""

    def step(self, _: Step) -> bytes:
        return b""


class BlockEncoder(Encoder):
    """Encoder for a protocol in which text and reasoning are blocks, with a start, deltas and a stop.

    A block ends when a part of the other class follows, or when the subclass calls ``close``.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._first: Text | Reasoning | None = None
        """First part of the open block, or None if no block is open."""

    @abstractmethod
    def start(self, first: Text | Reasoning) -> bytes:
        """Return the bytes that start a block. ``first`` is its first part."""

    @abstractmethod
    def delta(self, part: Text | Reasoning) -> bytes:
        """Return the bytes that append a part to the open block."""

    @abstractmethod
    def stop(self, first: Text | Reasoning) -> bytes:
        """Return the bytes that end a block. ``first`` is its first part."""

    def text(self, part: Text | Reasoning) -> bytes:
        if type(self._first) is type(part):
            return self.delta(part)
        closed, self._first = self.close(), part
        return closed + self.start(part) + self.delta(part)

    reasoning = text

    def close(self) -> bytes:
        """Return the bytes that end the open block, or empty bytes if no block is open."""
        first, self._first = self._first, None
        return b"" if first is None else self.stop(first)


def data_frame(data: bytes) -> bytes:
    """Return a server-sent event without a name."""
    return b"data: %s\n\n" % data


def named_frame(name: str, fields: Json) -> bytes:
    """Return a server-sent event with a name. Its data are ``fields`` as JSON."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(fields, default=str))
