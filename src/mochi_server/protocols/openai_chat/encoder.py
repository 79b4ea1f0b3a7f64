"""Encoding of a run as a chat completion or a text completion of OpenAI's API."""

from collections.abc import Sequence
from typing import Any

import orjson

from mochi_server.chat.run import Run
from mochi_server.chat.turn_result import TurnResult
from mochi_server.protocols.answer_fields import extra_fields, is_cut, usage
from mochi_server.protocols.encoder import Encoder, data_frame
from mochi_server.protocols.openai_errors import OPENAI_DONE, openai_stream_error
from mochi_server.protocols.parts import End, Json, Notice, Part, Reasoning, Text


class ChunkEncoder(Encoder):
    """Encoder of a run as a chat completion.

    If ``include_usage`` is true, a last chunk has the token counts. ``notices`` are added to the
    notices of the run.
    """

    _prefix = "chatcmpl"
    _object = "chat.completion"
    _chunk_object = "chat.completion.chunk"
    _delta_head = b'{"index":0,"delta":'

    def __init__(
        self, run: Run, model: str, notices: Sequence[Notice] = (), *, include_usage: bool
    ) -> None:
        super().__init__(run)
        self._model = model
        self._notices = notices
        self._include_usage = include_usage
        self._chunk_head = self._head(self._chunk_object)
        if include_usage:
            self._chunk_head["usage"] = None
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
        frames = []
        if part.logprobs:
            frames.append(self._delta_frame(b"{}", part))
        for index, call in enumerate(_tool_calls(part.result)):
            frames.append(self._chunk({"tool_calls": [{"index": index, **call}]}))
        frames.append(
            self._chunk({}, _finish_reason(part.result), mochi=extra_fields(part, self._notices))
        )
        if self._include_usage:
            counts = {"choices": [], "usage": usage(part.result)}
            frames.append(data_frame(orjson.dumps(self._chunk_head | counts)))
        return b"".join([*frames, OPENAI_DONE])

    def complete(self, parts: Sequence[Part]) -> Json:
        (end,) = (part for part in parts if isinstance(part, End))
        return self._head(self._object) | {
            "choices": [self._choice(parts)],
            "usage": usage(self.run.latest.result),
            "mochi": extra_fields(end, self._notices),
        }

    def _choice(self, parts: Sequence[Part]) -> Json:
        result = self.run.latest.result
        calls = _tool_calls(result)
        content = _joined(parts, Text)
        message: Json = {"role": "assistant", "content": content, "refusal": None}
        if calls and not content:
            message["content"] = None
        reasoning = _joined(parts, Reasoning)
        if reasoning:
            message |= {"reasoning_content": reasoning, "reasoning": reasoning}
        if calls:
            message["tool_calls"] = calls
        tokens: list[Json] = []
        for part in parts:
            if isinstance(part, Text | Reasoning | End):
                tokens += part.logprobs or ()
        return {
            "index": 0,
            "message": message,
            "logprobs": _logprobs(tokens) if tokens else None,
            "finish_reason": _finish_reason(result),
        }

    def _head(self, name: str) -> Json:
        return {
            "id": f"{self._prefix}-{self.run.run_id}",
            "object": name,
            "created": self.run.created,
            "model": self._model,
        }

    def _delta_frame(self, delta: bytes, part: Text | Reasoning | End) -> bytes:
        """Return the chunk for a part.

        ``delta`` is JSON. Encoding the whole chunk for each part would take longer.
        """
        if part.logprobs is None:
            return b'%s%s,"finish_reason":null}]}\n\n' % (self._choice_head, delta)
        logprobs = orjson.dumps(_logprobs(part.logprobs))
        ending = b'"finish_reason":null,"logprobs":%s}]}\n\n' % logprobs
        return b"%s%s,%s" % (self._choice_head, delta, ending)

    def _chunk(self, delta: Json, finish: str | None = None, **more: Any) -> bytes:
        choice = self._chunk_choice(delta, finish)
        chunk = self._chunk_head | {"choices": [choice]} | more
        return data_frame(orjson.dumps(chunk))

    def _chunk_choice(self, delta: Json, finish: str | None) -> Json:
        return {"index": 0, "delta": delta, "finish_reason": finish}


class TextChunkEncoder(ChunkEncoder):
    """Encoder of a run as a text completion, which contains no reasoning."""

    _prefix = "cmpl"
    _object = "text_completion"
    _chunk_object = "text_completion"
    _delta_head = b'{"index":0,"text":'

    def opening(self) -> bytes:
        return b""

    def text(self, part: Text) -> bytes:
        text = orjson.dumps(part.joined)
        return b'%s%s,"logprobs":null,"finish_reason":null}]}\n\n' % (self._choice_head, text)

    def reasoning(self, _: Reasoning) -> bytes:
        return b""

    def _choice(self, parts: Sequence[Part]) -> Json:
        finish = _finish_reason(self.run.latest.result)
        return self._chunk_choice({"content": _joined(parts, Text)}, finish)

    def _chunk_choice(self, delta: Json, finish: str | None) -> Json:
        text = delta.get("content", "")
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}


def _joined(parts: Sequence[Part], part_class: type[Text] | type[Reasoning]) -> str:
    return "".join(part.joined for part in parts if isinstance(part, part_class))


def _logprobs(tokens: list[Json]) -> Json:
    """Convert log probabilities to OpenAI's format, which requires ``bytes`` and
    ``top_logprobs``.
    """
    content = []
    for token in tokens:
        alternatives = [{"bytes": None} | each for each in token.get("top_logprobs") or ()]
        content.append({"bytes": None} | token | {"top_logprobs": alternatives})
    return {"content": content, "refusal": None}


def _finish_reason(turn: TurnResult) -> str:
    if turn.client_tool_calls:
        return "tool_calls"
    return "length" if is_cut(turn) else "stop"


def _tool_calls(turn: TurnResult) -> list[Json]:
    calls = []
    for call in turn.client_tool_calls:
        function = {"name": call.name, "arguments": call.arguments_text}
        calls.append({"id": call.id, "type": "function", "function": function})
    return calls
