"""Builds the message of an answer from the lines of the model, and publishes its events."""

from io import StringIO
from typing import Any

import orjson

from mochi_server.constants import MAX_ARGUMENT_LEVELS
from mochi_server.errors import OllamaError
from mochi_server.events import ChatEvent, ContentDelta, Publish, ThinkingDelta
from mochi_server.ollama.transport import Line
from mochi_server.sessions.serialization import is_nested_deeper
from mochi_server.sessions.types import Message, ToolCall
from mochi_server.tools.schema import TOO_DEEP
from mochi_server.tools.toolbox import ToolInvocation
from mochi_server.util.clock import new_id, now

_COUNTERS = (
    "eval_count",
    "prompt_eval_count",
    "total_duration",
    "load_duration",
    "prompt_eval_duration",
    "eval_duration",
)


class ResponseBuilder:
    """One answer of a model. Tool calls are taken from any line, the last included.

    Of more than ``max_calls`` calls only the first are taken; ``left_out`` counts the others.
    """

    def __init__(self, model: str, publish: Publish, max_calls: int) -> None:
        self.model = model
        self.left_out = 0
        self._publish = publish
        self._max_calls = max_calls
        self.message_id = new_id()
        self.tool_calls: list[ToolCall] = []
        self._content = StringIO()
        self._thinking = StringIO()
        self._last: Line = {}
        self._defects: dict[int, str] = {}

    @property
    def has_text(self) -> bool:
        """Whether there is any text to store."""
        return bool(self._content.tell() or self._thinking.tell())

    def feed(self, lines: list[Line]) -> None:
        """Take the lines of one read; publish one event for each piece of text, never merged.

        Raises:
            OllamaError: A line has a tool call that cannot be read. The events before it are published.
        """
        events: list[ChatEvent] = []
        try:
            for line in lines:
                message = line.get("message")
                if type(message) is dict:
                    self._take(message, events)
        finally:
            if events:
                self._publish(events)
        if lines[-1].get("done") is True:  # no line follows it
            self._last = lines[-1]

    def message(self, *, interrupted: bool = False) -> Message:
        """Return the answer so far as it is stored."""
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

    def calls(self, first_index: int) -> list[ToolInvocation]:
        """Return the tool calls, numbered through the turn."""
        return [
            ToolInvocation(
                first_index + i, c["id"], c["function"]["name"], c["function"]["arguments"], self._defects.get(i)
            )
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
        """Take a call in Ollama's shape; give it an ID where it has none. Raises ``OllamaError``."""
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
    """Return arguments as an object; some models write it as a string of JSON. None for anything else."""
    if isinstance(given, str):
        try:
            given = orjson.loads(given or "{}")
        except orjson.JSONDecodeError:
            return None
    return given if isinstance(given, dict) else {} if given is None else None
