"""Event log of a run: events can be read from any position."""

from typing import get_args

from mochi_server.chat.event_log import EventLog, decode, encode
from mochi_server.events import (
    AgentStart,
    ChatEvent,
    ContentDelta,
    Snapshot,
    ThinkingDelta,
    ToolConfirmationRequired,
    TurnError,
    TurnWarning,
)
from tests.support.cases import cases


def _events(log: EventLog) -> list[tuple[int, ChatEvent]]:
    found: list[tuple[int, ChatEvent]] = []
    while (batch := log.after(found[-1][0] if found else 0)) is not None:
        found += enumerate(batch.events, batch.first)
    return found


@cases(
    "event",
    [
        ContentDelta("two\nlines of  text"),
        AgentStart("helper", "Help.", None, "call_1"),
        ToolConfirmationRequired("note", {"text": ["a", None]}, 0, "conf_1"),
        TurnError("CODE", "Text.", {"a": 1}, 17),
    ],
    ids=lambda event: event.type,
)
def test_event_is_unchanged_in_the_log(event: ChatEvent) -> None:
    assert decode(encode(event)) == event


def test_event_types_are_unique() -> None:
    assert len({event.type for event in get_args(ChatEvent)}) == len(get_args(ChatEvent))


def test_long_log_is_read_in_batches_from_any_position() -> None:
    log = EventLog()
    for number in range(5000):
        log.add([ContentDelta(f"{number} " + "x" * 200)])
    everything = _events(log)
    assert everything == [
        (number + 1, ContentDelta(f"{number} " + "x" * 200)) for number in range(5000)
    ]
    first = log.after(0)
    assert first is not None
    assert 1 < first.last < 5000
    for position in (1, 999, 1000, 4998, 4999):
        batch = log.after(position)
        assert batch is not None
        assert (batch.first, batch.events[0]) == everything[position]
    assert log.after(5000) is None


def test_snapshot_replaces_dropped_events() -> None:
    log = EventLog(max_bytes=2000)
    for number in range(300):
        log.add([ThinkingDelta(f"t{number} ") if number < 100 else ContentDelta(f"c{number} ")])
        assert log.size <= 2000
    log.add([ContentDelta("x" * 5000)])
    content = "".join(f"c{number} " for number in range(100, 300))
    thinking = "".join(f"t{number} " for number in range(100))
    assert _events(log) == [(300, Snapshot(content, thinking)), (301, ContentDelta("x" * 5000))]


def test_dropped_text_before_a_snapshot_is_not_repeated() -> None:
    log = EventLog(max_bytes=1000)
    log.add([ContentDelta("Wrong."), Snapshot("Right.", "")])
    for _ in range(20):
        log.add([ThinkingDelta("x" * 20)])
    snapshot = _events(log)[0][1]
    assert isinstance(snapshot, Snapshot)
    assert snapshot.content == "Right."


def test_warnings_are_retained_when_their_events_are_dropped() -> None:
    log, warning = EventLog(), TurnWarning("CODE", "Text with\nwarning lines.")
    log.add([warning, ContentDelta("warning ")])
    assert log.warnings == [warning]
    while _events(log)[0][0] == 1:
        log.add([ContentDelta("x" * 1_000_000)])
    log.add([warning])
    assert log.warnings == [warning, warning]


def test_confirmations_are_found_after_their_events_are_dropped() -> None:
    log = EventLog()
    log.add([ContentDelta("one"), ToolConfirmationRequired("note", {}, 0, "conf_1")])
    while _events(log)[0][0] == 1:
        log.add([ContentDelta("x" * 1_000_000)])
    log.add([ToolConfirmationRequired("note", {}, 1, "conf_2")])
    assert log.confirmations == {"conf_1": 2, "conf_2": log.last}


def test_recent_events_are_read_without_decoding() -> None:
    log = EventLog()
    for text in ("one", "two", "three", "four", "five", "six"):
        log.add([ContentDelta(text)])
    old, recent = log.after(0), log.after(3)
    assert old is not None
    assert recent is not None
    assert (old.published, recent.published) == (
        None,
        [*map(ContentDelta, ("four", "five", "six"))],
    )
