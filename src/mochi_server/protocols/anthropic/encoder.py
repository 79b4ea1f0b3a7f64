"""Encoding of a run as events or as a message of Anthropic's Messages API."""

from collections.abc import Sequence
from typing import Any

import orjson

from mochi_server.chat.run import Run
from mochi_server.chat.turn_result import TurnResult
from mochi_server.protocols.answer_fields import extra_fields, is_cut, usage
from mochi_server.protocols.anthropic.errors import encode_error
from mochi_server.protocols.encoder import AnswerBlockEncoder, named_frame
from mochi_server.protocols.parts import End, Json, Notice, Part, Reasoning, Text
from mochi_server.tools.toolbox import ToolInvocation


class MessageEncoder(AnswerBlockEncoder):
    """Encoder of a run as events of the Messages API.

    ``model`` is the model name in the request. ``notices`` are added to the notices of the run.
    """

    ping = named_frame("ping", {"type": "ping"})

    def __init__(self, run: Run, model: str, notices: Sequence[Notice] = ()) -> None:
        super().__init__(run)
        self._content: list[Json] = []
        self._message: Json = {
            "id": f"msg_{run.run_id}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": self._content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(prompt=0, answer=0, cached=None),
        }
        self._notices = notices
        self._block: Json = {}
        """Open block. At its end, it receives ``_texts`` as its text."""
        self._texts: list[str] = []
        self._delta_head = b""

    def opening(self) -> bytes:
        return _event("message_start", message=self._message) + self.ping

    def start_block(self, first: Text | Reasoning) -> bytes:
        kind = "text" if isinstance(first, Text) else "thinking"
        self._block = {"type": kind, kind: ""}
        if isinstance(first, Reasoning):
            self._block["signature"] = ""
        self._texts = []
        # The constant bytes of a delta. The text follows them.
        self._delta_head = (
            f"event: content_block_delta\n"
            f'data: {{"type":"content_block_delta","index":{len(self._content)},'
            f'"delta":{{"type":"{kind}_delta","{kind}":'
        ).encode()
        return self._block_event("start", content_block=self._block)

    def delta(self, part: Text | Reasoning) -> bytes:
        self._texts.append(part.text)
        return b"%s%s}}\n\n" % (self._delta_head, orjson.dumps(part.text))

    def end_block(self, first: Text | Reasoning) -> bytes:
        block = self._block
        text_field = block["type"]
        block[text_field] = "".join(self._texts)
        if isinstance(first, Text):
            return self._end_block(block)
        block["signature"] = self.run.run_id  # some clients require a signature
        delta = {"type": "signature_delta", "signature": self.run.run_id}
        return self._block_event("delta", delta=delta) + self._end_block(block)

    def end(self, part: End) -> bytes:
        if part.failure is not None:
            return encode_error(part.failure)
        frames = [self.close_block()]
        frames += [self._call(call) for call in part.result.client_tool_calls]
        counts = usage(part.result)
        delta = {"stop_reason": _stop_reason(part.result), "stop_sequence": None}
        ending = {
            "usage": _usage(
                prompt=counts["prompt_tokens"],
                answer=counts["completion_tokens"],
                cached=counts["prompt_tokens_details"]["cached_tokens"],
            ),
            "mochi": extra_fields(part, self._notices),
        }
        self._message |= delta | ending
        frames.append(_event("message_delta", delta=delta, **ending))
        frames.append(_event("message_stop"))
        return b"".join(frames)

    def complete(self, parts: Sequence[Part]) -> Json:
        self.encode_parts(parts)  # changes `self._message`
        return self._message

    def _call(self, call: ToolInvocation) -> bytes:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        arguments = orjson.dumps(call.arguments).decode()
        started = self._block_event("start", content_block=block | {"input": {}})
        delta = self._block_event(
            "delta", delta={"type": "input_json_delta", "partial_json": arguments}
        )
        return started + delta + self._end_block(block)

    def _end_block(self, block: Json) -> bytes:
        stopped = self._block_event("stop")
        self._content.append(block)
        return stopped

    def _block_event(self, name: str, **fields: Any) -> bytes:
        return _event(f"content_block_{name}", index=len(self._content), **fields)


def _event(name: str, **fields: Any) -> bytes:
    return named_frame(name, {"type": name, **fields})


def _stop_reason(turn: TurnResult) -> str:
    if turn.client_tool_calls:
        return "tool_use"
    return "max_tokens" if is_cut(turn) else "end_turn"


def _usage(*, prompt: int, answer: int, cached: int | None) -> Json:
    """Return token counts.

    As in Anthropic's API, ``input_tokens`` does not contain the cached tokens.
    """
    return {
        "input_tokens": prompt - (cached or 0),
        "output_tokens": answer,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
    }
