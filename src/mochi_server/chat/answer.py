"""Builder of an answer from the lines that Ollama streams."""

import time
from collections.abc import Collection
from io import StringIO
from typing import Any

import orjson

from mochi_server.constants import MAX_ARGUMENT_LEVELS
from mochi_server.errors import OllamaError
from mochi_server.events import ChatEvent, ContentDelta, Publish, ThinkingDelta, TokenLogprobs
from mochi_server.ollama.transport import Line
from mochi_server.sessions.serialization import is_nested_deeper
from mochi_server.sessions.types import Message, ToolCall, ToolCallFunction
from mochi_server.tools.schema import TOO_DEEP
from mochi_server.tools.toolbox import ToolInvocation
from mochi_server.util.clock import new_id, now

_COUNTERS = tuple(
    name for name in Message.__annotations__ if name.endswith(("_count", "_duration"))
)


class AnswerBuilder:
    """Builder of one answer, which publishes its events.

    It skips calls beyond ``max_calls`` distinct calls.
    """

    def __init__(self, model: str, publish: Publish, max_calls: int) -> None:
        self.model = model
        self.skipped_calls = 0
        self._publish = publish
        self._max_calls = max_calls
        self.message_id = new_id()
        # Time from the request to the first chunk, in seconds.
        self.first_chunk: float | None = None
        self._began = time.monotonic()
        self.tool_calls: list[ToolCall] = []
        self._content = StringIO()
        self._thinking = StringIO()
        self._last: Line = {}
        self._defects: dict[int, str] = {}
        self._distinct_calls: set[str] = set()

    @property
    def content(self) -> str:
        return self._content.getvalue()

    @property
    def has_text(self) -> bool:
        return bool(self._content.tell() or self._thinking.tell())

    @property
    def done_reason(self) -> object:
        return self._last.get("done_reason")

    def calls_any(self, names: Collection[str]) -> bool:
        """Return whether the answer calls one of the tools ``names``."""
        return any(call["function"]["name"] in names for call in self.tool_calls)

    def replace_text_by_call(self, names: Collection[str]) -> bool:
        """Replace the text by the call of one of the tools ``names`` that it contains as JSON.

        Return False if none.
        """
        try:
            call = orjson.loads(self._content.getvalue())
        except orjson.JSONDecodeError:
            return False
        if not isinstance(call, dict) or call.get("name") not in names:
            return False
        self._content = StringIO()
        self.tool_calls.clear()
        self._defects.clear()
        self._distinct_calls.clear()
        self._add_call({"function": call})
        return True

    def replace(self, text: str, last: Line) -> None:
        """Replace the text without events. ``last`` is the last line of the new answer.

        The counts and durations of the message are those of both answers.
        """
        self._content = StringIO()
        self._content.write(text)
        spent = {
            name: _count(self._last.get(name)) + _count(last.get(name))
            for name in _COUNTERS
            if name in last
        }
        self._last = {**last, **spent}

    def feed(self, lines: list[Line]) -> None:
        """Add response lines and publish one event for each piece of text.

        Raises ``OllamaError`` for invalid calls.
        """
        events: list[ChatEvent] = []
        if self.first_chunk is None:
            self.first_chunk = time.monotonic() - self._began
        try:
            for line in lines:
                message, logprobs = line.get("message"), line.get("logprobs")
                if type(message) is not dict:
                    continue
                if isinstance(logprobs, list) and not message.get("thinking"):
                    events.append(TokenLogprobs(logprobs))
                self._add_message(message, events)
        finally:
            if events:
                self._publish(events)
        if lines[-1].get("done") is True:  # only the last line of a response
            self._last = lines[-1]

    def message(self, *, interrupted: bool = False) -> Message:
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
        message |= {
            name: value for name in _COUNTERS if isinstance(value := self._last.get(name), int)
        }  # type: ignore[typeddict-item]  # a TypedDict by names
        if isinstance(reason := self._last.get("done_reason"), str):
            message["done_reason"] = reason
        return message

    def calls(self, first_index: int) -> list[ToolInvocation]:
        """Return the tool calls of the answer, numbered within the turn from ``first_index``."""
        calls: list[ToolInvocation] = []
        for i, call in enumerate(self.tool_calls):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            defect = self._defects.get(i)
            calls.append(ToolInvocation(first_index + i, call["id"], name, arguments, defect))
        return calls

    def _add_message(self, message: dict[str, Any], events: list[ChatEvent]) -> None:
        thinking, content = message.get("thinking"), message.get("content")
        if thinking and isinstance(thinking, str):
            self._thinking.write(thinking)
            events.append(ThinkingDelta(thinking))
        if content and isinstance(content, str):
            self._content.write(content)
            events.append(ContentDelta(content))
        if calls := message.get("tool_calls"):
            for call in calls if isinstance(calls, list) else [calls]:
                self._add_call(call)

    def _add_call(self, call: Any) -> None:
        """Add a tool call.

        If the call has no ID, create one. If the call has no name, raise ``OllamaError``.
        """
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(name, str) or not name:
            raise OllamaError("Ollama sent a tool call without a function name.")
        arguments, defect = _arguments(function.get("arguments")), None
        if arguments is None:
            defect = "The arguments must be a JSON object with parameter names as keys."
        elif is_nested_deeper(arguments, MAX_ARGUMENT_LEVELS):
            arguments, defect = None, TOO_DEEP
        index = len(self.tool_calls)
        distinct = self._distinct_calls | {repr((name, arguments, defect))}
        if len(distinct) > self._max_calls or index >= 4 * self._max_calls:
            self.skipped_calls += 1
            return
        self._distinct_calls = distinct
        if defect is not None:
            self._defects[index] = defect
        call_id = call.get("id")
        if not call_id or not isinstance(call_id, str | int):
            call_id = f"call_{new_id()}"
        sent: ToolCallFunction = {"index": index, "name": name, "arguments": arguments or {}}
        self.tool_calls.append({"id": str(call_id), "function": sent})


def _arguments(value: object) -> dict[str, Any] | None:
    """Return tool arguments as a dictionary, or None if they are invalid.

    Some models send a JSON string.
    """
    if isinstance(value, str):
        try:
            value = orjson.loads(value or "{}")
        except orjson.JSONDecodeError:
            return None
    if value is None:
        return {}
    return value if isinstance(value, dict) else None


def _count(value: object) -> int:
    """Return a count of Ollama, or 0 if it is missing."""
    return value if isinstance(value, int) else 0
