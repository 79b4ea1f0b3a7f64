"""Division of a reply into pieces with send times.

Times count from the start, so a late piece does not delay the next.

By default, a chunk has five words and 50 words are sent per second. A `Pace` sets chunk size and
speed in characters.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, pairwise, repeat
from typing import Any, NamedTuple

from mochi_stub.json_encoding import dumps
from mochi_stub.prompt import ToolCall, to_tokens
from mochi_stub.replies import WORDS, stable_hash
from mochi_stub.reply import (
    Content,
    Cut,
    Failure,
    Gate,
    Logprob,
    Pace,
    Pause,
    Reasoning,
    Reply,
    Text,
    ToolCalls,
)

NANOSECONDS_PER_WORD = 1_000_000_000 // 50
WORDS_PER_CALL = 5
MAX_BATCH = 512

_CHUNK = re.compile(r"(?:\s*\S+){1,5}(?:\s+\Z)?|\s+")


class Piece(NamedTuple):
    """Piece of a reply.

    `kind` is a class such as `Text` or `ToolCall`. `due` is in nanoseconds after the start.
    """

    kind: type
    value: Any
    due: int
    logprob: Logprob | None = None


def pieces(reply: Reply) -> Iterator[Piece]:
    """Divide a reply into pieces with send times.

    Parts after a `Failure` or a `Cut` are ignored.
    """
    timed = _timed(reply)
    pace = reply.pace
    if pace is None or not pace.jitter:
        return timed
    return _jittered(timed, pace)


def token_logprobs(piece: Piece, start: int, chars_per_token: float) -> list[Logprob]:
    """Return the configured log probability of a piece at the character `start`, or generate one
    for each token.
    """
    if piece.logprob is not None:
        return [piece.logprob]
    text: str = piece.value
    earlier_tokens = to_tokens(start, chars_per_token)
    all_tokens = to_tokens(start + len(text), chars_per_token)
    if all_tokens == earlier_tokens:
        return []
    found = []
    begin = 0
    for token in range(earlier_tokens + 1, all_tokens):
        end = int(token * chars_per_token) - start
        logprob = _generated_logprob(text[begin:end])
        found.append(logprob)
        begin = end
    last = _generated_logprob(text[begin:])
    found.append(last)
    return found


def _generated_logprob(token: str) -> Logprob:
    thousandths = 1 + stable_hash(token) % 999
    highest = -thousandths / 1000
    top = [(token, highest)]
    for rank, word in enumerate(WORDS[:19], 1):
        logprob = highest - rank
        top.append((word, logprob))
    return Logprob(token, highest, tuple(top))


def planned_end(reply: Reply) -> int:
    """Return the planned duration of a reply in nanoseconds."""
    with_end = replace(reply, parts=[*reply.parts, Cut()])
    due = 0
    for piece in _timed(with_end):
        due = piece.due
    return due


def chunked(content: Content, pace: Pace | None) -> list[str]:
    """Return the chunks of a content. Only a string is split."""
    if not isinstance(content, str):
        return list(content)
    if pace is None or pace.characters is None:
        return _CHUNK.findall(content)
    size = pace.characters or 1
    chunks = []
    for start in range(0, len(content), size):
        end = start + size
        chunks.append(content[start:end])
    return chunks


async def paced(
    pieces: Iterable[Piece],
    speed: float,
    end: int = 0,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncGenerator[list[Piece], None]:
    """Yield lists of pieces at their planned times, divided by `speed`.

    If `speed` is 0, there are no delays.

    Pieces that are due together form one list: first of one piece, later of up to `MAX_BATCH`. The
    generator ends no earlier than `end` nanoseconds after the start. A closed gate delays all
    pieces after it, at every speed.
    """
    start = now()

    def seconds_until(due: int) -> float:
        if not speed:
            return 0.0
        return start + due / 1e9 / speed - now()

    batch: list[Piece] = []
    limit = 1
    for piece in pieces:
        wait = seconds_until(piece.due)
        is_full = len(batch) >= limit
        if batch and (wait > 0 or is_full or piece.kind is Gate):
            yield batch
            batch = []
            limit = min(limit * 4, MAX_BATCH)
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
    rest = seconds_until(end)
    if rest > 0:
        await sleep(rest)


def _speed(pace: Pace | None) -> tuple[float, int]:
    """Return two times in nanoseconds: per word, or per character if there is a pace, and before
    each chunk.
    """
    if pace is None:
        return NANOSECONDS_PER_WORD, 0
    per_character = 1e9 / pace.characters_per_second
    per_chunk = round(pace.delay * 1e9)
    return per_character, per_chunk


def _jittered(timed: Iterator[Piece], pace: Pace) -> Iterator[Piece]:
    """Make each text but the last piece earlier by a pseudorandom share of its own delay."""
    per_character, per_chunk = _speed(pace)
    end = Piece(Cut, None, 0)
    pairs = pairwise(chain(timed, [end]))
    for index, (piece, following) in enumerate(pairs, 1):
        if following is end or piece.kind not in (Reasoning, Text):
            yield piece
            continue
        own_delay = len(piece.value) * per_character + per_chunk
        early = own_delay * pace.jitter * _share(pace.seed, index)
        due = piece.due - int(early)
        yield piece._replace(due=due)


def _share(seed: int, index: int) -> float:
    """Return a pseudorandom number from 0 to 0.999."""
    thousandths = stable_hash(f"{seed}/{index}") % 1000
    return thousandths / 1000


def _timed(reply: Reply) -> Iterator[Piece]:
    units = 0
    paused = 0
    by_words = reply.pace is None
    rate, delay = _speed(reply.pace)
    for part in reply.parts:
        if isinstance(part, (Reasoning, Text)):
            kind = type(part)
            chunks = chunked(part.content, reply.pace)
            configured = part.logprobs if isinstance(part, Text) else ()
            logprobs = chain(configured, repeat(None))
            for chunk, logprob in zip(chunks, logprobs, strict=False):
                units += len(chunk.split()) if by_words else len(chunk)
                paused += delay
                due = int(units * rate) + paused
                yield Piece(kind, chunk, due, logprob)
        elif isinstance(part, ToolCalls):
            for call in part.calls:
                units += WORDS_PER_CALL if by_words else _length_of(call)
                due = int(units * rate) + paused
                yield Piece(ToolCall, call, due)
        elif isinstance(part, Pause):
            paused += round(part.seconds * 1e9)
        else:
            due = int(units * rate) + paused
            yield Piece(type(part), part, due)
            if isinstance(part, (Failure, Cut)):
                return


def _length_of(call: ToolCall) -> int:
    arguments = dumps(dict(call.arguments)).encode()
    return len(call.name) + len(arguments)
