"""Conversion of recorded responses to replies: what all providers share, and the format that each
provider adds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mochi_stub.json_encoding import dumps, dumps_line, go_dumps
from mochi_stub.prompt import ToolCall
from mochi_stub.reply import (
    Content,
    Durations,
    Failure,
    Finish,
    Pace,
    Pause,
    Reasoning,
    Reply,
    Text,
    ToolCalls,
    Usage,
)

DONE = {"done": True}
"""Object that stands for OpenAI's `[DONE]` in a recorded stream."""
_FINISH: Mapping[str, Finish] = {
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "MAX_TOKENS": "length",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "SAFETY": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
}
# Fields of each token count in the usage objects of all providers; dots separate nested fields.
# If an object has several of them, the last one counts. `candidatesTokenCount` does not include
# thoughts, so gemini.py adds them.
_USAGE = {
    "input": "prompt_tokens input_tokens promptTokenCount prompt_eval_count",
    "output": "completion_tokens output_tokens candidatesTokenCount eval_count",
    "reasoning": "completion_tokens_details.reasoning_tokens "
    "output_tokens_details.reasoning_tokens output_tokens_details.thinking_tokens "
    "thoughtsTokenCount",
    "cache_read": "prompt_tokens_details.cached_tokens input_tokens_details.cached_tokens "
    "cache_read_input_tokens cachedContentTokenCount",
    "cache_creation": "cache_creation_input_tokens",
}
_STATUSES = {  # HTTP statuses of errors that occur during a stream
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "invalid_request_error": 400,
    "overloaded_error": 529,
}


def get(value: Any, *path: str | int) -> Any:
    """Return the nested value at `path` in JSON data, or None if the data has no such path."""
    try:
        for step in path:
            value = value[step]
    except (LookupError, TypeError):
        return None
    return value


def listed(value: Any, *path: str) -> list[Any]:
    """Return the list at `path` in JSON data, or an empty list if there is none."""
    found = get(value, *path)
    if isinstance(found, list):
        return found
    return []


@dataclass
class _Call:
    """Tool call of which parts were added. `fragments` is JSON text of its arguments."""

    id: str | None = None
    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fragments: str = ""

    def to_tool_call(self) -> ToolCall:
        if not self.fragments:
            return ToolCall(self.name, self.arguments, self.id)
        try:
            arguments = json.loads(self.fragments)
        except (ValueError, RecursionError):  # also for integers of many digits
            arguments = None
        if not isinstance(arguments, Mapping):
            arguments = {"_raw": self.fragments}
        return ToolCall(self.name, arguments, self.id)


@dataclass
class ReplyBuilder:
    """Builder of a reply from response objects.

    `timestamp` is the time of the current object in nanoseconds, `last_part_time` that of the
    object with the latest part.
    """

    stream: bool
    timestamp: int = 0
    last_part_time: int = 0
    parts: list[Reasoning | Text | Pause | Failure | ToolCalls] = field(default_factory=list)
    calls: dict[Any, _Call] = field(default_factory=dict)
    finish: Finish = "stop"
    stop_sequence: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    durations: Durations = field(default_factory=Durations)

    def add(self, kind: type[Reasoning] | type[Text], text: Any) -> None:
        """Add a text, or reasoning. Values that are not text are ignored."""
        if not isinstance(text, str) or not text:
            return
        self._add_pause()
        content: Content = text
        if self.stream:
            content = (text,)  # one chunk
        self.parts.append(kind(content))

    def add_failure(self, message: Any, error: Any) -> None:
        """Add a failure, whose HTTP status is that of the code or type of ``error``, or 500."""
        self._add_pause()
        if not isinstance(message, str):
            message = json.dumps(message)
        failure = Failure(message, _failure_status(error))
        self.parts.append(failure)

    def add_call_part(self, index: Any, function: Any, id: Any = None) -> None:
        """Add an object with the name or the arguments of the tool call at `index`.

        The arguments can be a fragment of JSON text, which takes precedence over an object.
        """
        call = self.calls.setdefault(index, _Call())
        name = get(function, "name")
        if isinstance(id, str) and id:
            call.id = id
        if isinstance(name, str) and name:
            call.name = name
        for key in ("arguments", "args", "input", "partial_json"):
            arguments = get(function, key)
            if isinstance(arguments, Mapping):
                call.arguments = arguments
            elif isinstance(arguments, str):
                call.fragments += arguments

    def set_outcome(self, reason: Any, usage: Any = None) -> None:
        """Set the finish reason and the token counts that a response contains.

        An unknown reason does not replace the earlier one.
        """
        if isinstance(reason, str):
            self.finish = _FINISH.get(reason, self.finish)
        for name, paths in _USAGE.items():
            for path in paths.split():
                count = get(usage, *path.split("."))
                if isinstance(count, int):
                    self.usage[name] = count

    def build(self) -> Reply:
        """Add all tool calls at the end and return the reply. Call this method only once."""
        self._add_pause()
        if self.calls:
            calls = [call.to_tool_call() for call in self.calls.values()]
            self.parts.append(ToolCalls(calls))
        return Reply(
            self.parts,
            finish=self.finish,
            usage=Usage(**self.usage),
            durations=self.durations,
            stop_sequence=self.stop_sequence,
            pace=Pace(characters_per_second=math.inf),
        )

    def _add_pause(self) -> None:
        """Add the time since the latest part."""
        if self.timestamp > self.last_part_time:
            seconds = (self.timestamp - self.last_part_time) / 1e9
            self.parts.append(Pause(seconds))
        self.last_part_time = self.timestamp


def _failure_status(error: Any) -> int:
    code = get(error, "code")
    if isinstance(code, int) and 400 <= code <= 599:
        return code
    kind = get(error, "type")
    return _STATUSES.get(str(code)) or _STATUSES.get(str(kind)) or 500


class RecordedFormat(NamedTuple):
    """Format of the recorded responses of one path.

    `read` adds a response, or an object of a stream, to a builder. `frame` encodes an object of a
    stream with the content type `stream_type`. `encode` encodes a response that is not a stream.
    """

    read: Callable[[Any, ReplyBuilder], None]
    frame: Callable[[Any], str]
    stream_type: str = "text/event-stream"
    encode: Callable[[Any], str] = dumps


def event_frame(value: Any, *, named: bool = True, end: str = "\n\n", done: str = "") -> str:
    """Encode an object of a stream as a server-sent event.

    If `named` is true, the event has the name of the object's type. `end` is the text after its
    data, and `done` is the event for `DONE`. Text that was not JSON is sent as it is, with one
    `data:` line for each of its lines.
    """
    if value == DONE:
        return done
    data = _event_data(value)
    name = get(value, "type")
    if not named or not name:
        return f"data: {data}{end}"
    return f"event: {name}\ndata: {data}{end}"


def _event_data(value: Any) -> str:
    if isinstance(value, str):
        return value.replace("\n", "\ndata: ")
    return dumps_line(value)


def line_frame(value: Any) -> str:
    """Encode an object of a stream as a line.

    A text is a line that was not JSON, and stays unchanged.
    """
    line = value
    if not isinstance(value, str):
        line = go_dumps(value)
    return f"{line}\n"
