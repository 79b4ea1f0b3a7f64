"""Transitions of the stored turn, and reading it from files of any version."""

import json
import logging
import math
import time
from dataclasses import replace
from typing import Any

import pytest

from mochi_server.sessions.migration import read_turn
from mochi_server.sessions.turn import AgentCall, Approval, Decision, Parent, StoredTurn

APPROVAL = Approval("conf_r1_1", "note", {"text": "x"}, 0, "f" * 32, expires_at=time.time() + 300)
INPUT = {"change": "continue"}
WAITING = StoredTurn(["r1"], first=1).requested(APPROVAL, INPUT, events=7)
TURNS = {
    "new": StoredTurn(["r1"]),
    "in the background": StoredTurn(["r1"], first=1, input=INPUT),
    "waiting": WAITING,
    "without a timeout": StoredTurn(["r1"]).requested(Approval("c", "n", {}, 0, ""), INPUT, 0),
    "decided": WAITING.decided(
        Decision(approved=True, arguments={"text": "y"}, reason="Better.", remember="session")
    ),
    "running a call": WAITING.decided(Decision(approved=True)).started("call_1", 0),
    "continued": WAITING.decided(None).continued("r2", is_new_start=True),
    "regenerated": replace(
        WAITING,
        replacement=[
            {
                **{"role": "tool", "content": "x", "mood": "good"},
                **{"message_id": "m1", "timestamp": "2026-01-01T00:00:00+00:00"},
            }
        ],
        replacement_images=("eA==",),
    ),
    "of an agent": StoredTurn(["r1"], parent=Parent("0123456789", "r0", "call_1")),
    "completed": WAITING.ended("completed", "m1"),
    "failed": StoredTurn(["r1", "r2"]).ended(
        "failed", error={"code": "OLLAMA_ERROR", "message": "No."}
    ),
}


@pytest.mark.parametrize("name", TURNS)
def test_turn_is_read_as_it_was_written(name: str) -> None:
    written = json.loads(json.dumps(TURNS[name].to_dict()))
    assert read_turn({"turn": written}) == TURNS[name]


def test_due_time_is_the_first_field() -> None:
    """An index of PostgreSQL depends on it."""
    assert json.dumps(WAITING.to_dict()).startswith('{"due": 1')
    assert json.dumps(TURNS["new"].to_dict()).startswith('{"due": 0')
    assert "due" not in TURNS["completed"].to_dict()
    assert "due" not in TURNS["without a timeout"].to_dict()


def test_due_times() -> None:
    assert WAITING.due == APPROVAL.expires_at
    assert TURNS["without a timeout"].due == math.inf
    assert TURNS["decided"].due == 0
    assert TURNS["of an agent"].due is None


def test_ended_turn_forgets_what_it_needs_to_continue() -> None:
    ended = TURNS["running a call"].ended("completed", "m1")
    assert ended.to_dict() == {
        "run_ids": ["r1"],
        "state": "completed",
        "first": 1,
        "answer_id": "m1",
    }


