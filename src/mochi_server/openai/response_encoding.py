"""A run as a client of OpenAI's API receives it: as the chunks of a stream, or as a whole completion."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from mochi_server import events
from mochi_server.chat.event_log import Batch
from mochi_server.chat.run import Run
from mochi_server.chat.turn import TurnResult
from mochi_server.openai.errors import openai_error
from mochi_server.sessions.session import last_answer

DONE = b"[DONE]"

Kind = Literal["content", "reasoning"]
Piece = tuple[Kind, str]

_DELTA_KINDS: dict[str, Kind] = {events.ContentDelta.type: "content", events.ThinkingDelta.type: "reasoning"}
_NEXT_ROUNDS = {events.ToolContinuationStart.type, events.AgentStart.type, events.AgentToolResult.type}
_SNAPSHOT_FIELDS: dict[Kind, str] = {"reasoning": "thinking", "content": "content"}
_NOTICES = {events.TurnWarning.type: "warning", events.ContextCompacted.type: "context_compacted"}
_NO_SPEAKER = ""


@dataclass
class DeltaReader:
    """Reads the log of one run, batch by batch. Texts of different rounds or speakers are set apart by a blank line.

    What agents say is reasoning, unless one answers in the model's place.
    """

    agent_answers: bool = False
    notices: list[dict[str, Any]] = field(default_factory=list)
    """Warnings, and what was left out of the history, for the end."""
    _emitted_characters: dict[Kind, int] = field(default_factory=lambda: {"content": 0, "reasoning": 0})
    """Characters of the model's, so that a snapshot is told from where it is new."""
    _speakers: dict[Kind, str] = field(default_factory=dict)
    """Whose text was the last of its kind, by the type of the event; nobody's behind the end of a round."""

    def pieces(self, batch: Batch) -> Iterator[Piece]:
        """What the batch says."""
        for _, name, payload in batch.events():
            event = name.decode()
            if (kind := _DELTA_KINDS.get(event)) is not None:
                yield from self._emit_new(kind, event, orjson.loads(payload)["content"])
            elif event in (events.AgentPlanning.type, events.AgentExecution.type):
                text = orjson.loads(payload)["content"]
                if not text:
                    self._end_round()
                is_answer = self.agent_answers and event == events.AgentExecution.type
                yield from self._emit("content" if is_answer else "reasoning", event, text)
            elif event in _NEXT_ROUNDS:
                self._end_round()
            elif event == events.Snapshot.type:
                snapshot = orjson.loads(payload)
                for kind, said in _SNAPSHOT_FIELDS.items():
                    speaker, new = (
                        self._speakers.get(kind, _NO_SPEAKER),
                        snapshot[said][self._emitted_characters[kind] :],
                    )
                    yield from self._emit_new(kind, speaker, new)
            elif event in _NOTICES:
                self.notices.append({"type": _NOTICES[event], **orjson.loads(payload)})

    def _emit_new(self, kind: Kind, speaker: str, text: str) -> Iterator[Piece]:
        self._emitted_characters[kind] += len(text)
        yield from self._emit(kind, speaker, text)

    def _end_round(self) -> None:
        self._speakers = dict.fromkeys(self._speakers, _NO_SPEAKER)

    def _emit(self, kind: Kind, speaker: str, text: str) -> Iterator[Piece]:
        if not text:
            return
        apart = self._speakers.setdefault(kind, speaker) != speaker
        self._speakers[kind] = speaker
        yield kind, f"\n\n{text}" if apart else text


