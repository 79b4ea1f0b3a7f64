"""Encoders, which convert the parts of a run to the bytes of a protocol."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

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
        parts: list[Part] = []
        for event in batch.events:
            parts += self._reader.read(event)
        return self.encode_parts(parts)

    def closing(self) -> bytes:
        """Return the bytes that end the stream. Call this after the last run of the turn."""
        return self.encode_parts(self._reader.end(self.run.latest))

    def abort(self) -> None:  # noqa: B027 - most protocols store nothing
        """Handle a disconnect of the client, after which no more bytes are sent."""

    def encode_parts(self, parts: Iterable[Part]) -> bytes:  # noqa: C901 - one case for each class
        """Return the bytes for parts."""
        frames = []
        for part in parts:
            match part:  # the most frequent parts first
                case Text():
                    frame = self.text(part)
                case Reasoning():
                    frame = self.reasoning(part)
                case Call():
                    frame = self.call(part)
                case Approval():
                    frame = self.approval(part)
                case Result():
                    frame = self.result(part)
                case Notice():
                    frame = self.notice(part)
                case Step():
                    frame = self.step(part)
                case TextEnd():
                    frame = self.text_end(part)
                case End():
                    frame = self.end(part)
            frames.append(frame)
        return b"".join(frames)

    def complete(self, parts: Sequence[Part]) -> Json:
        """Return the whole response as a JSON object, for clients that do not stream.

        ``parts`` are all parts.
        """
        raise NotImplementedError  # the protocol has only streams

    @abstractmethod
    def text(self, part: Text) -> bytes: ...

    @abstractmethod
    def reasoning(self, part: Reasoning) -> bytes: ...

    @abstractmethod
    def end(self, part: End) -> bytes:
        """Return the bytes that end the stream: an error, or the client's tool calls and the token
        counts.
        """

    def _nothing(self, _: Any) -> bytes:
        return b""

    text_end = call = approval = result = notice = step = _nothing


class BlockEncoder(Encoder):
    """Encoder for a protocol in which text and reasoning are blocks, with a start, deltas and an
    end.

    A block ends when a part of the other class follows, or when the subclass calls ``close_block``.
    No other part ends it. ``start_block`` and ``end_block`` receive the first part of the block.
    All methods return the bytes to send.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        # first part of the open block, or None if no block is open
        self._first: Text | Reasoning | None = None

    @abstractmethod
    def start_block(self, first: Text | Reasoning) -> bytes: ...

    @abstractmethod
    def delta(self, part: Text | Reasoning) -> bytes: ...

    @abstractmethod
    def end_block(self, first: Text | Reasoning) -> bytes: ...

    def text(self, part: Text | Reasoning) -> bytes:
        if type(self._first) is type(part):
            return self.delta(part)
        closed = self.close_block()
        self._first = part
        return closed + self.start_block(part) + self.delta(part)

    def reasoning(self, part: Reasoning) -> bytes:
        return self.text(part)

    def close_block(self) -> bytes:
        """Return the bytes that end the open block, or empty bytes if no block is open."""
        first = self._first
        if first is None:
            return b""
        self._first = None
        return self.end_block(first)


class AnswerBlockEncoder(BlockEncoder):
    """Encoder that also starts a new block for each answer of the model."""

    def text(self, part: Text | Reasoning) -> bytes:
        if part.is_separate:  # of another answer than the text before it
            return self.close_block() + super().text(part)
        return super().text(part)

    def text_end(self, _: TextEnd) -> bytes:
        return self.close_block()


def data_frame(data: bytes) -> bytes:
    """Return a server-sent event without a name."""
    return b"data: %s\n\n" % data


def named_frame(name: str, fields: Json) -> bytes:
    """Return a server-sent event with a name. Its data are ``fields`` as JSON."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(fields, default=str))
