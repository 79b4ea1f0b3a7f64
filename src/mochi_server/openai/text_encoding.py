"""Encoding of a run as a text completion of OpenAI's API. Text completions contain no reasoning."""

from collections.abc import Iterator
from typing import Any

import orjson

from mochi_server.chat.event_log import Batch
from mochi_server.chat.run import Run
from mochi_server.openai.response_encoding import (
    ChunkEncoder,
    DeltaReader,
    collect_text,
    extra_fields,
    finish_reason,
    response_head,
    usage,
)

_OBJECT = "text_completion"


class TextChunkEncoder(ChunkEncoder):
    """Encoder of a run as chunks of a text completion."""

    def __init__(self, run: Run, model: str, *, include_usage: bool) -> None:
        super().__init__(run, model, include_usage=include_usage)
        self._head |= response_head(run, model, _OBJECT, prefix="cmpl")

    def opening(self) -> Iterator[bytes]:
        return iter(())

    def encode(self, batch: Batch) -> Iterator[bytes]:
        for kind, text in self._reader.pieces(batch):
            if kind == "content":
                yield self._chunk({"content": text})

    def _chunk(
        self,
        delta: dict[str, Any],
        finish: str | None = None,
        logprobs: dict[str, Any] | None = None,  # noqa: ARG002 - requests cannot set `logprobs`
        **more: Any,
    ) -> bytes:
        return orjson.dumps(self._head | {"choices": [_choice(delta.get("content", ""), finish)]} | more)


async def encode_text_completion(run: Run, model: str) -> bytes:
    """Wait until a run has ended, and return the completion as JSON. If the run failed, raise its error."""
    reader = DeltaReader(agent_answers=run.request.responder is not None)
    text = await collect_text(run, reader)
    choice = _choice(text["content"], finish_reason(run.result))
    ending = {"choices": [choice], "usage": usage(run.result), "mochi": extra_fields(run.result, reader)}
    return orjson.dumps(response_head(run, model, _OBJECT, prefix="cmpl") | ending)


def _choice(text: str, finish: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
