"""`/v1/messages`: the reply as content blocks, streamed in Anthropic's events or as one message."""

from __future__ import annotations

from typing import Any

from mochi_stub.answer import Answer, Request, Result, Stub
from mochi_stub.chunks import Piece
from mochi_stub.jsontext import event
from mochi_stub.plan import ALPHANUMERIC
from mochi_stub.prompt import ToolCall, prompt_tokens
from mochi_stub.reply import Failure, Reasoning, Reply, Text, joined
from mochi_stub.wire.anthropic.errors import error_body, failure_answer, find_model, json_answer
from mochi_stub.wire.anthropic.shapes import prompt_of
from mochi_stub.wire.asking import Block, Subject, argument_pieces, asked, blocks, completed, played

EVENTS = b"text/event-stream; charset=utf-8"
SIGNATURE_LENGTH = 64


def messages(stub: Stub, request: Request, body: dict[str, Any]) -> Result:
    """POST /v1/messages"""
    model = find_model(stub, body["model"])
    subject = asked(stub, model, prompt_of(body, model), request)
    return played(subject, MessageEvents(subject))


def count_tokens(stub: Stub, request: Request, body: dict[str, Any]) -> Result:
    """POST /v1/messages/count_tokens"""
    model = find_model(stub, body["model"])
    prompt = completed(prompt_of(body, model), model)
    return json_answer({"input_tokens": prompt_tokens(prompt, model.chars_per_token)}, stub.plan(request.body))


def stop_reason(reply: Reply) -> str:
    if reply.finish != "stop":
        return {"length": "max_tokens", "content_filter": "refusal"}[reply.finish]
    if reply.stop_sequence is not None:
        return "stop_sequence"
    return "tool_use" if reply.tool_calls else "end_turn"


class MessageEvents:
    """One reply."""

    content_type = EVENTS

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.plan = subject.plan
        self.started = False
        self.open: type | None = None
        self.index = 0

    def chunk(self, pieces: list[Piece]) -> bytes:
        return (self._start() + "".join([self._piece(piece) for piece in pieces])).encode()

    def end(self) -> bytes:
        reply = self.subject.reply
        ended = {"stop_reason": stop_reason(reply), "stop_sequence": reply.stop_sequence}
        return "".join(
            [
                self._start(),
                self._close(),
                _event("message_delta", delta=ended, usage=self._usage()),
                _event("message_stop"),
            ]
        ).encode()

    def error(self, failure: Failure) -> bytes:
        return event(error_body(failure.status, failure.message, self.plan), "error").encode()

    def refusal(self, failure: Failure, *, stream: bool) -> Answer:
        del stream  # the same either way
        return failure_answer(failure, self.plan)

    def whole(self) -> Answer:
        reply = self.subject.reply
        content = [self._block(block, index) for index, block in enumerate(blocks(reply))]
        ended = {"stop_reason": stop_reason(reply), "stop_sequence": reply.stop_sequence}
        return json_answer({**self._message(), "content": content, **ended, "usage": self._usage()}, self.plan)

    def _message(self) -> dict[str, Any]:
        """The message without what only its end can tell."""
        return {
            "id": f"msg_{self.plan.id(1, 24, ALPHANUMERIC)}",
            "type": "message",
            "role": "assistant",
            "model": self.subject.prompt.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }

    def _usage(self) -> dict[str, Any]:
        usage = self.subject.usage
        return {
            "input_tokens": usage.input,
            "cache_creation_input_tokens": usage.cache_creation,
            "cache_read_input_tokens": usage.cache_read,
            "output_tokens": usage.output,
        }

    def _start(self) -> str:
        if self.started:
            return ""
        self.started = True
        begun = {**self._usage(), "output_tokens": min(1, self.subject.usage.output)}
        return _event("message_start", message={**self._message(), "usage": begun}) + _event("ping")

    def _piece(self, piece: Piece) -> str:
        if piece.kind is ToolCall:
            return self._close() + self._call(piece.value)
        opening = ""
        if self.open is not piece.kind:
            opening = self._close()
            self.open = piece.kind
            empty = Reasoning("") if piece.kind is Reasoning else Text("")
            opening += self._begin({**self._block(empty, self.index), **_UNSIGNED.get(piece.kind, {})})
        kind = "thinking" if piece.kind is Reasoning else "text"
        return opening + self._delta({"type": f"{kind}_delta", kind: piece.value})

    def _call(self, call: ToolCall) -> str:
        begun = self._begin({**self._block(call, self.index), "input": {}})
        pieces = ["", *argument_pieces(call)]
        deltas = [self._delta({"type": "input_json_delta", "partial_json": piece}) for piece in pieces]
        return begun + "".join(deltas) + self._stop()

    def _begin(self, block: dict[str, Any]) -> str:
        return _event("content_block_start", index=self.index, content_block=block)

    def _delta(self, delta: dict[str, Any]) -> str:
        return _event("content_block_delta", index=self.index, delta=delta)

    def _close(self) -> str:
        """End the open block, if any; thinking is signed first."""
        if self.open is None:
            return ""
        signed = {"type": "signature_delta", "signature": self._signature(self.index)}
        ending = self._delta(signed) if self.open is Reasoning else ""
        self.open = None
        return ending + self._stop()

    def _stop(self) -> str:
        stopped = _event("content_block_stop", index=self.index)
        self.index += 1
        return stopped

    def _block(self, block: Block, index: int) -> dict[str, Any]:
        if isinstance(block, ToolCall):
            made_up = f"toolu_{self.plan.id(10 + index, 24, ALPHANUMERIC)}"
            return {"type": "tool_use", "id": block.id or made_up, "name": block.name, "input": block.arguments}
        if isinstance(block, Reasoning):
            return {"type": "thinking", "thinking": joined(block.content), "signature": self._signature(index)}
        return {"type": "text", "text": joined(block.content)}

    def _signature(self, index: int) -> str:
        return self.plan.id(1000 + index, SIGNATURE_LENGTH, ALPHANUMERIC)


_UNSIGNED: dict[type, dict[str, str]] = {Reasoning: {"signature": ""}}


def _event(name: str, **fields: Any) -> str:
    return event({"type": name, **fields}, name)
