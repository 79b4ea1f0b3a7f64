"""Encoding of a run as a chat completion or a text completion of OpenAI's API."""

import time
from collections.abc import Sequence
from typing import Any

import orjson

from mochi_server.chat.run import Run
from mochi_server.chat.turn_result import TurnResult
from mochi_server.protocols.encoder import Encoder, data_frame
from mochi_server.protocols.parts import (
    End,
    Json,
    Part,
    Reasoning,
    Text,
    extra_fields,
    is_cut,
    usage,
)
from mochi_server.protocols.schemas import OPENAI_DONE, openai_stream_error


class ChunkEncoder(Encoder):
    """Encoder of a run as a chat completion.

    If ``include_usage`` is true, a last chunk has the token counts.
    """

    _prefix = "chatcmpl"
    _object = "chat.completion"
    _chunk_object = "chat.completion.chunk"
    _delta_head = b'{"index":0,"delta":'

    def __init__(self, run: Run, model: str, *, include_usage: bool) -> None:
        super().__init__(run)
        self._model, self._include_usage = model, include_usage
        self._chunk_head = self._head(self._chunk_object) | (
            {"usage": None} if self._include_usage else {}
        )
        head = orjson.dumps(self._chunk_head).removesuffix(b"}")
        self._choice_head = b'data: %s,"choices":[%s' % (head, self._delta_head)

    def opening(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def text(self, part: Text) -> bytes:
        return self._delta_frame(b'{"content":%s}' % orjson.dumps(part.joined), part)

    def reasoning(self, part: Reasoning) -> bytes:
        text = orjson.dumps(part.joined)
        return self._delta_frame(b'{"reasoning_content":%s,"reasoning":%s}' % (text, text), part)

    def end(self, part: End) -> bytes:
        if part.failure is not None:
            return openai_stream_error(part.failure)
        calls = [
            self._chunk({"tool_calls": [{"index": i, **call}]})
            for i, call in enumerate(_tool_calls(part.result))
        ]
        last = self._chunk({}, _finish_reason(part.result), mochi=extra_fields(part))
        counts = {"choices": [], "usage": usage(part.result)}
        ending = data_frame(orjson.dumps(self._chunk_head | counts)) if self._include_usage else b""
        return b"".join([*calls, last, ending, OPENAI_DONE])

    def complete(self, parts: Sequence[Part]) -> Json:
        (extra,) = (extra_fields(part) for part in parts if isinstance(part, End))
        ending = {
            "choices": [self._choice(parts)],
            "usage": usage(self.run.latest.result),
            "mochi": extra,
        }
        return self._head(self._object) | ending

    def _choice(self, parts: Sequence[Part]) -> Json:
        result, calls = self.run.latest.result, _tool_calls(self.run.latest.result)
        content = _joined(parts, Text) or (None if calls else "")
        message: Json = {"role": "assistant", "content": content, "refusal": None}
        if reasoning := _joined(parts, Reasoning):
            message |= {"reasoning_content": reasoning, "reasoning": reasoning}
        if calls:
            message["tool_calls"] = calls
        tokens = [
            token
            for part in parts
            if isinstance(part, Text | Reasoning | End)
            for token in part.logprobs or ()
        ]
        logprobs = _logprobs(tokens) if tokens else None
        return {
            "index": 0,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": _finish_reason(result),
        }

    def _head(self, name: str) -> Json:
        run_id = f"{self._prefix}-{self.run.run_id}"
        return {"id": run_id, "object": name, "created": int(time.time()), "model": self._model}

    def _delta_frame(self, delta: bytes, part: Text | Reasoning) -> bytes:
        """Return the chunk for a part.

        ``delta`` is JSON. Encoding the whole chunk for each part would take longer.
        """
        if part.logprobs is None:
            return b'%s%s,"finish_reason":null}]}\n\n' % (self._choice_head, delta)
        logprobs = orjson.dumps(_logprobs(part.logprobs))
        return b'%s%s,"finish_reason":null,"logprobs":%s}]}\n\n' % (
            self._choice_head,
            delta,
            logprobs,
        )

    def _chunk(self, delta: Json, finish: str | None = None, **more: Any) -> bytes:
        return data_frame(
            orjson.dumps(self._chunk_head | {"choices": [self._chunk_choice(delta, finish)]} | more)
        )

    def _chunk_choice(self, delta: Json, finish: str | None) -> Json:
        return {"index": 0, "delta": delta, "finish_reason": finish}


class TextChunkEncoder(ChunkEncoder):
    """Encoder of a run as a text completion, which contains no reasoning."""

    _prefix = "cmpl"
    _object = _chunk_object = "text_completion"
    _delta_head = b'{"index":0,"text":'

    def opening(self) -> bytes:
        return b""

    def text(self, part: Text) -> bytes:
        return b'%s%s,"logprobs":null,"finish_reason":null}]}\n\n' % (
            self._choice_head,
            orjson.dumps(part.joined),
        )

    def reasoning(self, _: Reasoning) -> bytes:
        return b""

    def _choice(self, parts: Sequence[Part]) -> Json:
        return self._chunk_choice(
            {"content": _joined(parts, Text)}, _finish_reason(self.run.latest.result)
        )

    def _chunk_choice(self, delta: Json, finish: str | None) -> Json:
        return {
            "index": 0,
            "text": delta.get("content", ""),
            "logprobs": None,
            "finish_reason": finish,
        }


def _joined(parts: Sequence[Part], part_class: type[Text] | type[Reasoning]) -> str:
    return "".join(part.joined for part in parts if isinstance(part, part_class))


def _logprobs(tokens: list[Json]) -> Json:
    """Convert log probabilities to OpenAI's format, which requires ``bytes`` and
    ``top_logprobs``.
    """
    alternatives = [
        [{"bytes": None} | each for each in token.get("top_logprobs") or ()] for token in tokens
    ]
    content = [
        {"bytes": None} | t | {"top_logprobs": top}
        for t, top in zip(tokens, alternatives, strict=True)
    ]
    return {"content": content, "refusal": None}


def _finish_reason(turn: TurnResult) -> str:
    return "tool_calls" if turn.client_tool_calls else "length" if is_cut(turn) else "stop"


def _tool_calls(turn: TurnResult) -> list[Json]:
    calls = [
        (c.id, {"name": c.name, "arguments": orjson.dumps(c.arguments).decode()})
        for c in turn.client_tool_calls
    ]
    return [
        {"id": call_id, "type": "function", "function": function} for call_id, function in calls
    ]
