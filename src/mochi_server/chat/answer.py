"""One answer of a model, as it comes: lines in, events out, and at any time the message it would be stored as."""

from io import StringIO
from typing import Any

import orjson

from mochi_server.constants import MAX_ARGUMENT_LEVELS
from mochi_server.errors import OllamaError
from mochi_server.events import ChatEvent, ContentDelta, ThinkingDelta
from mochi_server.ollama.stream import Line
from mochi_server.sessions.encoding import is_nested_deeper
from mochi_server.sessions.session import new_id, now
from mochi_server.sessions.types import Message, ToolCall
from mochi_server.tools.schema import TOO_DEEP
from mochi_server.tools.toolbox import Call

_COUNTERS = (
    "eval_count",
    "prompt_eval_count",
    "total_duration",
    "load_duration",
    "prompt_eval_duration",
    "eval_duration",
)


class Answer:
    """Collects what a model says. Tool calls are taken from any line, the last included.

    Of more than ``max_calls`` calls only the first are taken; ``left_out`` counts the others.
    """

    def __init__(self, model: str, max_calls: int = 128) -> None:
        self.model = model
        self.left_out = 0
        self._max_calls = max_calls
        self.message_id = new_id()
        self.tool_calls: list[ToolCall] = []
        self.failure: OllamaError | None = None
        self._content = StringIO()
        self._thinking = StringIO()
        self._last: Line = {}
        self._defects: dict[int, str] = {}

    @property
    def said_something(self) -> bool:
        """Whether there is any text worth keeping."""
        return bool(self._content.tell() or self._thinking.tell())

    def feed(self, lines: list[Line]) -> list[ChatEvent]:
        """Take a batch of lines; one event for each piece of text in it, never merged. Then look at ``failure``."""
        events: list[ChatEvent] = []
        for line in lines:
            message = line.get("message")
            if type(message) is dict:
                try:
                    self._take(message, events)
                except OllamaError as error:
                    self.failure = error
                    return events
        if lines and lines[-1].get("done") is True:  # none follows it
            self._last = lines[-1]
        return events

    def message(self, *, interrupted: bool = False) -> Message:
        """The answer so far, as it is stored."""
        message: Message = {
            "role": "assistant",
            "content": self._content.getvalue(),
            "model": self.model,
            "message_id": self.message_id,
            "timestamp": now(),
        }
        if thinking := self._thinking.getvalue():
            message["thinking"] = thinking
        if self.tool_calls and not interrupted:
            message["tool_calls"] = self.tool_calls
        if interrupted:
            message["interrupted"] = True
        message |= {name: value for name in _COUNTERS if isinstance(value := self._last.get(name), int)}  # type: ignore[typeddict-item]  # a TypedDict by names
        if isinstance(reason := self._last.get("done_reason"), str):
            message["done_reason"] = reason
        return message

    def calls(self, first_index: int) -> list[Call]:
        """The calls it asks for, numbered through the turn."""
        return [
            Call(first_index + i, c["id"], c["function"]["name"], c["function"]["arguments"], self._defects.get(i))
            for i, c in enumerate(self.tool_calls)
        ]

    def _take(self, message: dict[str, Any], events: list[ChatEvent]) -> None:
        thinking, content = message.get("thinking"), message.get("content")
        if thinking and isinstance(thinking, str):
            self._thinking.write(thinking)
            events.append(ThinkingDelta(thinking))
        if content and isinstance(content, str):
            self._content.write(content)
            events.append(ContentDelta(content))
        if calls := message.get("tool_calls"):
            for call in calls if isinstance(calls, list) else [calls]:
                self._take_call(call, len(self.tool_calls))

    def _take_call(self, call: Any, index: int) -> None:
        """A call in Ollama's shape, with an id of ours where the server gave none. Raises ``OllamaError``."""
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not function.get("name"):
            raise OllamaError("Ollama sent a tool call without a function's name.")
        if index >= self._max_calls:
            self.left_out += 1
            return
        arguments = _arguments(function.get("arguments"))
        if arguments is None:
            self._defects[index] = "The arguments must be an object, with the parameters by name."
        elif is_nested_deeper(arguments, MAX_ARGUMENT_LEVELS):
            self._defects[index] = TOO_DEEP
            arguments = None
        self.tool_calls.append(
            {
                "id": str(call.get("id") or f"call_{new_id()}"),
                "function": {"index": index, "name": str(function["name"]), "arguments": arguments or {}},
            }
        )


def _arguments(given: object) -> dict[str, Any] | None:
    """Arguments as an object; some models write it as a string of JSON. None for anything else."""
    if isinstance(given, str):
        try:
            given = orjson.loads(given or "{}")
        except orjson.JSONDecodeError:
            return None
    return given if isinstance(given, dict) else {} if given is None else None
