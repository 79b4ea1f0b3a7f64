"""A completion in OpenAI's shapes: as chunks of a stream, or whole."""

import time
from collections.abc import Iterator
from typing import Any

import orjson

from mochi_server.chat.eventlog import Batch
from mochi_server.chat.run import Run
from mochi_server.chat.turn import TurnResult
from mochi_server.openai.errors import openai_error
from mochi_server.openai.telling import Kind, Telling, besides, finish_reason, tool_calls, usage

DONE = b"[DONE]"


class Chunks:
    """A run as chunks, each as JSON. With ``wants_usage`` the last of them counts the tokens."""

    def __init__(self, run: Run, model: str, *, wants_usage: bool) -> None:
        self._head = _head(run, model, "chat.completion.chunk") | ({"usage": None} if wants_usage else {})
        self._telling = Telling.of(run)
        self._wants_usage = wants_usage

    def opening(self) -> Iterator[bytes]:
        """Before anything is said."""
        yield self._chunk({"role": "assistant", "content": ""})

    def of(self, batch: Batch) -> Iterator[bytes]:
        """What a batch of events says."""
        for kind, text in self._telling.pieces(batch):
            yield self._chunk(_delta(kind, text))

    def closing(self, run: Run) -> Iterator[bytes]:
        """When the run has ended."""
        if run.failure is not None:
            yield orjson.dumps(openai_error(run.failure), default=str)
        else:
            for index, call in enumerate(tool_calls(run.result)):
                yield self._chunk({"tool_calls": [{"index": index, **call}]})
            yield self._chunk({}, finish_reason(run.result), mochi=besides(run.result, self._telling))
            if self._wants_usage:
                yield orjson.dumps(self._head | {"choices": [], "usage": usage(run.result)})
        yield DONE

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return orjson.dumps(self._head | {"choices": choices} | more)


async def whole(run: Run, model: str) -> bytes:
    """Wait for a run's end; the completion as JSON. Raises the error that ended the run, if one did."""
    head, telling = _head(run, model, "chat.completion"), Telling.of(run)
    said: dict[Kind, list[str]] = {"content": [], "reasoning": []}
    async for batch in run.listen():
        for kind, text in telling.pieces(batch) if batch is not None else ():
            said[kind].append(text)
    if run.failure is not None:
        raise run.failure
    choice = {
        "index": 0,
        "message": _message(run.result, "".join(said["content"]), "".join(said["reasoning"])),
        "logprobs": None,
        "finish_reason": finish_reason(run.result),
    }
    ending = {"choices": [choice], "usage": usage(run.result), "mochi": besides(run.result, telling)}
    return orjson.dumps(head | ending)


def _head(run: Run, model: str, kind: str) -> dict[str, Any]:
    """Return the fields that every response begins with. ``model`` is the name that the client knows."""
    return {"id": f"chatcmpl-{run.run_id}", "object": kind, "created": int(time.time()), "model": model}


def _message(turn: TurnResult, content: str, reasoning: str) -> dict[str, Any]:
    calls = tool_calls(turn)
    message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else ""), "refusal": None}
    if reasoning:
        message |= _delta("reasoning", reasoning)
    return message | ({"tool_calls": calls} if calls else {})


def _delta(kind: Kind, text: str) -> dict[str, str]:
    """Clients look for reasoning under either of two names."""
    return {"content": text} if kind == "content" else {"reasoning_content": text, "reasoning": text}
