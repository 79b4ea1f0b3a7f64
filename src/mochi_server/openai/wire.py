"""A completion in OpenAI's shapes: as chunks of a stream, or whole."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from mochi_server.chat.eventlog import Batch
from mochi_server.chat.run import Run
from mochi_server.chat.turn import TurnResult
from mochi_server.openai.errors import openai_error
from mochi_server.openai.telling import Kind, Telling, besides, finish_reason, tool_calls, usage

DONE = b"[DONE]"


@dataclass(frozen=True)
class Head:
    """What every chunk of a completion begins with. ``created`` is in seconds since 1970."""

    id: str
    model: str
    created: int

    @classmethod
    def of(cls, run: Run, model: str) -> "Head":
        """``model`` is the name that the client knows."""
        return cls(f"chatcmpl-{run.run_id}", model, int(time.time()))

    def shown(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


@dataclass
class Chunks:
    """A run as chunks, each as JSON. With ``wants_usage`` the last of them tells the tokens."""

    head: Head
    telling: Telling
    wants_usage: bool

    def opening(self) -> Iterator[bytes]:
        """Before anything is said."""
        yield self._chunk({"role": "assistant", "content": ""})

    def of(self, batch: Batch) -> Iterator[bytes]:
        """What a batch of events says."""
        for kind, text in self.telling.pieces(batch):
            yield self._chunk(_delta(kind, text))

    def closing(self, run: Run) -> Iterator[bytes]:
        """When the run has ended."""
        if run.failure is not None:
            yield orjson.dumps(openai_error(run.failure), default=str)
        else:
            for index, call in enumerate(tool_calls(run.result)):
                yield self._chunk({"tool_calls": [{"index": index, **call}]})
            yield self._chunk({}, finish_reason(run.result), mochi=besides(run.result, self.telling))
            if self.wants_usage:
                yield orjson.dumps(self._shown([]) | {"usage": usage(run.result)})
        yield DONE

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        return orjson.dumps(self._shown([{"index": 0, "delta": delta, "finish_reason": finish}]) | more)

    def _shown(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        shown = self.head.shown("chat.completion.chunk") | {"choices": choices}
        return shown | {"usage": None} if self.wants_usage else shown


async def whole(run: Run, head: Head) -> bytes:
    """Wait for a run's end; the completion as JSON. Raises the error that ended the run, if one did."""
    telling = Telling.of(run)
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
    return orjson.dumps(head.shown("chat.completion") | ending)


def _message(turn: TurnResult, content: str, reasoning: str) -> dict[str, Any]:
    calls = tool_calls(turn)
    message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else ""), "refusal": None}
    if reasoning:
        message |= _delta("reasoning", reasoning)
    return message | ({"tool_calls": calls} if calls else {})


def _delta(kind: Kind, text: str) -> dict[str, str]:
    """Clients look for reasoning under either of two names."""
    return {"content": text} if kind == "content" else {"reasoning_content": text, "reasoning": text}
