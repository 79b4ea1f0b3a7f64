"""A response as it comes in: the objects of a stream, each with its time, or one body."""

from __future__ import annotations

import json
from typing import Any

MILLISECONDS = 1000


class Received:
    """Bytes to objects. Lines of JSON and events are streams, everything else is one body."""

    def __init__(self, content_type: str) -> None:
        self.events = content_type.startswith("text/event-stream")
        self.streams = self.events or content_type.startswith(("application/x-ndjson", "application/jsonl"))
        self._rest = b""
        self._data: list[bytes] = []
        self._objects: list[Any] = []
        self._at: list[float] = []

    def add(self, data: bytes, seconds: float) -> int:
        """More bytes, so many seconds after the request. How many objects they complete."""
        if not self.streams:
            self._rest += data
            return 0
        *lines, self._rest = (self._rest + data).split(b"\n")
        before = len(self._objects)
        for line in lines:
            self._line(line, seconds)
        return len(self._objects) - before

    def finished(self, seconds: float) -> tuple[Any, list[float]]:
        """The body as a recording has it, and when each of its objects came, in milliseconds."""
        if not self.streams:
            return _read(self._rest), [round(seconds * MILLISECONDS, 3)]
        self._line(self._rest, seconds)
        self._event(seconds)
        return self._objects, self._at

    def _line(self, line: bytes, seconds: float) -> None:
        line = line.strip()
        if not self.events:
            self._object(line, seconds)
        elif line.startswith(b"data:"):
            self._data.append(line[len(b"data:") :].strip())
        elif not line:
            self._event(seconds)

    def _event(self, seconds: float) -> None:
        """The end of an event, whose data may have come in several lines."""
        self._object(b"\n".join(self._data), seconds)
        self._data.clear()

    def _object(self, data: bytes, seconds: float) -> None:
        if data:
            self._objects.append({"done": True} if data == b"[DONE]" else _read(data))
            self._at.append(round(seconds * MILLISECONDS, 3))


def received_body(data: bytes, parsed: Any) -> Any:
    """A request's body: as JSON, or as text where it is none."""
    return data.decode(errors="replace") if parsed is None else parsed


def _read(data: bytes) -> Any:
    """A JSON object, list or number as it is, all else as the text that it is written as; None where there is none."""
    try:
        value = json.loads(data) if data else None
    except (ValueError, RecursionError):
        value = None
    if value is None or isinstance(value, str):
        return data.decode(errors="replace") if data else None
    return _writable(value) if b"\\u" in data else value


def _writable(value: Any) -> Any:
    """Without halves of characters, which no file can have; models that are cut off write them."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_writable(name): _writable(one) for name, one in value.items()}
    return [_writable(one) for one in value] if isinstance(value, list) else value
