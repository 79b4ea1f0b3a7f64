"""Answers and errors in the format of Anthropic's Messages API."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import orjson
from pydantic import BaseModel

from mochi_server.chat.run import Run
from mochi_server.errors import ContextOverflow, MochiError, ShuttingDown
from mochi_server.protocols.encoder import BlockEncoder, named_frame
from mochi_server.protocols.parts import (
    End,
    Json,
    Notice,
    Part,
    Reasoning,
    Text,
    TextEnd,
    extra_fields,
    is_cut,
    usage,
)
from mochi_server.protocols.schemas import http_status
from mochi_server.telemetry.logging import REQUEST_ID
from mochi_server.web.requests import ErrorFormat

_TYPES_BY_STATUS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class AnthropicErrorEnvelope(BaseModel):
    """Response body of every error under `/v1/messages`.

    `error` has a `type` for programs, and a `message`.
    """

    type: Literal["error"]
    error: dict[Literal["type", "message"], str]
    request_id: str


def encode(error: MochiError) -> tuple[int, bytes]:
    """Return the HTTP status and the JSON body of an error."""
    status = http_status(error)
    if status == 503 and not isinstance(
        error, ShuttingDown
    ):  # proxies repeat only a 503 at another server
        status = 529
    fields = {
        "type": _TYPES_BY_STATUS.get(
            status, "api_error" if status >= 500 else "invalid_request_error"
        )
    }
    message = error.message
    if isinstance(
        error, ContextOverflow
    ):  # clients shorten the conversation if they find these words
        message = f"prompt is too long: {message}"
    body = {"type": "error", "error": fields | {"message": message}, "request_id": REQUEST_ID.get()}
    return status, json.dumps(body).encode()


def encode_error(error: MochiError) -> bytes:
    """Return the event that reports ``error`` and ends the stream."""
    return b"event: error\ndata: %s\n\n" % encode(error)[1]


ANTHROPIC_ERRORS = ErrorFormat(AnthropicErrorEnvelope, encode, code_field="type")


class MessageEncoder(BlockEncoder):
    """Encoder of a run as events of the Messages API.

    The text of each answer of the model is a separate block.

    ``model`` is the model name in the request. ``notices`` are added to the notices of the run.
    """

    ping = named_frame("ping", {"type": "ping"})

    def __init__(self, run: Run, model: str, notices: Sequence[Notice] = ()) -> None:
        super().__init__(run)
        self._content: list[Json] = []
        self._message: Json = {
            **{"id": f"msg_{run.run_id}", "type": "message", "role": "assistant", "model": model},
            **{
                "content": self._content,
                "stop_reason": None,
                "stop_sequence": None,
                "usage": _usage(0, 0, None),
            },
        }
        self._notices = notices
        self._block: Json = {}
        """Open block. ``_texts`` has its texts."""
        self._texts: list[str] = []
        self._delta_head = b""

    def opening(self) -> bytes:
        return _event("message_start", message=self._message) + self.ping

    def text(self, part: Text | Reasoning) -> bytes:
        closed = self.close_block() if part.is_separate else b""
        return closed + super().text(part)

    reasoning = text

    def text_end(self, _: TextEnd) -> bytes:
        return self.close_block()

    def start_block(self, first: Text | Reasoning) -> bytes:
        kind, signature = (
            ("text", {}) if isinstance(first, Text) else ("thinking", {"signature": ""})
        )
        self._block, self._texts = {"type": kind, kind: "", **signature}, []
        # The constant bytes of a delta. The text follows them.
        index = len(self._content)
        delta = (
            f'{{"type":"content_block_delta","index":{index},'
            f'"delta":{{"type":"{kind}_delta","{kind}":'
        )
        self._delta_head = f"event: content_block_delta\ndata: {delta}".encode()
        return self._block_event("start", content_block=self._block)

    def delta(self, part: Text | Reasoning) -> bytes:
        self._texts.append(part.text)
        return b"%s%s}}\n\n" % (self._delta_head, orjson.dumps(part.text))

    def end_block(self, first: Text | Reasoning) -> bytes:
        block, signed = self._block, b""
        block[block["type"]] = "".join(self._texts)
        if isinstance(first, Reasoning):  # some clients require a signature
            block["signature"] = self.run.run_id
            signed = self._block_event(
                "delta", delta={"type": "signature_delta", "signature": self.run.run_id}
            )
        return signed + self._end_block(block)

    def end(self, part: End) -> bytes:
        if part.failure is not None:
            return encode_error(part.failure)
        turn, counts = part.result, usage(part.result)
        calls = (self._call(call.id, call.name, call.arguments) for call in turn.client_tool_calls)
        frames = [self.close_block(), *calls]
        reason = (
            "tool_use" if turn.client_tool_calls else "max_tokens" if is_cut(turn) else "end_turn"
        )
        delta = {"stop_reason": reason, "stop_sequence": None}
        ending = {
            "usage": _usage(
                counts["prompt_tokens"],
                counts["completion_tokens"],
                **counts["prompt_tokens_details"],
            ),
            "mochi": extra_fields(replace(part, notices=[*self._notices, *part.notices])),
        }
        self._message |= delta | ending
        return b"".join(
            [*frames, _event("message_delta", delta=delta, **ending), _event("message_stop")]
        )

    def complete(self, parts: Sequence[Part]) -> Json:
        self.encode_parts(parts)  # changes `self._message`
        return self._message

    def _call(self, call_id: str, name: str, arguments: Json) -> bytes:
        block = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        delta = {"type": "input_json_delta", "partial_json": orjson.dumps(arguments).decode()}
        started = self._block_event("start", content_block=block | {"input": {}})
        return started + self._block_event("delta", delta=delta) + self._end_block(block)

    def _end_block(self, block: Json) -> bytes:
        stopped = self._block_event("stop")
        self._content.append(block)
        return stopped

    def _block_event(self, name: str, **fields: Any) -> bytes:
        return _event(f"content_block_{name}", index=len(self._content), **fields)


def _event(name: str, **fields: Any) -> bytes:
    return named_frame(name, {"type": name, **fields})


def _usage(prompt: int, answer: int, cached_tokens: int | None) -> Json:
    """Return token counts.

    As in Anthropic's API, ``input_tokens`` does not contain the cached tokens.
    """
    cached = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": cached_tokens}
    return {"input_tokens": prompt - (cached_tokens or 0), "output_tokens": answer, **cached}
