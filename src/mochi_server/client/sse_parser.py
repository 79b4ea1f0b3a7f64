"""Parser of an event stream: bytes to events."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, get_args

from mochi_server.events import ChatEvent


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event of a newer server. ``type`` is its name."""

    type: str
    data: Any


StreamEvent = ChatEvent | UnknownEvent
_CLASSES: dict[str, Any] = {cls.type: cls for cls in get_args(ChatEvent)}


@dataclass(frozen=True, slots=True)
class Frame:
    """An event with its id."""

    id: str
    event: StreamEvent


class Parser:
    """Reads one connection: bytes as they come, frames as they are whole."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, list[str]] = {}

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that these bytes end."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if text := line.removesuffix(b"\r").decode():
                name, _, value = text.partition(":")
                self._fields.setdefault(name, []).append(value.removeprefix(" "))
                continue
            found, self._fields = self._fields, {}
            if "data" in found:
                name = found.get("event", ["message"])[-1]
                yield Frame(found.get("id", [""])[-1], _event_of(name, json.loads("\n".join(found["data"]))))


def _event_of(name: str, data: Any) -> StreamEvent:
    """Return the event of a name, without fields that a newer server adds."""
    cls = _CLASSES.get(name)
    if cls is None or not isinstance(data, dict):
        return UnknownEvent(name, data)
    try:
        event: StreamEvent = cls(**{field.name: data[field.name] for field in fields(cls) if field.name in data})
    except TypeError:  # a field that it needs is gone
        return UnknownEvent(name, data)
    return event
