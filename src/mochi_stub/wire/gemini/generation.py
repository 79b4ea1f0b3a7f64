"""`generateContent` and `streamGenerateContent`: the reply as candidates, one by one or as one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mochi_stub.answer import Answer, Request, Result, Stub
from mochi_stub.catalogue import Model
from mochi_stub.chunks import Piece
from mochi_stub.jsontext import dumps, one_line
from mochi_stub.plan import ALPHANUMERIC
from mochi_stub.prompt import ToolCall
from mochi_stub.reply import Failure, Reasoning, joined
from mochi_stub.wire.fields import read
from mochi_stub.wire.gemini.errors import JSON, error_body, failure_answer, json_answer
from mochi_stub.wire.gemini.request_schema import GENERATE, prompt_of
from mochi_stub.wire.provider_pipeline import Block, GenerationContext, blocks, generated, played

EVENTS = b"text/event-stream"
_FINISH = {"stop": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}


def generate(stub: Stub, request: Request, model: Model, name: str, *, stream: bool) -> Result:
    """POST models/{model}:generateContent and :streamGenerateContent"""
    body = read(request.body, GENERATE)
    context = generated(stub, model, prompt_of(body, name, model, stream=stream), request)
    events = request.query.get("alt") == "sse"
    if stream and not events:  # recordings contain events
        context = replace(context, reply=replace(context.reply, frames=None))
    thoughts = body.get("generationConfig", {}).get("thinkingConfig", {}).get("includeThoughts", False)
    return played(context, Candidates(context, thoughts, events))


class Candidates:
    """Encoder of a reply. `thoughts`: include the reasoning. `events`: stream events instead of a JSON array."""

    def __init__(self, context: GenerationContext, thoughts: bool, events: bool) -> None:
        self.context = context
        self.thoughts = thoughts
        self.events = events
        self.content_type = EVENTS if events else JSON
        self.calls = 0
        self.has_sent = False
        self.facts = {"modelVersion": context.prompt.model, "responseId": context.plan.id(0, 22, ALPHANUMERIC)}

    def chunk(self, pieces: list[Piece]) -> bytes:
        shown = [piece for piece in pieces if self.thoughts or piece.kind is not Reasoning]
        responses = [self._response([self._part(piece.kind, piece.value)]) for piece in shown]
        return "".join([self._framed(response) for response in responses]).encode()

    def end(self) -> bytes:
        last = self._framed(self._response([{"text": ""}], ended=True))
        return f"{last}{'' if self.events else ']'}".encode()

    def error(self, failure: Failure) -> bytes:
        return f"{self._framed(error_body(failure))}{'' if self.events else ']'}".encode()

    def refusal(self, failure: Failure, *, stream: bool) -> Answer:
        return failure_answer(failure, listed=stream and not self.events)

    def whole(self) -> Answer:
        shown = [block for block in blocks(self.context.reply) if self.thoughts or not isinstance(block, Reasoning)]
        parts = [self._block(block) for block in shown] or [{"text": ""}]
        return json_answer(self._response(parts, ended=True))

    def _framed(self, response: dict[str, Any]) -> str:
        if self.events:
            return f"data: {one_line(response)}\r\n\r\n"
        before = ",\r\n" if self.has_sent else "["
        self.has_sent = True
        return f"{before}{dumps(response)}"

    def _response(self, parts: list[dict[str, Any]], *, ended: bool = False) -> dict[str, Any]:
        reason = {"finishReason": _FINISH[self.context.reply.finish]} if ended else {}
        candidate = {"content": {"parts": parts, "role": "model"}, **reason, "index": 0}
        usage = {"usageMetadata": self._usage()} if ended else {}
        return {"candidates": [candidate], **usage, **self.facts}

    def _usage(self) -> dict[str, int]:
        """Return the token counts. The reasoning counts as output."""
        counts = self.context.usage
        return {
            "promptTokenCount": counts.input,
            "candidatesTokenCount": counts.output,
            "totalTokenCount": counts.input + counts.output,
        }

    def _block(self, block: Block) -> dict[str, Any]:
        if isinstance(block, ToolCall):
            return self._part(ToolCall, block)
        return self._part(type(block), joined(block.content))

    def _part(self, kind: type, value: Any) -> dict[str, Any]:
        if kind is ToolCall:
            self.calls += 1
            made_up = self.context.plan.id(self.calls, 8)
            return {"functionCall": {"id": value.id or made_up, "name": value.name, "args": value.arguments}}
        return {"text": value, "thought": True} if kind is Reasoning else {"text": value}
