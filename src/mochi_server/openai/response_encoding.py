"""Encoding of a run in OpenAI's format: as chunks of a stream, or as a complete response."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from mochi_server import events
from mochi_server.chat.event_log import Batch
from mochi_server.chat.run import Run
from mochi_server.chat.turn import TurnResult
from mochi_server.protocols.errors import openai_error

DONE = b"[DONE]"

Chunk = bytes | tuple[bytes, bytes]
"""Data of a server-sent event, or the name and the data of a named event."""

Kind = Literal["content", "reasoning"]
Piece = tuple[Kind, str]

_DELTA_KINDS: dict[str, Kind] = {events.ContentDelta.type: "content", events.ThinkingDelta.type: "reasoning"}
_NEXT_ROUNDS = {events.ToolContinuationStart.type, events.AgentStart.type, events.AgentToolResult.type}
_SNAPSHOT_FIELDS: dict[Kind, str] = {"reasoning": "thinking", "content": "content"}
_NOTICES = {events.TurnWarning.type, events.ContextCompacted.type}
_NO_SOURCE = ""


@dataclass
class DeltaReader:
    """Converter of a run's events to pieces of content and reasoning.

    A blank line separates the texts of different rounds or of different event types. Text from agents becomes
    reasoning. If ``agent_answers`` is true, text from the execution phase of an agent becomes content instead.
    """

    agent_answers: bool = False
    notices: list[dict[str, Any]] = field(default_factory=list)
    """Warnings and compactions. The server sends them at the end of the response."""
    _logprobs: list[dict[str, Any]] = field(default_factory=list)
    _emitted_characters: dict[Kind, int] = field(default_factory=lambda: {"content": 0, "reasoning": 0})
    """Numbers of characters yielded so far. A snapshot event repeats the whole text, so ``pieces`` skips as many."""
    _sources: dict[Kind, str] = field(default_factory=dict)
    """Type of the event with the latest text of each kind, or ``_NO_SOURCE`` if the round of that text has ended."""

    def pieces(self, batch: Batch) -> Iterator[Piece]:
        """Yield the kind and the text of each new piece in a batch of events."""
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
                for kind, name_in_snapshot in _SNAPSHOT_FIELDS.items():
                    new = snapshot[name_in_snapshot][self._emitted_characters[kind] :]
                    yield from self._emit_new(kind, self._sources.get(kind, _NO_SOURCE), new)
            elif event == events.TokenLogprobs.type:
                self._logprobs += orjson.loads(payload)["logprobs"]
            elif event in _NOTICES:
                self.notices.append({"type": event, **orjson.loads(payload)})

    def take_logprobs(self) -> dict[str, Any] | None:
        """Return the log probabilities of the tokens since the last call, in OpenAI's format, or None."""
        tokens, self._logprobs = self._logprobs, []
        return {"content": [_logprob(token) for token in tokens], "refusal": None} if tokens else None

    def _emit_new(self, kind: Kind, source: str, text: str) -> Iterator[Piece]:
        self._emitted_characters[kind] += len(text)
        yield from self._emit(kind, source, text)

    def _end_round(self) -> None:
        self._sources = dict.fromkeys(self._sources, _NO_SOURCE)

    def _emit(self, kind: Kind, source: str, text: str) -> Iterator[Piece]:
        if not text:
            return
        is_separate = self._sources.setdefault(kind, source) != source
        self._sources[kind] = source
        yield kind, f"\n\n{text}" if is_separate else text


class RunEncoder(ABC):
    """Encoder of the run that answers a request: as chunks of a stream, or as one JSON response."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._reader = DeltaReader(agent_answers=run.request.responder is not None)

    @abstractmethod
    def opening(self) -> Iterator[Chunk]:
        """Yield the chunks that start the stream."""

    @abstractmethod
    def encode(self, batch: Batch) -> Iterator[Chunk]:
        """Yield the chunks for a batch of events."""

    @abstractmethod
    def closing(self) -> Iterator[Chunk]:
        """Yield the last chunks. Call this after the run has ended."""

    @abstractmethod
    def complete(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """Return the whole response, which contains ``pieces``. Call this after the run has ended."""

    async def collect(self) -> bytes:
        """Wait until the run has ended, and return the whole response as JSON. If the run failed, raise its error."""
        pieces: list[Piece] = []

        async def receive(batch: Batch | None) -> None:
            if batch is not None:
                pieces.extend(self._reader.pieces(batch))

        await self.run.forward(receive)
        if self.run.failure is not None:
            raise self.run.failure
        return orjson.dumps(self.complete(pieces))

    def _extra_fields(self) -> dict[str, Any]:
        """Return the response fields that OpenAI's API does not have. Clients of the API ignore such fields."""
        turn = self.run.result
        executed = [outcome.executed() for outcome in turn.outcomes]
        return {"context_window": turn.window_object, "tool_calls_executed": executed, "notices": self._reader.notices}


