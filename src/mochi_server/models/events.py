"""Schemas of the events of streams, made from the classes of the events, of which there is one each."""

from dataclasses import dataclass
from itertools import groupby
from typing import Any, get_args

from pydantic import TypeAdapter

from mochi_server.events import ChatEvent
from mochi_server.services.compare import CompareEvent

REFERENCE = "#/components/schemas/"
_Schema = dict[str, Any]


@dataclass(frozen=True)
class EventUnion:
    """The events of one kind of stream, told apart by ``event``. ``name`` and ``prefix`` are of their schemas."""

    name: str
    description: str
    events: tuple[Any, ...]
    last: str
    prefix: str = ""
    numbered: bool = True

    @property
    def ref(self) -> _Schema:
        """The reference to the union."""
        return {"$ref": f"{REFERENCE}{self.name}"}

    def schemas(self) -> dict[str, _Schema]:
        """The union, its events, and the payload of each, by name."""
        payloads = {self._payload_name(event): _payload(event) for event in self.events}
        frames = {f"{self._payload_name(of_name[0])}Event": self._frame(of_name) for of_name in self._by_name()}
        mapping = {frame["properties"]["event"]["const"]: f"{REFERENCE}{name}" for name, frame in frames.items()}
        union = {
            "description": self.description,
            "oneOf": [{"$ref": reference} for reference in mapping.values()],
            "discriminator": {"propertyName": "event", "mapping": mapping},
        }
        return {**payloads, **frames, self.name: union}

    def _by_name(self) -> list[list[Any]]:
        return [list(events) for _, events in groupby(self.events, key=lambda event: event.type)]

    def _payload_name(self, event: type) -> str:
        return self.prefix + event.__name__

    def _frame(self, events: list[Any]) -> _Schema:
        payloads = [{"$ref": f"{REFERENCE}{self._payload_name(event)}"} for event in events]
        content = payloads[0] if len(payloads) == 1 else {"anyOf": payloads[::-1]}
        properties: _Schema = {
            "event": {"type": "string", "const": events[0].type},
            "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": content},
        }
        if self.numbered:
            properties = {"id": _ID, **properties}
        return {
            "type": "object",
            "description": f"`{events[0].type}`: {_payload(events[0])['description']}",
            "properties": properties,
            "required": list(properties),
        }


_ID = {
    "type": "string",
    "description": "The run and the number of the event, which `Last-Event-ID` takes.",
    "examples": ["1f0c5e7a9b:42"],
}


def _payload(event: Any) -> _Schema:
    schema = TypeAdapter(event).json_schema(mode="serialization")
    del schema["title"]
    schema["required"] = list(schema["properties"])
    for field in schema["properties"].values():
        field.pop("title", None)
        field.pop("default", None)
    schema["description"] = str(event.__doc__).replace("``", "`").replace("\n    ", "\n")
    return schema


CHAT_EVENTS = EventUnion(
    "ChatStreamEvent", "An event of a turn. `data` is JSON; others may be added.", get_args(ChatEvent), last="done"
)
COMPARE_EVENTS = EventUnion(
    "CompareStreamEvent",
    "An event of a comparison. `data` is JSON.",
    get_args(CompareEvent),
    last="complete",
    prefix="Compare",
    numbered=False,
)
