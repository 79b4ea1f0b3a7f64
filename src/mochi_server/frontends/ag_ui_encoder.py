"""Encoding of a run as events of the AG-UI protocol."""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import orjson
from ag_ui import core

from mochi_server.errors import MochiError
from mochi_server.frontends.encoder import CallResult, FrontendEncoder, Kind, Messages, Payload
from mochi_server.openai.response_encoding import usage
from mochi_server.protocols.frontends import FrontendRun

_DECISION_SCHEMA = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "reason": {"type": "string", "description": "Reason for the model."},
        "editedArgs": {"type": "object", "description": "Arguments that replace the arguments of the call."},
        "remember": {"enum": ["once", "session"], "description": "Whether to approve the tool for the session."},
    },
    "required": ["approved"],
}


class AgUiEncoder(FrontendEncoder):
    """Encoder that converts one stream of a run to JSON events of AG-UI.

    A run that waits for decisions of the client has several streams. For AG-UI, each stream is a separate run.
    ``timeout`` is the approval timeout in seconds, or 0 for no limit.
    """

    def __init__(self, started: FrontendRun, request: core.RunAgentInput, timeout: float) -> None:
        super().__init__(started)
        self._ids: dict[str, Any] = {"thread_id": request.thread_id, "run_id": request.run_id}
        self._timeout = timeout
        self._interrupts: list[core.Interrupt] = []
        self._message_id: str | None = None
        """ID of the message with the text of the model's current answer, or None if that answer has no text yet.

        The events of tool calls contain this ID as the parent message.
        """

    def opening(self) -> Messages:
        yield _json(core.RunStartedEvent(**self._ids, protocol_version="1.0"))

    def closing(self) -> Messages:
        yield from self.end_open_parts()
        if self.is_suspended:
            yield self._finished(core.RunFinishedInterruptOutcome(interrupts=self._interrupts[-1:]))
        elif self.run.failure is not None:
            yield from error_messages(self.run.failure)
        elif self.run.result.cancelled:
            yield self._finished(core.RunFinishedCancelledOutcome())
        else:
            pending = self.run.result.handed_back
            for call in pending:
                yield from self.call(call.id, call.name, call.arguments)
            outcome = core.RunFinishedSuccessOutcome(pending_tool_call_ids=[call.id for call in pending] or None)
            yield self._finished(outcome, result=self.completed or None, usage=self._usage())

    def start(self, kind: Kind, part_id: str) -> Messages:
        if kind == "reasoning":
            yield _json(core.ReasoningStartEvent(message_id=part_id))
            yield _json(core.ReasoningMessageStartEvent(message_id=part_id))
        else:
            self._message_id = part_id
            yield _json(core.TextMessageStartEvent(message_id=part_id, role="assistant"))

    def delta(self, kind: Kind, part_id: str, text: str) -> Messages:
        event = core.ReasoningMessageContentEvent if kind == "reasoning" else core.TextMessageContentEvent
        yield _json(event(message_id=part_id, delta=text))

    def end(self, kind: Kind, part_id: str) -> Messages:
        if kind == "reasoning":
            yield _json(core.ReasoningMessageEndEvent(message_id=part_id))
            yield _json(core.ReasoningEndEvent(message_id=part_id))
        else:
            yield _json(core.TextMessageEndEvent(message_id=part_id))

    def call(self, call_id: str, name: str, arguments: Payload) -> Messages:
        parent = self._message_id
        yield _json(core.ToolCallStartEvent(tool_call_id=call_id, tool_call_name=name, parent_message_id=parent))
        yield _json(core.ToolCallArgsEvent(tool_call_id=call_id, delta=orjson.dumps(arguments).decode()))
        yield _json(core.ToolCallEndEvent(tool_call_id=call_id))

    def approval(self, call_id: str, confirmation: Payload) -> Messages:
        expires = datetime.now(timezone.utc) + timedelta(seconds=self._timeout)
        interrupt = core.Interrupt(
            id=confirmation["confirmation_id"],
            reason="tool_call",
            message=f"The tool {confirmation['tool_name']} needs your approval.",
            tool_call_id=call_id,
            response_schema=_DECISION_SCHEMA,
            expires_at=expires.isoformat() if self._timeout else None,
        )
        self._interrupts.append(interrupt)
        return ()

    def result(self, call_id: str, result: CallResult) -> Messages:
        content = result.output if result.error is None else result.error
        yield _json(core.ToolCallResultEvent(message_id=f"{call_id}-result", tool_call_id=call_id, content=content))

    def next_step(self) -> Messages:
        self._message_id = None
        return ()

    def notice(self, name: str, payload: Payload) -> Messages:
        yield _json(core.CustomEvent(name=name, value=payload))

    def _finished(self, outcome: Any, **fields: Any) -> bytes:
        return _json(core.RunFinishedEvent(**self._ids, outcome=outcome, **fields))

    def _usage(self) -> list[core.TokenUsage] | None:
        """Return the token counts of the whole turn, or None if Ollama did not count the tokens."""
        if self.completed.get("prompt_eval_count") is None or self.completed.get("eval_count") is None:
            return None
        sums = usage(self.run.result)
        prompt, completion, total = sums["prompt_tokens"], sums["completion_tokens"], sums["total_tokens"]
        model = self.completed["model"]
        return [core.TokenUsage(model=model, input_tokens=prompt, output_tokens=completion, total_tokens=total)]


def error_messages(error: MochiError) -> Iterator[bytes]:
    """Yield the messages that report ``error`` and end the stream."""
    yield _json(core.RunErrorEvent(message=error.message, code=error.code))


def _json(event: core.BaseEvent) -> bytes:
    return event.model_dump_json(by_alias=True).encode()