class ChunkEncoder(RunEncoder):
    """Encoder of a run as a chat completion. If ``include_usage`` is true, a last chunk has the token counts."""

    _prefix = "chatcmpl"
    _object = "chat.completion"
    _chunk_object = "chat.completion.chunk"

    def __init__(self, run: Run, model: str, *, include_usage: bool) -> None:
        """``model`` is the model name in the request."""
        super().__init__(run)
        self._model = model
        self._include_usage = include_usage
        self._chunk_head = self._head(self._chunk_object) | ({"usage": None} if include_usage else {})

    def opening(self) -> Iterator[bytes]:
        yield self._chunk({"role": "assistant", "content": ""})

    def encode(self, batch: Batch) -> Iterator[bytes]:
        for kind, text in self._reader.pieces(batch):
            yield self._chunk(_delta(kind, text), logprobs=self._reader.take_logprobs())

    def closing(self) -> Iterator[bytes]:
        turn = self.run.result
        if self.run.failure is not None:
            yield orjson.dumps(openai_error(self.run.failure), default=str)
        else:
            for index, call in enumerate(tool_calls(turn)):
                yield self._chunk({"tool_calls": [{"index": index, **call}]})
            yield self._chunk({}, finish_reason(turn), mochi=self._extra_fields())
            if self._include_usage:
                yield orjson.dumps(self._chunk_head | {"choices": [], "usage": usage(turn)})
        yield DONE

    def complete(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        texts = {kind: "".join(text for of, text in pieces if of == kind) for kind in _SNAPSHOT_FIELDS}
        ending = {"choices": [self._choice(texts)], "usage": usage(self.run.result), "mochi": self._extra_fields()}
        return self._head(self._object) | ending

    def _choice(self, texts: dict[Kind, str]) -> dict[str, Any]:
        calls = tool_calls(self.run.result)
        content = texts["content"] or (None if calls else "")
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if texts["reasoning"]:
            message |= _delta("reasoning", texts["reasoning"])
        if calls:
            message["tool_calls"] = calls
        finish, logprobs = finish_reason(self.run.result), self._reader.take_logprobs()
        return {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish}

    def _head(self, kind: str) -> dict[str, Any]:
        run_id = f"{self._prefix}-{self.run.run_id}"
        return {"id": run_id, "object": kind, "created": int(time.time()), "model": self._model}

    def _chunk(
        self, delta: dict[str, Any], finish: str | None = None, logprobs: dict[str, Any] | None = None, **more: Any
    ) -> bytes:
        choice = self._chunk_choice(delta, finish)
        if logprobs is not None:
            choice["logprobs"] = logprobs
        return orjson.dumps(self._chunk_head | {"choices": [choice]} | more)

    def _chunk_choice(self, delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
        return {"index": 0, "delta": delta, "finish_reason": finish}


class TextChunkEncoder(ChunkEncoder):
    """Encoder of a run as a text completion, which contains no reasoning."""

    _prefix = "cmpl"
    _object = _chunk_object = "text_completion"

    def opening(self) -> Iterator[bytes]:
        return iter(())

    def encode(self, batch: Batch) -> Iterator[bytes]:
        for kind, text in self._reader.pieces(batch):
            if kind == "content":
                yield self._chunk({"content": text})

    def _choice(self, texts: dict[Kind, str]) -> dict[str, Any]:
        return self._chunk_choice({"content": texts["content"]}, finish_reason(self.run.result))

    def _chunk_choice(self, delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
        return {"index": 0, "text": delta.get("content", ""), "logprobs": None, "finish_reason": finish}


def _delta(kind: Kind, text: str) -> dict[str, str]:
    """Return the JSON fields for a piece of text. Reasoning is in two fields, because clients read one or the other."""
    return {"content": text} if kind == "content" else {"reasoning_content": text, "reasoning": text}


def _logprob(token: dict[str, Any]) -> dict[str, Any]:
    """Convert the log probability of a token to OpenAI's format, which requires ``bytes`` and ``top_logprobs``."""
    alternatives = token.get("top_logprobs") or []
    return {"bytes": None} | token | {"top_logprobs": [{"bytes": None} | alternative for alternative in alternatives]}


def finish_reason(turn: TurnResult) -> str:
    if turn.handed_back:
        return "tool_calls"
    answer = turn.answer
    return "length" if answer is not None and answer.get("done_reason") == "length" else "stop"


def tool_calls(turn: TurnResult) -> list[dict[str, Any]]:
    """Return the tool calls that the client must run."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": orjson.dumps(call.arguments).decode()},
        }
        for call in turn.handed_back
    ]


def usage(turn: TurnResult) -> dict[str, int]:
    """Return Ollama's token counts, summed over all requests of the turn."""
    answers = [message for message in (turn.stored or turn.repeated) if message["role"] == "assistant"]
    prompt = sum(answer.get("prompt_eval_count", 0) for answer in answers)
    completion = sum(answer.get("eval_count", 0) for answer in answers)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
