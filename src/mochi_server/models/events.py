"""Schemas of stream events, generated from the event classes."""

from dataclasses import dataclass
from itertools import groupby
from typing import Any, get_args

from pydantic import TypeAdapter

from mochi_server.events import ChatEvent
from mochi_server.services.compare import CompareEvent

REFERENCE = "#/components/schemas/"
_Schema = dict[str, Any]
_ID: _Schema = {
    "type": "string",
    "description": "ID of the run and number of the event. Send it as `Last-Event-ID` to resume.",
    "examples": ["1f0c5e7a9b:42"],
}


@dataclass(frozen=True)
class EventUnion:
    """Schemas of the events of a stream. If ``prefix`` is set, schema names begin with it, and events have no IDs."""

    name: str
    description: str
    events: tuple[Any, ...]
    last: str
    prefix: str = ""

    def schemas(self) -> dict[str, _Schema]:
        """Return the schemas of the union, of its events and of the event payloads, by schema name."""
        schemas = {self.prefix + event.__name__: _payload(event) for event in self.events}
        mapping = {}
        for name, events in groupby(self.events, key=lambda event: event.type):
            payloads = [self.prefix + event.__name__ for event in events]
            schemas[f"{payloads[0]}Event"] = self._frame(name, payloads, schemas[payloads[0]]["description"])
            mapping[name] = f"{REFERENCE}{payloads[0]}Event"
        schemas[self.name] = {
            "description": self.description,
            "oneOf": [{"$ref": reference} for reference in mapping.values()],
            "discriminator": {"propertyName": "event", "mapping": mapping},
        }
        return schemas

    def _frame(self, event: str, payloads: list[str], description: str) -> _Schema:
        references = [{"$ref": f"{REFERENCE}{name}"} for name in payloads]
        content = references[0] if len(references) == 1 else {"anyOf": references[::-1]}
        properties: _Schema = {"id": _ID} if not self.prefix else {}
        properties["event"] = {"type": "string", "const": event}
        properties["data"] = {"type": "string", "contentMediaType": "application/json", "contentSchema": content}
        return {
            "type": "object",
            "description": f"`{event}`: {description}",
            "properties": properties,
            "required": list(properties),
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
    "ChatStreamEvent", "Event of a turn. `data` is JSON. New events may be added.", get_args(ChatEvent), last="done"
)
COMPARE_EVENTS = EventUnion(
    "CompareStreamEvent",
    "Event of a comparison. `data` is JSON.",
    get_args(CompareEvent),
    last="complete",
    prefix="Compare",
)
