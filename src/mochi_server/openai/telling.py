"""What a run says, as a client of OpenAI's API hears it: pieces of text and of reasoning, then how it ended."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from mochi_server.chat.eventlog import Batch
from mochi_server.chat.turn import Turn
from mochi_server.events import (
    AgentExecution,
    AgentPlanning,
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

_SAID: dict[bytes, Kind] = {
    ContentDelta.type.encode(): "content",
    ThinkingDelta.type.encode(): "reasoning",
    AgentExecution.type.encode(): "content",
    AgentPlanning.type.encode(): "reasoning",
}
_NEXT_ROUNDS = {ToolContinuationStart.type.encode(), AgentToolResult.type.encode()}
_SNAPSHOT = Snapshot.type.encode()
_NOTICES = {TurnWarning.type.encode(): "warning", ContextCompacted.type.encode(): "context_compacted"}


@dataclass
class Telling:
    """Reads the log of one run, batch by batch. Texts of a model's rounds are set apart by a blank line."""

    notices: list[dict[str, Any]] = field(default_factory=list)
    """Warnings, and what was left out of the history, for the end."""
    _told: dict[Kind, int] = field(default_factory=lambda: {"content": 0, "reasoning": 0})
    """Characters, so that a snapshot is told from where it is new."""
    _apart: bool = False

    def pieces(self, batch: Batch) -> Iterator[Piece]:
        """What the batch says."""
        for _, kind, payload in batch.events():
            if (said := _SAID.get(kind)) is not None:
                yield from self._say(said, orjson.loads(payload)["content"])
            elif kind in _NEXT_ROUNDS:
                self._apart = self._told["content"] > 0
            elif kind == _SNAPSHOT:
                snapshot = orjson.loads(payload)
                yield from self._say("reasoning", snapshot["thinking"][self._told["reasoning"] :])
                yield from self._say("content", snapshot["content"][self._told["content"] :])
            elif kind in _NOTICES:
                self.notices.append({"type": _NOTICES[kind], **orjson.loads(payload)})

    def _say(self, kind: Kind, text: str) -> Iterator[Piece]:
        if not text:
            return
        self._told[kind] += len(text)
        if kind == "content" and self._apart:
            self._apart, text = False, f"\n\n{text}"
        yield kind, text


def finish_reason(turn: Turn) -> str:
    """Why the answer ended, in OpenAI's words."""
    if turn.handed_back:
        return "tool_calls"
    answer = last_answer(turn.stored)
    return "length" if answer is not None and answer.get("done_reason") == "length" else "stop"


def tool_calls(turn: Turn) -> list[dict[str, Any]]:
    """The calls that the client is to carry out."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": orjson.dumps(call.arguments).decode()},
        }
        for call in turn.handed_back
    ]


def usage(turn: Turn) -> dict[str, int]:
    """Tokens as Ollama counted them, of all requests that the turn took."""
    answers = [message for message in turn.stored if message["role"] == "assistant"]
    prompt = sum(answer.get("prompt_eval_count", 0) for answer in answers)
    completion = sum(answer.get("eval_count", 0) for answer in answers)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def besides(turn: Turn, telling: Telling) -> dict[str, Any]:
    """What OpenAI's API has no place for; clients skip it."""
    executed = [outcome.executed() for outcome in turn.outcomes]
    return {"context_window": turn.window_object, "tool_calls_executed": executed, "notices": telling.notices}