class ChunkEncoder:
    """A run as chunks, each as JSON. With ``wants_usage`` the last of them counts the tokens."""

    def __init__(self, run: Run, model: str, *, wants_usage: bool) -> None:
        self._head = _head(run, model, "chat.completion.chunk") | ({"usage": None} if wants_usage else {})
        self._reader = DeltaReader(agent_answers=run.request.responder is not None)
        self._wants_usage = wants_usage

    def opening(self) -> Iterator[bytes]:
        """Before anything is said."""
        yield self._chunk({"role": "assistant", "content": ""})

    def encode(self, batch: Batch) -> Iterator[bytes]:
        """What a batch of events says."""
        for kind, text in self._reader.pieces(batch):
            yield self._chunk(_delta(kind, text))

    def closing(self, run: Run) -> Iterator[bytes]:
        """When the run has ended."""
        if run.failure is not None:
            yield orjson.dumps(openai_error(run.failure), default=str)
        else:
            for index, call in enumerate(_tool_calls(run.result)):
                yield self._chunk({"tool_calls": [{"index": index, **call}]})
            yield self._chunk({}, _finish_reason(run.result), mochi=_extra_fields(run.result, self._reader))
            if self._wants_usage:
                yield orjson.dumps(self._head | {"choices": [], "usage": _usage(run.result)})
        yield DONE

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return orjson.dumps(self._head | {"choices": choices} | more)


async def encode_completion(run: Run, model: str) -> bytes:
    """Wait for a run's end; the completion as JSON. Raises the error that ended the run, if one did."""
    head, telling = _head(run, model, "chat.completion"), DeltaReader(agent_answers=run.request.responder is not None)
    said: dict[Kind, list[str]] = {"content": [], "reasoning": []}

    async def receive(batch: Batch | None) -> None:
        for kind, text in telling.pieces(batch) if batch is not None else ():
            said[kind].append(text)

    await run.forward(receive)
    if run.failure is not None:
        raise run.failure
    choice = {
        "index": 0,
        "message": _message(run.result, "".join(said["content"]), "".join(said["reasoning"])),
        "logprobs": None,
        "finish_reason": _finish_reason(run.result),
    }
    ending = {"choices": [choice], "usage": _usage(run.result), "mochi": _extra_fields(run.result, telling)}
    return orjson.dumps(head | ending)


def _head(run: Run, model: str, kind: str) -> dict[str, Any]:
    """Return the fields that every response begins with. ``model`` is the name that the client knows."""
    return {"id": f"chatcmpl-{run.run_id}", "object": kind, "created": int(time.time()), "model": model}


def _message(turn: TurnResult, content: str, reasoning: str) -> dict[str, Any]:
    calls = _tool_calls(turn)
    message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else ""), "refusal": None}
    if reasoning:
        message |= _delta("reasoning", reasoning)
    return message | ({"tool_calls": calls} if calls else {})


def _delta(kind: Kind, text: str) -> dict[str, str]:
    """Clients look for reasoning under either of two names."""
    return {"content": text} if kind == "content" else {"reasoning_content": text, "reasoning": text}


def _finish_reason(turn: TurnResult) -> str:
    """Why the answer ended, in OpenAI's words."""
    if turn.handed_back:
        return "tool_calls"
    answer = last_answer(turn.stored)
    return "length" if answer is not None and answer.get("done_reason") == "length" else "stop"


def _tool_calls(turn: TurnResult) -> list[dict[str, Any]]:
    """The calls that the client is to carry out."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": orjson.dumps(call.arguments).decode()},
        }
        for call in turn.handed_back
    ]


def _usage(turn: TurnResult) -> dict[str, int]:
    """Tokens as Ollama counted them, of all requests that the turn took."""
    answers = [message for message in turn.stored if message["role"] == "assistant"]
    prompt = sum(answer.get("prompt_eval_count", 0) for answer in answers)
    completion = sum(answer.get("eval_count", 0) for answer in answers)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _extra_fields(turn: TurnResult, reader: DeltaReader) -> dict[str, Any]:
    """What OpenAI's API has no place for; clients skip it."""
    executed = [outcome.executed() for outcome in turn.outcomes]
    return {"context_window": turn.window_object, "tool_calls_executed": executed, "notices": reader.notices}
