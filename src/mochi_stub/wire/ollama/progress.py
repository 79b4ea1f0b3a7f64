"""What `pull`, `push` and `create` answer: one object for each step, or only the last one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mochi_stub.answer import Answer, Generation
from mochi_stub.chunks import Piece
from mochi_stub.reply import Failure, Part, Reply, Text
from mochi_stub.wire.ollama.gojson import dumps

NDJSON = b"application/x-ndjson"
JSON = b"application/json"

Step = Mapping[str, Any]


class Progress:
    """Steps as lines; `finish` is called when all of them are done and the client is still there."""

    content_type = NDJSON

    def __init__(self, finish: Callable[[], None]) -> None:
        self.finish = finish

    def chunk(self, pieces: list[Piece]) -> bytes:
        return "".join([piece.value for piece in pieces]).encode()

    def end(self) -> bytes:
        self.finish()
        return b'{"status":"success"}\n'

    def error(self, failure: Failure) -> bytes:
        return f"{_error(failure)}\n".encode()

    def refusal(self, failure: Failure, *, stream: bool) -> Answer:
        return Answer(failure.status, _error(failure).encode(), JSON, declared=not stream)

    def whole(self) -> Answer:
        self.finish()
        return Answer(200, b'{"status":"success"}', JSON)


def progress(
    steps: Sequence[Step], *, stream: bool, failure: Failure | None = None, finish: Callable[[], None] = lambda: None
) -> Generation:
    """The steps one after the other, and what they end in: the failure, or success."""
    lines = tuple(f"{dumps(step)}\n" for step in steps)
    parts: list[Part] = [Text(lines)] if lines else []
    if failure is not None:
        parts.append(failure)
    return Generation(Reply(parts), Progress(finish), stream)


def _error(failure: Failure) -> str:
    return dumps({"error": failure.message})
