"""Builder of an answer from the lines that Ollama streams."""

import time
from collections.abc import Collection
from io import StringIO
from typing import Any

import orjson

from mochi_server.constants import MAX_ARGUMENT_LEVELS
from mochi_server.events import ChatEvent, ContentDelta, Publish, ThinkingDelta, TokenLogprobs
from mochi_server.inference.answer_repair import AnswerRepair, Piece, parsed_object, without_channel
from mochi_server.ollama.errors import malformed_answer
from mochi_server.ollama.transport import Line
from mochi_server.sessions.serialization import is_nested_deeper
from mochi_server.sessions.types import AssistantMessage, ToolCall, ToolCallFunction
from mochi_server.tools.schema import TOO_DEEP
from mochi_server.tools.toolbox import NOT_AN_OBJECT
from mochi_server.util.clock import new_id, now

_COUNTERS = tuple(
    name for name in AssistantMessage.__annotations__ if name.endswith(("_count", "_duration"))
)
_MAX_REPETITIONS = 4
"""Maximum number of calls in an answer, also equal ones, for each of ``max_calls``."""


class AnswerBuilder:
    """Builder of one answer, which publishes its events.

    It skips calls beyond ``max_calls`` distinct calls. With ``repair``, reasoning and calls that
    the model writes as text leave the text. Calls do not get the IDs of ``earlier_calls``. The
    message has a new ID if ``message_id`` is None.
    """

    def __init__(
        self,
        model: str,
        publish: Publish,
        max_calls: int,
        repair: AnswerRepair | None = None,
        earlier_calls: Collection[str] = (),
        *,
        message_id: str | None = None,
    ) -> None:
        self.model = model
        self.skipped_calls = 0
        self._publish = publish
        self._max_calls = max_calls
        self._repair = repair
        self._call_ids = set(earlier_calls)
        self._has_moved_text = False
        self._has_renamed_tool = False
        self.message_id = message_id or new_id()
        # Time from the request to the first chunk, in seconds.
        self.first_chunk: float | None = None
        self._began = time.monotonic()
        self.tool_calls: list[ToolCall] = []
        self._content = StringIO()
        self._thinking = StringIO()  # of the field `thinking`
        self._read_thinking = StringIO()  # reasoning that the repair has read from the text
        self._raw = StringIO()  # text and renamed calls of the model before the repair
        self._last_line: Line = {}
        self._distinct_calls: set[str] = set()

    @property
    def content(self) -> str:
        return self._content.getvalue()

    @property
    def has_text(self) -> bool:
        """Whether the answer has text or reasoning."""
        return bool(self._content.tell() or self.thinking)

    @property
    def is_repaired(self) -> bool:
        """Whether the repair has changed the text of the model, or renamed a tool.

        Texts that the methods ``replace`` and ``replace_text_by_call`` set do not count.
        """
        return self._has_renamed_tool or (self._repair is not None and self._repair.is_changed)

    @property
    def is_empty(self) -> bool:
        """Whether the answer has neither text nor calls. It may have reasoning."""
        return not self.tool_calls and not self.content.strip()

    @property
    def thinking(self) -> str:
        return self._thinking.getvalue() + self._read_thinking.getvalue()

    @property
    def done_reason(self) -> object:
        return self._last_line.get("done_reason")

    def calls_any(self, names: Collection[str]) -> bool:
        """Return whether the answer calls one of the tools ``names``."""
        return any(call["function"]["name"] in names for call in self.tool_calls)

    def replace_text_by_call(self, names: Collection[str]) -> bool:
        """Replace the text by the call that it contains as JSON, and return True.

        Earlier calls are removed, too. There are no events.

        If it is no call of one of the tools ``names``, change nothing and return False.
        """
        call = parsed_object(self.content)
        if call is None or call.get("name") not in names:
            return False
        self._content = StringIO()
        self.tool_calls.clear()
        self._distinct_calls.clear()
        self._add_call({"function": call})
        return True

    def replace(self, text: str, last: Line) -> None:
        """Replace the text without events. ``last`` is the last line of the new answer.

        The reasoning and the calls stay.
        """
        self._content = StringIO()
        self._content.write(text)
        self._last_line = last

    def feed(self, lines: list[Line]) -> None:
        """Add response lines, of which there is at least one, and publish one event for each piece
        of text.

        Raises ``OllamaError`` for invalid calls.
        """
        events: list[ChatEvent] = []
        if self.first_chunk is None:
            self.first_chunk = time.monotonic() - self._began
        try:
            for line in lines:
                message = line.get("message")
                logprobs = line.get("logprobs")
                if type(message) is not dict:
                    continue
                if isinstance(logprobs, list) and not message.get("thinking"):
                    events.append(TokenLogprobs(logprobs))
                self._add_message(message, events)
        finally:  # also the text before an invalid call
            if events:
                self._publish(events)
        if lines[-1].get("done") is True:  # only the last line of a response
            self._last_line = lines[-1]

    def finish(self, *, is_cut: bool = False) -> None:
        """Add the text that was held back, because it could have been a tag or a call, and the
        calls that the text contains.

        Blanks that are all of the answer are dropped, because the answer may be requested again.
        If ``is_cut`` is true, the stream was cut before the answer was complete. Then a call in
        the text stays text, because it may be incomplete.
        """
        if self._repair is None:
            return
        if is_cut:
            pieces = self._repair.finish_without_calls(is_cut=True)
        else:
            pieces = self._repair.finish(is_cut=self.done_reason == "length")
        has_only_blanks = all(piece.kind == "text" and not piece.text.strip() for piece in pieces)
        if has_only_blanks and self.is_empty and not self._repair.calls:
            return
        events: list[ChatEvent] = []
        for piece in pieces:
            self._add_piece(piece, events)
        if events:
            self._publish(events)
        for call in self._repair.calls:
            self._add_call({"function": call})

    def take_move(self) -> bool:
        """Return whether text has become reasoning, or reasoning text, since the last call."""
        has_moved = self._has_moved_text
        self._has_moved_text = False
        return has_moved

    def message(self, *, interrupted: bool = False) -> AssistantMessage:
        """Return the answer until now. An interrupted answer has no calls."""
        message: AssistantMessage = {
            "role": "assistant",
            "content": self.content,
            "model": self.model,
            "message_id": self.message_id,
            "timestamp": now(),
        }
        if self.thinking:
            message["thinking"] = self.thinking
        raw = self._raw.getvalue()
        if raw and self.is_repaired:
            message["raw"] = raw
        if self.tool_calls and not interrupted:
            message["tool_calls"] = self.tool_calls
        if interrupted:
            message["interrupted"] = True
        for name in _COUNTERS:
            count = self._last_line.get(name)
            if isinstance(count, int):
                message[name] = count  # type: ignore[literal-required]
        if isinstance(self.done_reason, str):
            message["done_reason"] = self.done_reason
        return message

    def _add_message(self, message: dict[str, Any], events: list[ChatEvent]) -> None:
        thinking = message.get("thinking")
        content = message.get("content")
        if thinking and isinstance(thinking, str):
            self._thinking.write(thinking)
            events.append(ThinkingDelta(thinking))
        if content and isinstance(content, str):
            self._add_content(content, events)
        calls = message.get("tool_calls") or []
        for call in calls if isinstance(calls, list) else [calls]:
            self._add_call(call)

    def _add_content(self, content: str, events: list[ChatEvent]) -> None:
        repair = self._repair
        if repair is not None:
            self._raw.write(content)
        if repair is None or repair.feed_plain(content):
            self._add_text(content, events)
            return
        for piece in repair.feed(content):
            self._add_piece(piece, events)

    def _add_text(self, text: str, events: list[ChatEvent]) -> None:
        self._content.write(text)
        events.append(ContentDelta(text))

    def _add_piece(self, piece: Piece, events: list[ChatEvent]) -> None:
        match piece.kind:
            case "text":
                self._add_text(piece.text, events)
            case "thinking":
                self._read_thinking.write(piece.text)
                events.append(ThinkingDelta(piece.text))
            case "was_thinking":  # all text before this piece
                self._read_thinking.write(self.content)
                self._content = StringIO()
                self._has_moved_text = True
            case "was_text":  # all read reasoning; this piece has the beginning of the text
                self._content.write(piece.text + self._read_thinking.getvalue())
                self._read_thinking = StringIO()
                self._has_moved_text = True

    def _add_call(self, call: Any) -> None:
        """Add a tool call, or skip it if there are too many.

        Raises ``OllamaError`` for a call without a name.
        """
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(name, str) or not name:
            raise malformed_answer("Ollama sent a tool call without a function name.")
        written = function.get("arguments")
        if self._repair is not None and without_channel(name) != name:
            self._raw.write(_as_written({"name": name, "arguments": written}))
            name = without_channel(name)
            self._has_renamed_tool = True
        arguments, defect = _checked_arguments(written)
        index = len(self.tool_calls)
        distinct = self._distinct_calls | {repr((name, arguments, defect))}
        if len(distinct) > self._max_calls or index >= _MAX_REPETITIONS * self._max_calls:
            self.skipped_calls += 1
            return
        self._distinct_calls = distinct
        sent: ToolCallFunction = {"index": index, "name": name, "arguments": arguments}
        if defect is not None:
            sent["defect"] = defect
            raw = "" if isinstance(written, dict) else _as_written(written)
            if raw:
                sent["raw_arguments"] = raw
        self.tool_calls.append({"id": self._call_id(call.get("id")), "function": sent})

    def _call_id(self, written: object) -> str:
        """Return the ID of a call as written, or a new one if it is missing or was used before."""
        call_id = str(written or "") if isinstance(written, str | int) else ""
        if not call_id or call_id in self._call_ids:
            call_id = f"call_{new_id()}"
        self._call_ids.add(call_id)
        return call_id


def _checked_arguments(written: object) -> tuple[dict[str, Any], str | None]:
    """Return tool arguments and their defect, if any. Arguments with a defect become empty."""
    arguments = _arguments(written)
    if arguments is None:
        return {}, NOT_AN_OBJECT
    if is_nested_deeper(arguments, MAX_ARGUMENT_LEVELS):
        return {}, TOO_DEEP
    return arguments, None


def _arguments(value: object) -> dict[str, Any] | None:
    """Return tool arguments as a dictionary, or None if they are invalid.

    Some models send a JSON string.
    """
    if value in (None, "", "null"):
        return {}
    if isinstance(value, str):
        return parsed_object(value)
    return value if isinstance(value, dict) else None


def _as_written(value: object) -> str:
    """Return a call or its arguments as the model has written them, as JSON if they are no text.

    The text is empty if the value is nested too deeply for the JSON encoder.
    """
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        return ""
