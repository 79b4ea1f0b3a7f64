"""Encoding of a run as events of the AG-UI protocol."""

from dataclasses import asdict
from datetime import datetime, timedelta, timezone
from typing import Any

import orjson
from ag_ui import core

from mochi_server.errors import MochiError
from mochi_server.protocols.answer_fields import usage
from mochi_server.protocols.encoder import data_frame
from mochi_server.protocols.frontend_stream import InteractiveEncoder
from mochi_server.protocols.frontends import FrontendRun
from mochi_server.protocols.parts import (
    Approval,
    Call,
    End,
    Notice,
    Reasoning,
    Result,
    Step,
    Text,
)

_DECISION_SCHEMA = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "reason": {"type": "string", "description": "Reason for the model."},
        "editedArgs": {
            "type": "object",
            "description": "Arguments that replace the arguments of the call.",
        },
        "remember": {
            "enum": ["once", "session"],
            "description": "Whether to approve the tool for the session.",
        },
    },
    "required": ["approved"],
}


class AgUiEncoder(InteractiveEncoder):
    """Encoder that converts one stream of a run to JSON events of AG-UI.

    A run that waits for decisions of the client has several streams. For AG-UI, each stream is a
    separate run. ``timeout`` is the approval timeout in seconds, or 0 for no limit.
    """

    def __init__(self, started: FrontendRun, request: core.RunAgentInput, timeout: float) -> None:
        super().__init__(started)
        self._ids: dict[str, Any] = {"thread_id": request.thread_id, "run_id": request.run_id}
        self._timeout = timeout
        self._waiting = started.waiting
        self._interrupts: list[core.Interrupt] = []
        """Request for the latest approval, if any."""
        self._message_id: str | None = None
        """ID of the message with the text of the current answer, if any.

        It is the parent message of tool calls.
        """

    def opening(self) -> bytes:
        return _frame(core.RunStartedEvent(**self._ids, protocol_version="1.0"))

    def suspension(self) -> bytes:
        return self._finished(core.RunFinishedInterruptOutcome(interrupts=self._interrupts))

    def start_block(self, first: Text | Reasoning) -> bytes:
        if isinstance(first, Text):
            block_id = self.assign_block_id("TEXT_MESSAGE_CONTENT", "messageId")
            self._message_id = block_id
            return _frame(core.TextMessageStartEvent(message_id=block_id, role="assistant"))
        block_id = self.assign_block_id("REASONING_MESSAGE_CONTENT", "messageId")
        reasoning_start = core.ReasoningStartEvent(message_id=block_id)
        message_start = core.ReasoningMessageStartEvent(message_id=block_id)
        return _frame(reasoning_start) + _frame(message_start)

    def end_block(self, first: Text | Reasoning) -> bytes:
        if isinstance(first, Text):
            return _frame(core.TextMessageEndEvent(message_id=self._block_id))
        message_end = core.ReasoningMessageEndEvent(message_id=self._block_id)
        reasoning_end = core.ReasoningEndEvent(message_id=self._block_id)
        return _frame(message_end) + _frame(reasoning_end)

    def call(self, part: Call) -> bytes:
        return self.close_block() + self._call(
            part.id, part.name, orjson.dumps(part.arguments).decode()
        )

    def approval(self, part: Approval) -> bytes:
        expires_at = self._expires_at(part)
        interrupt = core.Interrupt(
            id=part.confirmation_id,
            reason="tool_call",
            message=f"The tool {part.tool_name} needs your approval.",
            tool_call_id=part.call_id,
            response_schema=_DECISION_SCHEMA,
            expires_at=None if expires_at is None else expires_at.isoformat(),
        )
        self._interrupts = [interrupt]
        return super().approval(part)

    def result(self, part: Result) -> bytes:
        content = part.output if part.error is None else part.error
        message_id = f"{part.call_id}-result"
        event = core.ToolCallResultEvent(
            message_id=message_id, tool_call_id=part.call_id, content=content
        )
        return self.close_block() + _frame(event)

    def step(self, _: Step) -> bytes:
        self._message_id = None
        return b""

    def notice(self, part: Notice) -> bytes:
        return _frame(core.CustomEvent(name=part.name, value=part.payload))

    def end(self, part: End) -> bytes:
        if part.failure is not None:
            return self.close_block() + encode_error(part.failure)
        if part.result.cancelled:
            return self.close_block() + self._finished(core.RunFinishedCancelledOutcome())
        pending = part.result.client_tool_calls
        calls = [self._call(call.id, call.name, call.arguments_text) for call in pending]
        outcome = core.RunFinishedSuccessOutcome(
            pending_tool_call_ids=[call.id for call in pending] or None
        )
        result = None if part.completed is None else asdict(part.completed)
        finished = self._finished(outcome, result=result, usage=_usage(part))
        return b"".join([self.close_block(), *calls, finished])

    def _expires_at(self, part: Approval) -> datetime | None:
        """Return the time at which a request for approval expires, or None for no limit."""
        waiting = self._waiting
        if waiting is not None and waiting.confirmation_id == part.confirmation_id:
            if waiting.expires_at is None:
                return None
            return datetime.fromtimestamp(waiting.expires_at, timezone.utc)
        if not self._timeout:
            return None
        return datetime.now(timezone.utc) + timedelta(seconds=self._timeout)  # the request is new

    def _call(self, call_id: str, name: str, delta: str) -> bytes:
        parent = self._message_id
        start = core.ToolCallStartEvent(
            tool_call_id=call_id, tool_call_name=name, parent_message_id=parent
        )
        content = core.ToolCallArgsEvent(tool_call_id=call_id, delta=delta)
        return _frame(start) + _frame(content) + _frame(core.ToolCallEndEvent(tool_call_id=call_id))

    def _finished(self, outcome: Any, **fields: Any) -> bytes:
        return _frame(core.RunFinishedEvent(**self._ids, outcome=outcome, **fields))


def encode_error(error: MochiError) -> bytes:
    """Return the bytes that report ``error`` and end the stream."""
    return _frame(core.RunErrorEvent(message=error.message, code=error.code))


def _usage(part: End) -> list[core.TokenUsage] | None:
    completed = part.completed
    if completed is None or completed.prompt_eval_count is None or completed.eval_count is None:
        return None  # Ollama did not count the tokens
    counts = usage(part.result)
    tokens = core.TokenUsage(
        model=completed.model,
        input_tokens=counts["prompt_tokens"],
        output_tokens=counts["completion_tokens"],
        total_tokens=counts["total_tokens"],
        cached_input_tokens=counts["prompt_tokens_details"]["cached_tokens"],
    )
    return [tokens]


def _frame(event: core.BaseEvent) -> bytes:
    return data_frame(event.model_dump_json(by_alias=True).encode())
