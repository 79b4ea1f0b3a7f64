"""`/v1/responses`: the request answered, and the reply as the API's events or as one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mochi_stub.answer import Answer, Request, Result, Stub
from mochi_stub.chunks import Piece
from mochi_stub.prompt import ToolCall
from mochi_stub.reply import Failure
from mochi_stub.wire.asking import Subject, asked, blocks, played
from mochi_stub.wire.openai.chat import EVENTS
from mochi_stub.wire.openai.errors import Refused, failure_answer, find_model, json_answer
from mochi_stub.wire.openai.items import prompt_of
from mochi_stub.wire.openai.output import Output
from mochi_stub.wire.openai.shapes import check_chat, check_tools
from mochi_stub.wire.openai.usage import response_usage

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def responses(stub: Stub, request: Request, body: dict[str, Any]) -> Result:
    """POST /v1/responses"""
    model = find_model(stub, body["model"])
    check_chat(model, "v1/responses")
    check_tools(model, body.get("tools"))
    earlier = body.get("previous_response_id")
    if earlier is not None:
        message = f"Previous response with id '{earlier}' not found."
        raise Refused(400, message, param="previous_response_id", code="previous_response_not_found")
    subject = asked(stub, model, prompt_of(body, model), request)
    return played(subject, ResponseEvents(subject, body))


class ResponseEvents:
    """One reply."""

    content_type = EVENTS

    def __init__(self, subject: Subject, body: Mapping[str, Any]) -> None:
        self.subject = subject
        self.body = body
        self.output = Output(subject.plan)
        self.created = subject.plan.start // 10**9
        self.started = False

    def chunk(self, pieces: list[Piece]) -> bytes:
        return (self._start() + "".join([self.output.add(piece) for piece in pieces])).encode()

    def end(self) -> bytes:
        status = self._status()
        last = self._start() + self.output.close(status)
        return (last + self._event(status, self._response(status))).encode()

    def error(self, failure: Failure) -> bytes:
        code = "rate_limit_exceeded" if failure.status == 429 else "server_error"
        response = {**self._response("failed"), "error": {"code": code, "message": failure.message}, "usage": None}
        return (self._start() + self._event("failed", response)).encode()

    def refusal(self, failure: Failure, *, stream: bool) -> Answer:
        del stream  # the same either way
        return failure_answer(failure)

    def whole(self) -> Answer:
        for block in blocks(self.subject.reply):
            self.output.add(Piece(type(block), block if isinstance(block, ToolCall) else block.content, 0))
        status = self._status()
        self.output.close(status)
        return json_answer(self._response(status))

    def _start(self) -> str:
        if self.started:
            return ""
        self.started = True
        begun = self._response("in_progress")
        return self._event("created", begun) + self._event("in_progress", begun)

    def _event(self, name: str, response: Mapping[str, Any]) -> str:
        return self.output.event(f"response.{name}", response=response)

    def _status(self) -> str:
        return "incomplete" if self.subject.reply.finish in _INCOMPLETE else "completed"

    def _response(self, status: str) -> dict[str, Any]:
        """The response object as far as it has come."""
        reply, body = self.subject.reply, self.body
        reason = _INCOMPLETE.get(reply.finish) if status == "incomplete" else None
        return {
            "id": f"resp_{self.subject.plan.id(0, 48)}",
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "max_tool_calls": None,
            "metadata": body.get("metadata", {}),
            "model": self.subject.prompt.model,
            "output": list(self.output.items),
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None, **body.get("reasoning", {})},
            "service_tier": "default",
            "store": body.get("store", True),
            "temperature": body.get("temperature", 1.0),
            "text": {"format": {"type": "text"}, **body.get("text", {})},
            "tool_choice": body.get("tool_choice", "auto"),
            "tools": body.get("tools", []),
            "top_logprobs": 0,
            "top_p": body.get("top_p", 1.0),
            "truncation": body.get("truncation", "disabled"),
            "usage": None if status == "in_progress" else response_usage(self.subject.usage),
            "user": None,
        }
