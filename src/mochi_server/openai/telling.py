"""What a run says, as a client of OpenAI's API hears it: pieces of text and of reasoning, then how it ended."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from mochi_server.chat.eventlog import Batch
from mochi_server.chat.run import Run
from mochi_server.chat.turn import TurnResult
from mochi_server.events import (
    AgentExecution,
    AgentPlanning,
    AgentStart,
    AgentToolResult,
    ContentDelta,
    ContextCompacted,
    Snapshot,
    ThinkingDelta,
    ToolContinuationStart,
    TurnWarning,
)
from mochi_server.sessions.session import last_answer

Kind = Literal["content", "reasoning"]
Piece = tuple[Kind, str]

_SAID: dict[bytes, Kind] = {ContentDelta.type.encode(): "content", ThinkingDelta.type.encode(): "reasoning"}
_PLANNING, _EXECUTION = AgentPlanning.type.encode(), AgentExecution.type.encode()
_NEXT_ROUNDS = {ToolContinuationStart.type.encode(), AgentStart.type.encode(), AgentToolResult.type.encode()}
_SNAPSHOT = Snapshot.type.encode()
_SNAPSHOT_FIELDS: dict[Kind, str] = {"reasoning": "thinking", "content": "content"}
_NOTICES = {TurnWarning.type.encode(): "warning", ContextCompacted.type.encode(): "context_compacted"}
_NOBODY = b""


@dataclass
class Telling:
    """Reads the log of one run, batch by batch. Texts of different rounds or speakers are set apart by a blank line.

    What agents say is reasoning, unless one answers in the model's place.
    """

    agent_answers: bool = False
    notices: list[dict[str, Any]] = field(default_factory=list)
    """Warnings, and what was left out of the history, for the end."""
    _told: dict[Kind, int] = field(default_factory=lambda: {"content": 0, "reasoning": 0})
    """Characters of the model's, so that a snapshot is told from where it is new."""
    _speakers: dict[Kind, bytes] = field(default_factory=dict)
    """Whose text was the last of its kind, by the type of the event; nobody's behind the end of a round."""

    @classmethod
    def of(cls, run: Run) -> "Telling":
        """For a run."""
        return cls(agent_answers=run.request.responder is not None)

    def pieces(self, batch: Batch) -> Iterator[Piece]:
        """What the batch says."""
        for _, event, payload in batch.events():
            if (kind := _SAID.get(event)) is not None:
                yield from self._say_new(kind, event, orjson.loads(payload)["content"])
            elif event in (_PLANNING, _EXECUTION):
                text = orjson.loads(payload)["content"]
                if not text:
                    self._end_round()
                is_answer = self.agent_answers and event == _EXECUTION
                yield from self._say("content" if is_answer else "reasoning", event, text)
            elif event in _NEXT_ROUNDS:
                self._end_round()
            elif event == _SNAPSHOT:
                snapshot = orjson.loads(payload)
                for kind, name in _SNAPSHOT_FIELDS.items():
                    speaker, new = self._speakers.get(kind, _NOBODY), snapshot[name][self._told[kind] :]
                    yield from self._say_new(kind, speaker, new)
            elif event in _NOTICES:
                self.notices.append({"type": _NOTICES[event], **orjson.loads(payload)})

    def _say_new(self, kind: Kind, speaker: bytes, text: str) -> Iterator[Piece]:
        self._told[kind] += len(text)
        yield from self._say(kind, speaker, text)

    def _end_round(self) -> None:
        self._speakers = dict.fromkeys(self._speakers, _NOBODY)

    def _say(self, kind: Kind, speaker: bytes, text: str) -> Iterator[Piece]:
        if not text:
            return
        apart = self._speakers.setdefault(kind, speaker) != speaker
        self._speakers[kind] = speaker
        yield kind, f"\n\n{text}" if apart else text


def finish_reason(turn: TurnResult) -> str:
    """Why the answer ended, in OpenAI's words."""
    if turn.handed_back:
        return "tool_calls"
    answer = last_answer(turn.stored)
    return "length" if answer is not None and answer.get("done_reason") == "length" else "stop"


def tool_calls(turn: TurnResult) -> list[dict[str, Any]]:
    """The calls that the client is to carry out."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": orjson.dumps(call.arguments).decode()},
        }
        for call in turn.handed_back
    ]


def usage(turn: TurnResult) -> dict[str, int]:
    """Tokens as Ollama counted them, of all requests that the turn took."""
    answers = [message for message in turn.stored if message["role"] == "assistant"]
    prompt = sum(answer.get("prompt_eval_count", 0) for answer in answers)
    completion = sum(answer.get("eval_count", 0) for answer in answers)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def besides(turn: TurnResult, telling: Telling) -> dict[str, Any]:
    """What OpenAI's API has no place for; clients skip it."""
    executed = [outcome.executed() for outcome in turn.outcomes]
    return {"context_window": turn.window_object, "tool_calls_executed": executed, "notices": telling.notices}
