"""Conversion of events to parts, including snapshots of dropped events."""

from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_result import TurnResult
from mochi_server.errors import ShuttingDown
from mochi_server.events import (
    AgentExecution,
    AgentPlanning,
    ChatEvent,
    ContentDelta,
    Done,
    Snapshot,
    Status,
    ThinkingDelta,
    TokenLogprobs,
    ToolCalled,
    ToolContinuationStart,
    ToolResult,
    TurnWarning,
)
from mochi_server.protocols.part_reader import PartReader
from mochi_server.protocols.parts import (
    Call,
    End,
    Notice,
    Part,
    Reasoning,
    Result,
    Step,
    Text,
    TextEnd,
)
from tests.support.runs import run_of


def read(reader: PartReader, *events: ChatEvent) -> list[Part]:
    return [part for event in events for part in reader.read(event)]


def test_snapshot_is_read_from_its_first_new_character() -> None:
    reader = PartReader(run_of())
    assert read(reader, ThinkingDelta("hm"), ContentDelta("one ")) == [
        Reasoning("hm"),
        Text("one "),
    ]
    assert read(reader, Snapshot("one two ", "hm, so")) == [Reasoning(", so"), Text("two ")]
    assert read(reader, ContentDelta("three"), Done("0123456789")) == [Text("three")]


def test_text_continues_after_a_first_snapshot() -> None:
    parts = read(
        PartReader(run_of()), Snapshot("one ", "hm"), ThinkingDelta("m"), ContentDelta("two")
    )
    assert parts == [Reasoning("hm"), Text("one "), Reasoning("m"), Text("two")]


def test_rounds_with_text_are_separate() -> None:
    reader = PartReader(run_of())
    assert read(reader, ToolContinuationStart(), ContentDelta("one")) == [
        TextEnd(),
        Step(),
        Text("one"),
    ]
    parts = read(reader, ToolContinuationStart(), ThinkingDelta("hm"), ContentDelta("two"))
    assert parts == [TextEnd(), Step(), Reasoning("hm"), Text("two", is_separate=True)]
    assert Text("two", is_separate=True).joined == "\n\ntwo"


def test_agent_answers_are_text_only_if_the_agent_answers_the_turn() -> None:
    published = [
        event_class("on it", "helper", "0123456789", "call_1")
        for event_class in (AgentPlanning, AgentExecution)
    ]
    plan = Reasoning("on it")
    parts = read(PartReader(run_of()), *published, ContentDelta("Done."))
    assert parts == [plan, Reasoning("on it", is_separate=True), Text("Done.")]
    assert read(PartReader(run_of(TurnInput(agent="helper"))), *published) == [plan, Text("on it")]


def test_snapshot_has_no_text_of_agents() -> None:
    reader = PartReader(run_of())
    read(
        reader, ThinkingDelta("hm"), AgentPlanning("a long plan", "helper", "0123456789", "call_1")
    )
    assert read(reader, Snapshot("one", "hm, so")) == [Reasoning(", so"), Text("one")]


def test_end_has_the_warnings_without_status_events() -> None:
    reader = PartReader(run_of())
    status, warning = read(
        reader, Status("loading_model", 1.0), TurnWarning("ANSWER_CUT", "Too long.")
    )
    assert status == Notice("status", {"state": "loading_model", "elapsed": 1.0}, is_transient=True)
    assert warning == Notice("warning", {"code": "ANSWER_CUT", "message": "Too long."})
    assert reader.end(run_of()) == [End(TurnResult(), notices=[warning])]


def test_end_of_the_run_interrupts_open_calls() -> None:
    reader = PartReader(run_of(run_ids=["0a"]))
    finished = ToolResult("add", True, "3", None, None, 0)
    parts = read(reader, ToolCalled("add", {"a": 1}, 0), ToolCalled("add", {"a": 2}, 1), finished)
    assert parts == [
        Call("0a-0", "add", {"a": 1}),
        Call("0a-1", "add", {"a": 2}),
        Result("0a-0", "3"),
    ]
    run = run_of()
    run.end("stopped", TurnResult())
    interrupted, _ = reader.end(run)
    assert isinstance(interrupted, Result)
    assert (interrupted.call_id, interrupted.error is not None) == ("0a-1", True)


def test_calls_of_a_turn_that_goes_on_at_the_next_server_stay_open() -> None:
    reader = PartReader(run_of())
    read(reader, ToolCalled("add", {"a": 1}, 0))
    run = run_of()
    run.suspend("running", TurnResult())
    run.release_clients()
    (end,) = reader.end(run)
    assert isinstance(end, End)
    assert isinstance(end.failure, ShuttingDown)


def test_logprobs_belong_to_the_next_text() -> None:
    reader, tokens = PartReader(run_of()), [[{"token": token}] for token in ("a", "b", "c")]
    parts = read(
        reader,
        TokenLogprobs(tokens[0]),
        TokenLogprobs(tokens[1]),
        ContentDelta("ab"),
        TokenLogprobs(tokens[2]),
    )
    assert parts == [Text("ab", logprobs=[*tokens[0], *tokens[1]])]
    (end,) = reader.end(run_of())
    assert isinstance(end, End)
    assert end.logprobs == tokens[2]
