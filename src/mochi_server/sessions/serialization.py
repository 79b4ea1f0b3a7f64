"""Encoding of sessions as JSON files, with indented metadata and one message per line, and as
Markdown.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from mochi_server.sessions.session import ChatSession, SessionMetadata
from mochi_server.sessions.types import Message, attachments_of, images_of, tool_calls_of
from mochi_server.util.clock import as_datetime, as_text

MESSAGE_SEPARATOR = b",\n    "
"""Separator of messages in a session file.

Encoded messages never contain it, because JSON escapes line breaks.
"""

MAX_LEVELS = 200
"""Maximum nesting depth of a stored value.

The encoder supports 254 levels, but responses add a few.
"""


def encode(value: object) -> bytes:
    """Encode a value as compact JSON.

    Lone surrogates become U+FFFD; NaN and too deeply nested values become null.
    """
    try:
        # Copied because orjson returns bytes with a buffer of at least 4 KiB, which would stay
        # allocated.
        return bytes(memoryview(orjson.dumps(value)))
    except TypeError:
        return json.dumps(sanitize(value), ensure_ascii=False, separators=(",", ":")).encode()


def decode(data: bytes) -> Any:
    """Decode JSON.

    Replace values that are nested too deeply for ``encode`` by None. Raises ValueError.
    """
    value = parse(data)
    try:
        # A response may contain the value in up to four more levels.
        orjson.dumps([[[[value]]]])
    except TypeError:
        return sanitize(value)
    return value


def parse(data: bytes, levels: float = MAX_LEVELS) -> Any:
    """Decode JSON leniently: accept NaN, lone surrogates and a byte order mark.

    ``levels`` applies only to a file that orjson cannot read: None replaces the values below.
    Raises ValueError.
    """
    try:
        return orjson.loads(data)
    except ValueError:
        try:
            return sanitize(json.loads(data.decode("utf-8-sig")), levels)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


def is_nested_deeper(value: object, levels: int) -> bool:
    """Return whether a JSON value has more than ``levels`` levels of objects and arrays."""
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(is_nested_deeper(item, levels - 1) for item in items)


def has_more_values(value: object, count: int) -> bool:
    """Return whether a JSON value consists of more than ``count`` values, including objects and
    arrays.
    """
    left = [value]
    while left and count >= 0:
        count -= 1
        item = left.pop()
        if isinstance(item, dict | list):
            left.extend(item.values() if isinstance(item, dict) else item)
    return count < 0


def normalize(value: object) -> Any:
    """Return a deep copy of a value, as it would be after encoding it as JSON and decoding it."""
    return decode(encode(value))


def encode_file(
    metadata: SessionMetadata,
    lines: Sequence[bytes],
    extra: dict[str, Any],
    versions: Sequence[bytes] = (),
) -> bytes:
    """Encode a session file. Each item of ``lines`` contains one or more encoded messages.

    ``versions`` are encoded versions.
    """
    head = b'{\n  "metadata": ' + _indented(metadata.to_dict()) + b',\n  "messages": ['
    # Join once, because each copy of a long history is expensive.
    parts = [head]
    separator = b"\n    "
    for line in lines:
        parts += (separator, line)
        separator = MESSAGE_SEPARATOR
    parts.append(b"\n  ]" if lines else b"]")
    if versions:
        parts += (b',\n  "versions": [\n    ', MESSAGE_SEPARATOR.join(versions), b"\n  ]")
    for name, value in extra.items():
        parts.append(b",\n  " + encode(name) + b": " + _indented(value))
    parts.append(b"\n}\n")
    return b"".join(parts)


def decode_file(session_id: str, data: bytes, modified: float) -> ChatSession:
    """Decode a session file. Raises ValueError, and ``SessionTooNew`` for a later version.

    ``session_id`` replaces the id in the file. ``modified``, in Unix seconds, is the time of a
    session without times.
    """
    stored = decode(data)
    metadata = stored.get("metadata") if isinstance(stored, dict) else None
    if isinstance(metadata, dict):
        metadata["session_id"] = session_id
        if not metadata.get("created_at"):
            metadata["created_at"] = metadata.get("updated_at") or as_text(as_datetime(modified))
    return ChatSession.from_dict(stored)


def sanitize(value: object, levels: float = MAX_LEVELS) -> Any:
    """Return a copy that JSON can encode: U+FFFD for lone surrogates, None for NaN, infinity and
    values below this number of levels.
    """
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict | list | tuple) and levels == 0:
        return None
    # Without comprehensions, each of which is a second call per level before Python 3.12.
    if isinstance(value, dict):
        fields = {}
        for key, item in value.items():
            fields[sanitize(str(key))] = sanitize(item, levels - 1)
        return fields
    if isinstance(value, list | tuple):
        items = []
        for item in value:
            items.append(sanitize(item, levels - 1))
        return items
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _indented(value: object) -> bytes:
    try:
        text = orjson.dumps(value, option=orjson.OPT_INDENT_2)
    except TypeError:
        text = json.dumps(sanitize(value), ensure_ascii=False, indent=2).encode()
    return text.replace(b"\n", b"\n  ")


_HEADINGS = {"system": "System", "user": "User", "assistant": "Assistant", "tool": "Tool"}


def as_markdown(session: ChatSession) -> str:
    """Return a session as Markdown: the title, id, model and date, then a section for each
    message.
    """
    metadata = session.metadata
    details = (
        f"- Session: {metadata.session_id}\n- Model: {metadata.model}\n- Created: "
        f"{metadata.created_at}"
    )
    parts = [f"# {session.summary_object()['title'] or 'Untitled'}", details]
    for message in session.history:
        parts += _message_as_markdown(message)
    return "\n\n".join(parts) + "\n"


def _message_as_markdown(message: Message) -> Iterator[str]:
    source = _source(message)
    heading = _HEADINGS.get(message["role"], message["role"])
    yield f"## {heading} ({source})" if source else f"## {heading}"
    if message["role"] == "assistant" and (thinking := message.get("thinking")):
        yield f"<details>\n<summary>Thinking</summary>\n\n{thinking.strip()}\n\n</details>"
    content = message["content"].strip()
    if content:
        yield fenced(content) if message["role"] == "tool" else content
    for image in images_of(message):
        yield f"*(image {image})*"
    for attachment in attachments_of(message):
        yield f"*(file {attachment['name']})*"
    for call in tool_calls_of(message):
        yield _call_as_markdown(call)
    match message["role"]:
        case "assistant" | "tool" if message.get("interrupted"):
            yield "*(interrupted)*"


def _source(message: Message) -> str | None:
    """Return the name of the model or tool that a message is from, or None."""
    if message["role"] == "assistant":
        return message.get("model")
    return message.get("tool_name") if message["role"] == "tool" else None


def _call_as_markdown(call: object) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return f"Calls:\n\n{_fenced_json(call)}"
    arguments = function.get("arguments") or {}
    return f"Calls `{function.get('name')}`:\n\n{_fenced_json(arguments)}"


def _fenced_json(value: object) -> str:
    return fenced(json.dumps(value, ensure_ascii=False, indent=2), "json")


def fenced(text: str, language: str = "") -> str:
    """Return a code block whose fence is longer than any fence in the text."""
    fences = re.findall(r"`{3,}", text)
    longest = max(map(len, fences), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
