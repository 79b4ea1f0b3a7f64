"""Generator of `docs/reference/events.md`."""

from dataclasses import MISSING, Field, fields
from typing import Any, get_args

from mochi_server import events
from tests.docs_tooling.reference.markdown import page, prose, table

INTRODUCTION = """
Look up an event of a streamed answer and the fields of its payload. A stream consists of server-sent events:

```text
id: 1f0c5e7a9b:1
event: content_delta
data: {"content":"Hello","role":"assistant"}
```

- `id` consists of the ID of the [run](../glossary.md#run) and the number of the event. The first event has number 1.
- `event` is the name of the [event](../glossary.md#event).
- `data` is the payload, a JSON object.

The last event of a stream is always [`done`](#done), also after an [`error`](#error). Ignore unknown events and fields,
because later versions may add some.

To continue after a lost connection, see [Resume a stream](../how-to/resume-a-stream.md).
"""


def events_page() -> str:
    return page("Events of a stream", INTRODUCTION, [_section(event) for event in all_events()])


def all_events() -> tuple[Any, ...]:
    return get_args(events.ChatEvent)


def _section(event: Any) -> str:
    payload = table(["field", "type", "default"], rows(event))
    return f"## `{event.type}`\n\n{prose(event.__doc__)}\n\n{payload}"


def rows(event: Any) -> list[tuple[str, str, str]]:
    """Return name, type and default of each field of an event."""
    return [_row(one) for one in fields(event)]


def _row(field: Field[Any]) -> tuple[str, str, str]:
    kind = field.type if isinstance(field.type, str) else _spelled(field.type)
    if field.default_factory is not MISSING:
        default = f"`{field.default_factory()}`"
    else:
        default = "" if field.default is MISSING else f"`{_json(field.default)}`"
    return f"`{field.name}`", kind.replace("None", "null"), default


def _spelled(kind: Any) -> str:
    names = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
    if kind in names:
        return names[kind]
    parts = get_args(kind)
    return " or ".join(map(_spelled, parts)) if "|" in str(kind) else "object"


def _json(value: object) -> str:
    return "null" if value is None else f'"{value}"' if isinstance(value, str) else str(value)
