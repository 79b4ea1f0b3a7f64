"""Parser of server-sent events."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, get_args

from mochi_server.events import ChatEvent


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event that this version of the client does not support. ``type`` is its name."""

    type: str
    data: Any


StreamEvent = ChatEvent | UnknownEvent
_CLASSES: dict[str, Any] = {cls.type: cls for cls in get_args(ChatEvent)}


class Parser:
    """Incremental parser of server-sent events. Each connection needs its own parser."""

    def __init__(self) -> None:
        self._buffer = b""
        self._fields: dict[str, list[str]] = {}

    def feed(self, data: bytes) -> Iterator[tuple[str, StreamEvent]]:
        """Yield the ID and the event of each server-sent event that ``data`` completes."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            if text := line.removesuffix(b"\r").decode():
                name, _, value = text.partition(":")
                self._fields.setdefault(name, []).append(value.removeprefix(" "))
                continue
            values, self._fields = self._fields, {}
            if "data" in values:
                name = values.get("event", ["message"])[-1]
                yield values.get("id", [""])[-1], _make_event(name, json.loads("\n".join(values["data"])))


def _make_event(name: str, data: Any) -> StreamEvent:
    """Return the event ``name`` with the fields in ``data``. Unknown fields are ignored."""
    cls = _CLASSES.get(name)
    if cls is None or not isinstance(data, dict):
        return UnknownEvent(name, data)
    try:
        event: StreamEvent = cls(**{field.name: data[field.name] for field in fields(cls) if field.name in data})
    except TypeError:  # a required field is missing
        return UnknownEvent(name, data)
    return event
