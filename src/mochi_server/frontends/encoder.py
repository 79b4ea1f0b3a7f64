"""Base of the encoders that convert a run's events to the messages of a frontend protocol."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import orjson

from mochi_server import events
from mochi_server.chat.event_log import Batch
from mochi_server.constants import AGENT_TOOL
from mochi_server.errors import ToolExecutionDenied
from mochi_server.protocols.frontends import FrontendRun

Kind = Literal["text", "reasoning"]
Payload = dict[str, Any]
Messages = Iterable[bytes]
"""Encoded JSON messages of a frontend protocol."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """Result of a tool call. ``error`` is None on success."""

    output: str
    error: str | None = None
    is_denied: bool = False
    """Whether the call did not run because it was not approved."""


_SNAPSHOT_FIELDS: dict[Kind, str] = {"reasoning": "thinking", "text": "content"}
_STOPPED = CallResult("", "The turn was stopped before this call ended.")


class FrontendEncoder(ABC):
    """Encoder of one stream of a run.

    If a tool call needs approval, the stream ends, because clients of the AI SDK and AG-UI send the decision in a new
    request. The response to the new request is a second stream of the run, which begins after event ``started.after``.
    The encoder of the second stream also reads the earlier events, without output, to restore its state.
    """

    headers: ClassVar[dict[str, str]] = {}
    """Headers of the response that the protocol requires."""

    def __init__(self, started: FrontendRun) -> None:
        self.run = started.run
        self.pending = started.pending
        self.is_suspended = False
        """Whether the stream must end now, because a tool call waits for the decision of this client."""
        self.completed: Payload = {}
        """Payload of the event ``message_complete``, or an empty dictionary until that event is encoded."""
        self._after = started.after
        self._open: tuple[Kind, str] | None = None
        self._emitted_characters: dict[Kind, int] = {"text": 0, "reasoning": 0}
        self._has_step_ended = False
        self._agent_call = ""
        self._open_calls: dict[str, None] = {}
        self._handlers: dict[str, Callable[[Payload, int], Messages]] = {
            events.ContentDelta.type: lambda payload, number: self._delta("text", payload["content"], number),
            events.ThinkingDelta.type: lambda payload, number: self._delta("reasoning", payload["content"], number),
            events.Snapshot.type: self._on_snapshot,
            events.ToolCalled.type: self._on_call,
            events.ToolConfirmationRequired.type: self._on_confirmation,
            events.ToolResult.type: self._on_result,
            events.ToolContinuationStart.type: self._on_step_ended,
            events.AgentStart.type: self._on_agent_start,
            events.AgentPlanning.type: self._on_agent_text,
            events.AgentExecution.type: self._on_agent_text,
            events.AgentToolCalled.type: self._on_call,
            events.AgentToolResult.type: self._on_result,
            events.AgentComplete.type: self._on_agent_complete,
            events.MessageComplete.type: self._on_message_complete,
            # `closing` returns the messages for these events.
            **dict.fromkeys((events.TurnError.type, events.Stopped.type, events.Done.type), lambda _, __: ()),
        }

    @abstractmethod
    def opening(self) -> Messages:
        """Return the messages that start the stream."""

    @abstractmethod
    def closing(self) -> Messages:
        """Return the messages that end the stream. Call this after the run has ended or the stream is suspended."""

    @abstractmethod
    def start(self, kind: Kind, part_id: str) -> Messages:
        """Return the messages that begin a part, which is text or reasoning."""

    @abstractmethod
    def delta(self, kind: Kind, part_id: str, text: str) -> Messages:
        """Return the messages that append ``text`` to a part."""

    @abstractmethod
    def end(self, kind: Kind, part_id: str) -> Messages:
        """Return the messages that end a part."""

    @abstractmethod
    def call(self, call_id: str, name: str, arguments: Payload) -> Messages:
        """Return the messages that announce a tool call."""

    @abstractmethod
    def approval(self, call_id: str, confirmation: Payload) -> Messages:
        """Return the messages that request approval of a tool call."""

    @abstractmethod
    def result(self, call_id: str, result: CallResult) -> Messages:
        """Return the messages that contain the result of a tool call."""

    @abstractmethod
    def next_step(self) -> Messages:
        """Return the messages that separate the answers to two requests to the model."""

    @abstractmethod
    def notice(self, name: str, payload: Payload) -> Messages:
        """Return the messages for an event that the protocol does not have, such as ``warning``."""

    def encode(self, batch: Batch) -> Iterator[bytes]:
        """Yield the messages for a batch of events."""
        for number, name, line in batch.events():
            if self.is_suspended:
                return
            payload, event = orjson.loads(line), name.decode()
            handler = self._handlers.get(event)
            messages = list(self.notice(event, payload) if handler is None else handler(payload, number))
            if number > self._after:
                yield from messages

    def end_open_parts(self) -> Iterator[bytes]:
        """Yield the messages that end the open text, and the tool calls that the end of the run has interrupted."""
        yield from self._end_text()
        if not self.is_suspended:
            for call_id in self._open_calls:
                yield from self.result(call_id, _STOPPED)
            self._open_calls.clear()

    def _delta(self, kind: Kind, text: str, number: int) -> Iterator[bytes]:
        self._emitted_characters[kind] += len(text)
        yield from self._text(kind, text, number)

    def _text(self, kind: Kind, text: str, number: int) -> Iterator[bytes]:
        if not text:
            return
        if self._open is None or self._open[0] != kind:
            yield from self._end_text()
            yield from self._begin_step()
            self._open = (kind, f"{self.run.run_id}-{number}")
            yield from self.start(*self._open)
        yield from self.delta(*self._open, text)

    def _end_text(self) -> Messages:
        if self._open is None:
            return ()
        (kind, part_id), self._open = self._open, None
        return self.end(kind, part_id)

    def _begin_step(self) -> Messages:
        has_ended, self._has_step_ended = self._has_step_ended, False
        return self.next_step() if has_ended else ()

    def _on_snapshot(self, payload: Payload, number: int) -> Iterator[bytes]:
        for kind, field in _SNAPSHOT_FIELDS.items():
            yield from self._delta(kind, payload[field][self._emitted_characters[kind] :], number)

    def _call_id(self, payload: Payload) -> str:
        agent = payload.get("parent_call_id") or (self._agent_call if payload.get("agent_name") else "")
        return "-".join(filter(None, (self.run.run_id, agent, str(payload["call_index"]))))

    def _begin_call(self, call_id: str, name: str, arguments: Payload) -> Iterator[bytes]:
        if call_id in self._open_calls:  # an approved call of an agent starts
            return
        yield from self._end_text()
        yield from self._begin_step()
        self._open_calls[call_id] = None
        yield from self.call(call_id, name, arguments)

    def _end_call(self, call_id: str, result: CallResult) -> Iterator[bytes]:
        self._open_calls.pop(call_id, None)
        yield from self._end_text()
        yield from self.result(call_id, result)

    def _on_call(self, payload: Payload, _: int) -> Messages:
        return self._begin_call(self._call_id(payload), payload["tool_name"], payload["arguments"])

    def _on_confirmation(self, payload: Payload, number: int) -> Iterator[bytes]:
        yield from self._on_call(payload, number)
        yield from self.approval(self._call_id(payload), payload)
        self.is_suspended = number > self._after and payload["confirmation_id"] in self.pending()

    def _on_result(self, payload: Payload, _: int) -> Iterator[bytes]:
        call_id = self._call_id(payload)
        if call_id not in self._open_calls:  # a call that was refused before it started
            yield from self._begin_call(call_id, payload["tool_name"], payload.get("arguments", {}))
        error = None if payload["success"] else payload["error_message"] or ""
        is_denied = payload["error_code"] == ToolExecutionDenied.code
        yield from self._end_call(call_id, CallResult(payload["result"] or "", error, is_denied))

    def _on_step_ended(self, _: Payload, __: int) -> Messages:
        self._has_step_ended = True
        return self._end_text()

    def _on_agent_start(self, payload: Payload, _: int) -> Iterator[bytes]:
        self._agent_call = payload["parent_call_id"]
        arguments = {"agent": payload["agent_name"], "instruction": payload["instruction"]}
        yield from self._begin_call(f"{self.run.run_id}-{self._agent_call}", AGENT_TOOL, arguments)
        # The AI SDK sends a decision only if no other call of the step is open.
        self._has_step_ended = True

    def _on_agent_text(self, payload: Payload, number: int) -> Messages:
        return self._text("reasoning", payload["content"], number) if payload["content"] else self._end_text()

    def _on_agent_complete(self, payload: Payload, _: int) -> Iterator[bytes]:
        output = payload["output"]
        call_id = f"{self.run.run_id}-{payload['parent_call_id']}"
        yield from self._end_call(call_id, CallResult(output, None if payload["success"] else output))
        self._has_step_ended = True

    def _on_message_complete(self, payload: Payload, _: int) -> Messages:
        self.completed = payload
        return self._end_text()
