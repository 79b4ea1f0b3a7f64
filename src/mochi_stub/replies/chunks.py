"""Pieces of a reply, each with its absolute deadline, so that one late piece does not delay those behind it.

Text is cut into chunks of five words, 50 words a second; a reply with a `Pace` is cut and timed by characters.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from itertools import chain, pairwise, repeat
from typing import Any, NamedTuple

from mochi_stub.prompt import ToolCall
from mochi_stub.replies.lorem import stable_hash
from mochi_stub.reply import Content, Cut, Failure, Gate, Logprob, Pace, Part, Pause, Reasoning, Reply, Text, ToolCalls
from mochi_stub.wire.json_encoding import dumps

NANOSECONDS_PER_WORD = 1_000_000_000 // 50
WORDS_PER_CALL = 5
MAX_BATCH = 512

_CHUNK = re.compile(r"(?:\s*\S+){1,5}(?:\s+\Z)?|\s+")


class Piece(NamedTuple):
    """One thing to send. `due` is nanoseconds after the start; `kind` is the class of part that it comes from."""

    kind: type
    value: Any
    due: int
    logprob: Logprob | None = None


def pieces(reply: Reply) -> Iterator[Piece]:
    """Cut a reply into pieces; a `Failure` or a `Cut` is the last one."""
    tempo = _Timing(reply.pace)
    planned = _planned(reply, tempo)
    return _jittered(planned, reply.pace, tempo) if reply.pace and reply.pace.jitter else planned


def planned_end(reply: Reply) -> int:
    """Return when the last piece is due, in nanoseconds, without cutting the text."""
    tempo, units, paused = _Timing(reply.pace), 0, 0
    for part in _played(reply):
        if isinstance(part, (Reasoning, Text)):
            units += tempo.length(part.content)
        elif isinstance(part, ToolCalls):
            units += sum(map(tempo.call, part.calls))
        elif isinstance(part, Pause):
            paused += round(part.seconds * 1e9)
    return int(units * tempo.nanoseconds) + paused


def has_interruptions(reply: Reply) -> bool:
    """Return whether anything but contents is in the reply."""
    return any(isinstance(part, (Gate, Failure, Cut)) for part in reply.parts)


def chunked(content: Content, pace: Pace | None) -> list[str]:
    """Return the chunks of a text at that pace."""
    return [chunk for chunk, _ in _Timing(pace).cut(content)]


async def paced(
    pieces: Iterable[Piece],
    speed: float,
    end: int = 0,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncGenerator[list[Piece], None]:
    """Yield the pieces when they are due, `speed` times as fast as planned, those due together in one list.

    It lasts until `end`, in nanoseconds after the start, even if the last piece is due earlier. Speed 0 never waits.
    The lists grow from one piece to `MAX_BATCH`, so that the first piece is sent at once. A gate is waited for at any
    speed, and moves the deadlines behind it.
    """
    start = now()
    batch: list[Piece] = []
    limit = 1
    for piece in pieces:
        wait = start + piece.due / 1e9 / speed - now() if speed else 0.0
        if batch and (wait > 0 or len(batch) >= limit or piece.kind is Gate):
            yield batch
            batch, limit = [], min(limit * 4, MAX_BATCH)
        if wait > 0:
            await sleep(wait)
        if piece.kind is Gate:
            closed = now()
            await piece.value.wait()
            start += now() - closed
        else:
            batch.append(piece)
    if batch:
        yield batch
    left = start + end / 1e9 / speed - now() if speed else 0.0
    if left > 0:
        await sleep(left)


class _Timing:
    """How text is cut and timed: by words or, with a pace, by characters. These are the units of time."""

    def __init__(self, pace: Pace | None) -> None:
        self.by_words = pace is None
        self.per_chunk = pace.characters if pace else None
        self.nanoseconds: float = 1e9 / pace.characters_per_second if pace else NANOSECONDS_PER_WORD

    def cut(self, content: Content) -> Iterator[tuple[str, int]]:
        """Yield the chunks of a text, each with its units of time."""
        chunks: Iterable[str] = content
        size = self.per_chunk
        if isinstance(content, str) and size is None:
            chunks = (match[0] for match in _CHUNK.finditer(content))
        elif isinstance(content, str) and size:
            chunks = (content[at : at + size] for at in range(0, len(content), size))
        return ((chunk, self.length(chunk)) for chunk in chunks)

    def length(self, content: Content) -> int:
        if not isinstance(content, str):
            return sum(map(self.length, content))
        return len(content.split()) if self.by_words else len(content)

    def call(self, call: ToolCall) -> int:
        return WORDS_PER_CALL if self.by_words else len(call.name) + len(dumps(dict(call.arguments)).encode())


def _jittered(planned: Iterator[Piece], pace: Pace, tempo: _Timing) -> Iterator[Piece]:
    """Let chunks come early by a share of their own time, but never before the previous one; the last is on time."""
    end = Piece(Cut, None, 0)
    for index, (piece, following) in enumerate(pairwise(chain(planned, [end])), 1):
        early = 0.0
        if following is not end and piece.kind in (Reasoning, Text):
            share = stable_hash(f"{pace.seed}/{index}") % 1000 / 1000
            early = len(piece.value) * tempo.nanoseconds * pace.jitter * share
        yield piece._replace(due=piece.due - int(early))


def _planned(reply: Reply, tempo: _Timing) -> Iterator[Piece]:
    units, paused, rate = 0, 0, tempo.nanoseconds
    for part in _played(reply):
        if isinstance(part, (Reasoning, Text)):
            kind, logprobs = type(part), chain(part.logprobs if isinstance(part, Text) else (), repeat(None))
            for (chunk, size), logprob in zip(tempo.cut(part.content), logprobs, strict=False):
                units += size
                yield Piece(kind, chunk, int(units * rate) + paused, logprob)
        elif isinstance(part, ToolCalls):
            for call in part.calls:
                units += tempo.call(call)
                yield Piece(ToolCall, call, int(units * rate) + paused)
        elif isinstance(part, Pause):
            paused += round(part.seconds * 1e9)
        else:
            yield Piece(type(part), part, int(units * rate) + paused)


def _played(reply: Reply) -> Iterator[Part]:
    for part in reply.parts:
        yield part
        if isinstance(part, (Failure, Cut)):
            return
