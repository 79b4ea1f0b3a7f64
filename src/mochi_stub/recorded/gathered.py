"""What has been read of a recorded response so far, whatever wire it is in the words of."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mochi_stub.prompt import ToolCall
from mochi_stub.reply import Durations, Failure, Finish, Pace, Part, Pause, Reasoning, Reply, Text, ToolCalls, Usage


@dataclass
class Call:
    """A tool call that may come in fragments; arguments are an object, or JSON in pieces."""

    id: str | None = None
    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fragments: str = ""


class Gathered:
    """The contents in order, each with its time, and what is known of the whole. `at` is now, in nanoseconds."""

    def __init__(self) -> None:
        self.at = 0
        self.calls: dict[Any, Call] = {}
        self.usage: dict[str, int] = {}
        self.durations = Durations()
        self.finish: Finish = "stop"
        self._parts: list[Part] = []
        self._last = 0

    def say(self, kind: type[Reasoning] | type[Text], text: Any) -> None:
        if isinstance(text, str) and text:
            self._wait()
            self._parts.append(kind((text,)))

    def fail(self, message: Any, status: int = 500) -> None:
        self._wait()
        self._parts.append(Failure(message if isinstance(message, str) else json.dumps(message), status))

    def call(self, index: Any, *, name: Any = None, id: Any = None, arguments: Any = None) -> None:
        """More of the call with that index."""
        call = self.calls.setdefault(index, Call())
        call.id = id if isinstance(id, str) and id else call.id
        call.name = name if isinstance(name, str) and name else call.name
        if isinstance(arguments, Mapping):
            call.arguments = arguments
        elif isinstance(arguments, str):
            call.fragments += arguments

    def count(self, **counts: Any) -> None:
        self.usage.update({name: count for name, count in counts.items() if isinstance(count, int)})

    def reply(self) -> Reply:
        parts = [*self._parts, *self._pause()]
        if self.calls:
            parts.append(ToolCalls([_finished(call) for call in self.calls.values()]))
        return Reply(
            parts,
            finish=self.finish,
            usage=Usage(**self.usage),
            durations=self.durations,
            pace=Pace(characters_per_second=math.inf),
        )

    def _wait(self) -> None:
        self._parts += self._pause()
        self._last = self.at

    def _pause(self) -> list[Part]:
        return [Pause((self.at - self._last) / 1e9)] if self.at > self._last else []


def _finished(call: Call) -> ToolCall:
    """The call with its arguments; what is no JSON object is kept under a name of its own."""
    try:
        read = json.loads(call.fragments) if call.fragments else call.arguments
    except (json.JSONDecodeError, RecursionError):
        read = None
    return ToolCall(call.name, read if isinstance(read, Mapping) else {"_raw": call.fragments}, call.id)


def get(value: Any, *path: str | int) -> Any:
    """What stands at the end of the path; None where the path leads nowhere."""
    for step in path:
        if isinstance(value, Mapping) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def listed(value: Any, *path: str | int) -> list[Any]:
    """The list at the end of the path; an empty one where there is none."""
    found = get(value, *path)
    return found if isinstance(found, list) else []
