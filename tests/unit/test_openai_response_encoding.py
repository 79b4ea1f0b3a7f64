"""Encoding of events for the OpenAI-compatible API, including snapshots of dropped events."""

import orjson

from mochi_server.chat.event_log import Batch
from mochi_server.events import (
    AgentExecution,
    AgentPlanning,
    ChatEvent,
    ContentDelta,
    Done,
    Snapshot,
    Status,
    ThinkingDelta,
    ToolContinuationStart,
    TurnWarning,
)
from mochi_server.openai.response_encoding import DeltaReader, Piece


def encode(telling: DeltaReader, *events: ChatEvent) -> list[Piece]:
    lines = tuple(event.type.encode() + b" " + orjson.dumps(event) for event in events)
    return list(telling.pieces(Batch(1, lines)))


def test_snapshot_is_sent_from_its_first_new_character() -> None:
    telling = DeltaReader()
    assert encode(telling, ThinkingDelta("hm"), ContentDelta("one ")) == [("reasoning", "hm"), ("content", "one ")]
    assert encode(telling, Snapshot("one two ", "hm, so")) == [("reasoning", ", so"), ("content", "two ")]
    assert encode(telling, ContentDelta("three"), Done("0123456789")) == [("content", "three")]


def test_rounds_with_text_are_separated() -> None:
    telling = DeltaReader()
    assert encode(telling, ToolContinuationStart(), ContentDelta("one")) == [("content", "one")]
    assert encode(telling, ToolContinuationStart(), ThinkingDelta("hm"), ContentDelta("two")) == [
        ("reasoning", "hm"),
        ("content", "\n\ntwo"),
    ]


def test_agent_answers_are_content_only_if_enabled() -> None:
    spoken = [kind("on it", "helper", "0123456789", "call_1") for kind in (AgentPlanning, AgentExecution)]
    first, answer = ("reasoning", "on it"), ("content", "Done.")
    assert encode(DeltaReader(), *spoken, ContentDelta("Done.")) == [first, ("reasoning", "\n\non it"), answer]
    assert encode(DeltaReader(agent_answers=True), *spoken) == [first, ("content", "on it")]


def test_snapshot_has_no_text_of_agents() -> None:
    telling = DeltaReader()
    encode(telling, ThinkingDelta("hm"), AgentPlanning("a long plan", "helper", "0123456789", "call_1"))
    assert encode(telling, Snapshot("one", "hm, so")) == [("reasoning", ", so"), ("content", "one")]


def test_warnings_are_sent_at_the_end_without_status_events() -> None:
    telling = DeltaReader()
    assert encode(telling, Status("loading_model", 1.0), TurnWarning("ANSWER_CUT", "Too long.")) == []
    assert telling.notices == [{"type": "warning", "code": "ANSWER_CUT", "message": "Too long."}]
