"""Reply to pieces: what is sent at a time, and when it is due on the planned clock.

Text is cut into chunks of five words, white space kept exactly, and 50 words make a second; a reply with a `Pace` of
its own is cut and timed by characters. What a script gives in pieces stays in those pieces. This module does not wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any, NamedTuple

from mochi_stub.jsontext import dumps
from mochi_stub.lorem import stable_hash
from mochi_stub.prompt import ToolCall
from mochi_stub.reply import Content, Cut, Failure, Gate, Logprob, Pace, Part, Pause, Reasoning, Reply, Text, ToolCalls

NANOSECONDS_PER_WORD = 1_000_000_000 // 50
WORDS_PER_CHUNK = 5
WORDS_PER_CALL = 5

_CHUNK = re.compile(r"(?:\s*\S+){1,5}(?:\s+\Z)?|\s+")


class Piece(NamedTuple):
    """One thing to send. `due` is nanoseconds after the start; `kind` is the class of part that it comes from."""

    kind: type
    value: Any
    due: int
    logprob: Logprob | None = None


def pieces(reply: Reply) -> Iterator[Piece]:
    """The reply in pieces; a `Failure` or a `Cut` is the last one."""
    tempo = _tempo(reply.pace)
    planned = _planned(reply, tempo)
    return _jittered(planned, reply.pace, tempo) if reply.pace and reply.pace.jitter else planned


def planned_end(reply: Reply) -> int:
    """When the last piece is due, in nanoseconds, without cutting the text up."""
    tempo = _tempo(reply.pace)
    parts = list(_played(reply))
    units = sum(map(tempo.size, parts))
    return int(units * tempo.nanoseconds) + sum(_pause(part) for part in parts if isinstance(part, Pause))


def interrupted(reply: Reply) -> bool:
    """Whether the reply is anything but contents from its beginning to its end."""
    return any(isinstance(part, (Gate, Failure, Cut)) for part in reply.parts)


def cut(content: Content) -> Iterator[tuple[str, int]]:
    """The chunks of a text, which joined together are the text, each with its number of words."""
    if isinstance(content, str):
        return _cut(content)
    return zip(content, map(len, map(str.split, content)), strict=True)


def _cut(content: str) -> Iterator[tuple[str, int]]:
    length = len(content)
    for match in _CHUNK.finditer(content):
        # only the last chunk can be short, and counting the words of each would double the cost of a long reply
        yield match[0], WORDS_PER_CHUNK if match.end() < length else len(match[0].split())


def chunked(content: Content, pace: Pace | None) -> list[str]:
    """The chunks of a text at that pace."""
    return [chunk for chunk, _ in _tempo(pace).cut(content)]


class _Words:
    """Five words at a time, and words tell the time."""

    nanoseconds: float = NANOSECONDS_PER_WORD

    def cut(self, content: Content) -> Iterator[tuple[str, int]]:
        return cut(content)

    def size(self, part: Part) -> int:
        """How many units of time the part takes."""
        if isinstance(part, (Reasoning, Text)):
            return self.length(part.content)
        return sum(map(self.call, part.calls)) if isinstance(part, ToolCalls) else 0

    def length(self, content: Content) -> int:
        return len((content if isinstance(content, str) else " ".join(content)).split())

    def call(self, call: ToolCall) -> int:
        del call
        return WORDS_PER_CALL


class _Characters(_Words):
    """So many characters at a time, and characters tell the time."""

    def __init__(self, pace: Pace) -> None:
        self.per_chunk = pace.characters
        self.nanoseconds = 1e9 / pace.characters_per_second

    def cut(self, content: Content) -> Iterator[tuple[str, int]]:
        if self.per_chunk is None or not isinstance(content, str):
            return ((chunk, len(chunk)) for chunk, _ in cut(content))
        return ((chunk, len(chunk)) for chunk in sliced(content, self.per_chunk))

    def length(self, content: Content) -> int:
        return len(content) if isinstance(content, str) else sum(map(len, content))

    def call(self, call: ToolCall) -> int:
        return len(call.name) + len(dumps(dict(call.arguments)).encode())


def sliced(text: str, length: int) -> Iterator[str]:
    """The text in slices of that many characters."""
    return (text[at : at + length] for at in range(0, len(text), length))


def _tempo(pace: Pace | None) -> _Words:
    return _Words() if pace is None else _Characters(pace)


def _pause(part: Pause) -> int:
    return round(part.seconds * 1e9)


def _jittered(planned: Iterator[Piece], pace: Pace, tempo: _Words) -> Iterator[Piece]:
    """Chunks come early by some of their own time; never before the one in front, and the last one not at all."""
    waiting: Piece | None = None
    for index, piece in enumerate(planned):
        if waiting is not None:
            yield waiting._replace(due=waiting.due - _early(waiting, index, pace, tempo))
        waiting = piece
    if waiting is not None:
        yield waiting


def _early(piece: Piece, index: int, pace: Pace, tempo: _Words) -> int:
    if piece.kind not in (Reasoning, Text):
        return 0
    share = stable_hash(f"{pace.seed}/{index}") % 1000 / 1000
    return int(len(piece.value) * tempo.nanoseconds * pace.jitter * share)


def _planned(reply: Reply, tempo: _Words) -> Iterator[Piece]:
    units, paused, rate = 0, 0, tempo.nanoseconds
    for part in _played(reply):
        if isinstance(part, (Reasoning, Text)):
            logprobs = chain(part.logprobs if isinstance(part, Text) else (), repeat(None))
            kind = type(part)
            for (chunk, size), logprob in zip(tempo.cut(part.content), logprobs, strict=False):
                units += size
                yield Piece(kind, chunk, int(units * rate) + paused, logprob)
        elif isinstance(part, ToolCalls):
            for call in part.calls:
                units += tempo.call(call)
                yield Piece(ToolCall, call, int(units * rate) + paused)
        elif isinstance(part, Pause):
            paused += _pause(part)
        else:
            yield Piece(type(part), part, int(units * rate) + paused)


def _played(reply: Reply) -> Iterator[Part]:
    """The parts as far as they come."""
    for part in reply.parts:
        yield part
        if isinstance(part, (Failure, Cut)):
            return
