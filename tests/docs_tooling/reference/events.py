"""``docs/reference/events.md``"""

from dataclasses import MISSING, Field, fields
from typing import Any, get_args

from mochi_server import events
from tests.docs_tooling.reference.markdown import page, prose, table

INTRODUCTION = """
A streamed answer is a list of server-sent events. On the wire one looks like this:

```text
id: 1f0c5e7a9b:1
event: content_delta
data: {"content":"Hello","role":"assistant"}
```

The `id` names the run and counts its events from 1. `data` is the payload, an object of JSON. A stream ends with
[`done`](#done), also after an [`error`](#error). Ignore events and fields that you do not know: more may come.
"""


def events_page() -> str:
    return page("Events of a stream", INTRODUCTION, [_section(event) for event in all_events()])


def all_events() -> tuple[Any, ...]:
    """Every class of event."""
    return get_args(events.ChatEvent)


def _section(event: Any) -> str:
    payload = table(["field", "type", "default"], [_row(one) for one in fields(event)])
    return f"## `{event.type}`\n\n{prose(event.__doc__)}\n\n{payload}"


def _row(field: Field[Any]) -> tuple[str, str, str]:
    kind = field.type if isinstance(field.type, str) else _spelled(field.type)
    if field.default_factory is not MISSING:
        default = f"`{field.default_factory()}`"
    else:
        default = "" if field.default is MISSING else f"`{_json(field.default)}`"
    return f"`{field.name}`", kind.replace("None", "null"), default


def _spelled(kind: Any) -> str:
    names = {str: "string", int: "integer", float: "number", bool: "true or false", type(None): "null"}
    if kind in names:
        return names[kind]
    parts = get_args(kind)
    return " or ".join(map(_spelled, parts)) if "|" in str(kind) else "object"


def _json(value: object) -> str:
    return "null" if value is None else f'"{value}"' if isinstance(value, str) else str(value)