RECORD = {
    **{
        "due": 9.0,
        "confirmation_id": "conf_r2_1",
        "tool_name": "note",
        "arguments": {"text": "x"},
        "call_index": 1,
    },
    **{
        "run_id": "r2",
        "earlier": ["r1"],
        "expires_at": 9.0,
        "fingerprint": "f",
        "source": None,
        "events": 4,
    },
    **{
        "position": 3,
        "input": INPUT,
        "agent": None,
        "replacement": None,
        "decision": None,
        "started": None,
    },
}
AGENT = {"name": "helper", "session_id": "aaaaaaaaaa", "parent_call_id": "call_1"}
APPROVED = {"approved": True, "arguments": None, "reason": None, "remember": "once"}
EARLIER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "ended": (
        {"last_run": {"run_id": "r2", "state": "completed", "answer_id": "m1", "earlier": ["r1"]}},
        {"run_ids": ["r1", "r2"], "state": "completed", "answer_id": "m1"},
    ),
    "killed": (
        {"last_run": {"run_id": "r1", "state": "running", "answer_id": None}},
        {"run_ids": ["r1"], "state": "running"},
    ),
    "waiting": (
        {
            "pending_approval": RECORD,
            "last_run": {"run_id": "r2", "state": "running", "answer_id": None},
        },
        {
            "run_ids": ["r1", "r2"],
            "state": "waiting_for_approval",
            "first": 3,
            "events": 4,
            "input": INPUT,
        },
    ),
    "decided": (
        {"pending_approval": RECORD | {"decision": APPROVED, "started": "/1"}},
        {"state": "running", "started_call": "/1"},
    ),
    "waiting in an agent": (
        {"pending_approval": RECORD | {"agent": AGENT, "started": "aaaaaaaaaa/0"}},
        {"state": "waiting_for_approval", "started_call": "call_1"},
    ),
    "ended, with null": (
        {"last_run": {"run_id": "r1", "state": "completed", "earlier": None}},
        {"run_ids": ["r1"], "state": "completed"},
    ),
    "waiting, with null": (
        {"pending_approval": RECORD | {"earlier": None}},
        {"run_ids": ["r2"], "state": "waiting_for_approval"},
    ),
    "session of an agent": (
        {"pending_approval": {"due": None, "session_id": "0123456789"}},
        {"state": "running", "parent": Parent("0123456789", "", "")},
    ),
}
"""Metadata of files before format 1.4, and fields of the turn."""


@pytest.mark.parametrize("name", EARLIER)
def test_earlier_files_are_migrated(name: str) -> None:
    metadata, expected = EARLIER[name]
    turn = read_turn(metadata)
    assert {field: getattr(turn, field) for field in expected} == expected
    assert (turn is None) == (name == "nothing")


def test_agent_of_an_earlier_file_is_migrated() -> None:
    turn = read_turn({"pending_approval": RECORD | {"agent": AGENT}})
    assert turn is not None
    assert turn.approval is not None
    assert turn.approval.agent == AgentCall("helper", "aaaaaaaaaa", "call_1")


@pytest.mark.parametrize("wrong", [{"agent": "helper"}, {"earlier": 5}])
def test_damaged_turn_of_an_earlier_file_is_no_error(wrong: dict[str, Any]) -> None:
    turn = read_turn({"pending_approval": RECORD | {"started": "aaaaaaaaaa/0"} | wrong})
    assert turn is not None
    assert turn.run_id == "r2"


UNREADABLE: list[Any] = [
    5,
    [],
    {},
    {"run_ids": []},
    {"run_ids": ["r1"], "state": "flying"},
    {"run_ids": ["r1"], "input": 7},
    {"run_ids": ["r1"], "approval": {"confirmation_id": 1}},
    {"run_ids": ["r1"], "first": -1},
    {"run_ids": ["r1"], "replacement": [{"role": "user", "content": "Hi"}]},
    {"run_ids": ["r1"], "state": "waiting_for_approval"},
]


@pytest.mark.parametrize("stored", UNREADABLE, ids=str)
def test_unreadable_turn_has_failed_and_is_logged_once(
    stored: Any, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = {"session_id": f"s{hash(str(stored))}", "turn": stored}
    with caplog.at_level(logging.WARNING):
        turns = [read_turn(metadata) for _ in range(2)]
    has_runs = isinstance(stored, dict) and bool(stored.get("run_ids"))
    assert [turn and turn.state for turn in turns] == ["failed" if has_runs else None] * 2
    assert len(caplog.records) == 1


def test_turn_of_a_later_version_keeps_what_is_known() -> None:
    turn = read_turn({"turn": {"run_ids": ["r1"], "state": "completed", "mood": "good"}})
    assert turn == StoredTurn(["r1"], "completed")
