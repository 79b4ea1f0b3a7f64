"""Encoding of a run in the AI SDK's UI message stream."""

from typing import Any, ClassVar

import orjson

from mochi_server.errors import MochiError
from mochi_server.protocols.encoder import data_frame
from mochi_server.protocols.frontend_stream import InteractiveEncoder
from mochi_server.protocols.parts import Approval, Call, End, Notice, Reasoning, Result, Step, Text

_DONE = data_frame(b"[DONE]")


class AiSdkEncoder(InteractiveEncoder):
    """Encoder that converts one stream of a run to JSON chunks of the AI SDK.

    A run that waits for decisions of the client has several streams. For the AI SDK, all streams of
    a run add to the same message.
    """

    headers: ClassVar[dict[str, str]] = {"x-vercel-ai-ui-message-stream": "v1"}

    def opening(self) -> bytes:
        start = _chunk("start", messageId=self.run.origin)
        return start if self._after else start + _chunk("start-step")

    def suspension(self) -> bytes:
        return _chunk("finish-step") + _chunk("finish", finishReason="tool-calls") + _DONE

    def start_block(self, first: Text | Reasoning) -> bytes:
        name = _block_name(first)
        return _chunk(f"{name}-start", id=self.assign_block_id(f"{name}-delta", "id"))

    def end_block(self, first: Text | Reasoning) -> bytes:
        return _chunk(f"{_block_name(first)}-end", id=self._block_id)

    def call(self, part: Call) -> bytes:
        chunk = _chunk(
            "tool-input-available", toolCallId=part.id, toolName=part.name, input=part.arguments
        )
        return self.close_block() + chunk

    def approval(self, part: Approval) -> bytes:
        chunk = _chunk(
            "tool-approval-request", toolCallId=part.call_id, approvalId=part.confirmation_id
        )
        super().approval(part)  # suspends the stream
        return chunk

    def result(self, part: Result) -> bytes:
        return self.close_block() + _result(part)

    def step(self, _: Step) -> bytes:
        return _chunk("finish-step") + _chunk("start-step")

    def notice(self, part: Notice) -> bytes:
        name = part.name.replace("_", "-")
        return _chunk(f"data-{name}", data=part.payload, transient=part.is_transient)

    def end(self, part: End) -> bytes:
        closed = self.close_block()
        if part.failure is not None:
            return closed + encode_error(part.failure)
        if part.result.cancelled:
            return closed + _chunk("abort", reason="The turn was stopped.") + _DONE
        reason = (part.completed and part.completed.done_reason) or "stop"
        if reason not in ("stop", "length"):
            reason = "other"
        finish = _chunk("finish", finishReason=reason, messageMetadata=part.completed or {})
        return closed + _chunk("finish-step") + finish + _DONE


def encode_error(error: MochiError) -> bytes:
    """Return the bytes that report ``error`` and end the stream."""
    return _chunk("error", errorText=error.message) + _DONE


def _block_name(first: Text | Reasoning) -> str:
    return "text" if isinstance(first, Text) else "reasoning"


def _result(part: Result) -> bytes:
    if part.error is None:
        return _chunk("tool-output-available", toolCallId=part.call_id, output=part.output)
    if part.is_denied:
        return _chunk("tool-output-denied", toolCallId=part.call_id)
    return _chunk("tool-output-error", toolCallId=part.call_id, errorText=part.error)


def _chunk(name: str, **fields: Any) -> bytes:
    return data_frame(orjson.dumps({"type": name, **fields}))
