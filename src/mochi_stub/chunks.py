"""Reply to pieces: what is sent at a time, and when it is due on the planned clock.

Text is cut into chunks of five words, white space kept exactly; what a script gives in pieces stays in those pieces.
50 words make a second. This module does not wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from mochi_stub.prompt import ToolCall
from mochi_stub.reply import Content, Cut, Failure, Gate, Logprob, Reasoning, Reply, Text, ToolCalls

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
    words = 0
    for part in reply.parts:
        if isinstance(part, (Reasoning, Text)):
            logprobs = iter(part.logprobs if isinstance(part, Text) else ())
            kind = type(part)
            for chunk, size in cut(part.content):
                words += size
                yield Piece(kind, chunk, words * NANOSECONDS_PER_WORD, next(logprobs, None))
        elif isinstance(part, ToolCalls):
            for call in part.calls:
                words += WORDS_PER_CALL
                yield Piece(ToolCall, call, words * NANOSECONDS_PER_WORD)
        else:
            yield Piece(type(part), part, words * NANOSECONDS_PER_WORD)
            if isinstance(part, (Failure, Cut)):
                return


def planned_end(reply: Reply) -> int:
    """When the last piece is due, in nanoseconds, without cutting the text up."""
    words = 0
    for part in reply.parts:
        if isinstance(part, (Reasoning, Text)):
            whole = part.content if isinstance(part.content, str) else " ".join(part.content)
            words += len(whole.split())
        elif isinstance(part, ToolCalls):
            words += WORDS_PER_CALL * len(part.calls)
    return words * NANOSECONDS_PER_WORD


def cut(content: Content) -> Iterator[tuple[str, int]]:
    """The chunks of a text, which joined together are the text, each with its number of words."""
    if not isinstance(content, str):
        yield from ((piece, len(piece.split())) for piece in content)
        return
    length = len(content)
    for match in _CHUNK.finditer(content):
        # only the last chunk can be short, and counting the words of each would double the cost of a long reply
        yield match[0], WORDS_PER_CHUNK if match.end() < length else len(match[0].split())


def interrupted(reply: Reply) -> bool:
    """Whether the reply is anything but contents from its beginning to its end."""
    return any(isinstance(part, (Gate, Failure, Cut)) for part in reply.parts)
