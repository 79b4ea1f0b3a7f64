"""Sessions as bytes: JSON for people, with its metadata indented and one message to a line. Touches no files."""

import json
import math
from collections.abc import Sequence
from typing import Any

import orjson

from mochi_server.sessions.session import ChatSession, SessionMetadata

BETWEEN_MESSAGES = b",\n    "
"""What stands between two messages in a session file; no encoded message has a line end in it."""

MAX_LEVELS = 200
"""How deep a stored value may be nested. Encoders stop at 254 levels, and responses add some."""


def encode(value: object) -> bytes:
    """Compact JSON. What JSON cannot hold is replaced: lone surrogates by U+FFFD, NaN and too deep values by null."""
    try:
        # Copied, for what is kept: the bytes of orjson keep the room that they were written in, 4 KiB at least.
        return bytes(memoryview(orjson.dumps(value)))
    except TypeError:
        return json.dumps(sanitize(value), ensure_ascii=False, separators=(",", ":")).encode()


def decode(data: bytes) -> Any:
    """The value of a JSON text, where values that are nested too deeply to be encoded again are null.

    Raises ValueError.
    """
    value = parse(data)
    try:
        orjson.dumps([[[[value]]]])  # a response may nest it a few levels deeper than its file
    except TypeError:
        return sanitize(value)
    return value


def parse(data: bytes) -> Any:
    """The value of a JSON text, read leniently where other programs write loosely. Raises ValueError."""
    try:
        return orjson.loads(data)
    except ValueError:
        try:
            return sanitize(json.loads(data.decode("utf-8-sig")))
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


def is_nested_deeper(value: object, levels: int) -> bool:
    """Whether a JSON value has more than so many levels of objects and arrays."""
    level = [value]
    for _ in range(levels + 1):
        containers = (each for each in level if isinstance(each, dict | list))
        level = [item for each in containers for item in (each.values() if isinstance(each, dict) else each)]
        if not level:
            return False
    return True


def normalize(value: object) -> Any:
    """A value as it will be read back, sharing nothing with the given one."""
    return decode(encode(value))


def encode_file(metadata: SessionMetadata, lines: Sequence[bytes], extra: dict[str, Any]) -> bytes:
    """A session file. ``lines`` are encoded messages, one or some to an item.

    ``extra`` is what else stood beside the two known keys.
    """
    head = b'{\n  "metadata": ' + _indented(metadata.to_dict()) + b',\n  "messages": ['
    others = [b",\n  " + encode(name) + b": " + _indented(value) for name, value in extra.items()]
    tail = b"".join([b"]", *others, b"\n}\n"])
    if not lines:
        return head + tail
    # Joined in one go: histories are long, and each copy of one is paid for.
    first, last = head + b"\n    ", b"\n  " + tail
    if len(lines) == 1:
        return first + lines[0] + last
    return BETWEEN_MESSAGES.join([first + lines[0], *lines[1:-1], lines[-1] + last])


def decode_file(session_id: str, data: bytes) -> ChatSession:
    """The session of a file of any version; the file's name decides its id. Raises ValueError."""
    stored = decode(data)
    if isinstance(stored, dict) and isinstance(stored.get("metadata"), dict):
        stored["metadata"]["session_id"] = session_id
    return ChatSession.from_dict(stored)


def sanitize(value: object, levels: int = MAX_LEVELS) -> Any:
    """A value with everything replaced that JSON in UTF-8 cannot hold, or that is nested deeper than ``levels``."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict | list | tuple) and levels == 0:
        return None
    if isinstance(value, dict):
        return {sanitize(str(key)): sanitize(item, levels - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sanitize(item, levels - 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _indented(value: object) -> bytes:
    try:
        text = orjson.dumps(value, option=orjson.OPT_INDENT_2)
    except TypeError:
        text = json.dumps(sanitize(value), ensure_ascii=False, indent=2).encode()
    return text.replace(b"\n", b"\n  ")
