"""Encoding of a run in the AI SDK's UI message stream."""

from collections.abc import Iterator
from typing import Any, ClassVar

import orjson

from mochi_server import events
from mochi_server.errors import MochiError
from mochi_server.frontends.encoder import CallResult, FrontendEncoder, Kind, Messages, Payload

_DONE = b"[DONE]"
_FINISH_REASONS = {"stop": "stop", "length": "length"}


class AiSdkEncoder(FrontendEncoder):
    """Encoder that converts one stream of a run to JSON chunks of the AI SDK.

    A run that waits for decisions of the client has several streams. For the AI SDK, all streams of a run add to the
    same message.
    """

    headers: ClassVar[dict[str, str]] = {"x-vercel-ai-ui-message-stream": "v1"}

    def opening(self) -> Messages:
        yield _chunk("start", messageId=self.run.run_id)
        if not self._after:
            yield _chunk("start-step")

    def closing(self) -> Messages:
        yield from self.end_open_parts()
        if self.is_suspended:
            yield _chunk("finish-step")
            yield _chunk("finish", finishReason="tool-calls")
        elif self.run.failure is not None:
            yield from error_messages(self.run.failure)
            return
        elif self.run.result.cancelled:
            yield _chunk("abort", reason="The turn was stopped.")
        else:
            yield _chunk("finish-step")
            reason = _FINISH_REASONS.get(self.completed.get("done_reason") or "stop", "other")
            yield _chunk("finish", finishReason=reason, messageMetadata=self.completed)
        yield _DONE

    def start(self, kind: Kind, part_id: str) -> Messages:
        yield _chunk(f"{kind}-start", id=part_id)

    def delta(self, kind: Kind, part_id: str, text: str) -> Messages:
        yield _chunk(f"{kind}-delta", id=part_id, delta=text)

    def end(self, kind: Kind, part_id: str) -> Messages:
        yield _chunk(f"{kind}-end", id=part_id)

    def call(self, call_id: str, name: str, arguments: Payload) -> Messages:
        yield _chunk("tool-input-available", toolCallId=call_id, toolName=name, input=arguments)

    def approval(self, call_id: str, confirmation: Payload) -> Messages:
        yield _chunk("tool-approval-request", toolCallId=call_id, approvalId=confirmation["confirmation_id"])

    def result(self, call_id: str, result: CallResult) -> Messages:
        if result.error is None:
            yield _chunk("tool-output-available", toolCallId=call_id, output=result.output)
        elif result.is_denied:
            yield _chunk("tool-output-denied", toolCallId=call_id)
        else:
            yield _chunk("tool-output-error", toolCallId=call_id, errorText=result.error)

    def next_step(self) -> Messages:
        yield _chunk("finish-step")
        yield _chunk("start-step")

    def notice(self, name: str, payload: Payload) -> Messages:
        is_transient = name == events.Status.type
        yield _chunk(f"data-{name.replace('_', '-')}", data=payload, transient=is_transient)


def error_messages(error: MochiError) -> Iterator[bytes]:
    """Yield the messages that report ``error`` and end the stream."""
    yield _chunk("error", errorText=error.message)
    yield _DONE


def _chunk(kind: str, **fields: Any) -> bytes:
    return orjson.dumps({"type": kind, **fields})
