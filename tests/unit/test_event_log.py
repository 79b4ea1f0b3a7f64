"""Event log of a run: events can be read from any position, in memory or compressed."""

import gc

import orjson
import pytest

from mochi_server.chat import event_log
from mochi_server.chat.event_log import EventLog
from mochi_server.events import ContentDelta, ThinkingDelta, TurnWarning


def _events(log: EventLog) -> list[tuple[int, bytes, bytes]]:
    found: list[tuple[int, bytes, bytes]] = []
    while (batch := log.after(found[-1][0] if found else 0)) is not None:
        found += batch.events()
    return found


def test_long_log_is_read_in_batches_from_any_position() -> None:
    log = EventLog()
    for number in range(5000):
        log.add([ContentDelta(f"{number} " + "x" * 200)])
    everything = _events(log)
    assert [number for number, _, _ in everything] == list(range(1, 5001))
    assert [payload.split()[0] for _, _, payload in everything] == [
        b'{"content":"%d' % number for number in range(5000)
    ]
    first = log.after(0)
    assert first is not None
    assert 1 < first.last < 5000
    for position in (1, 999, 1000, 4998, 4999):
        batch = log.after(position)
        assert batch is not None
        assert next(batch.events()) == everything[position]
    assert log.after(5000) is None


def test_event_larger_than_a_batch_is_sent_alone() -> None:
    log = EventLog()
    log.add([ContentDelta("a"), ContentDelta("b" * 1_000_000), ContentDelta("c")])
    assert [(batch.first, batch.last) for batch in (log.after(0), log.after(1), log.after(2)) if batch] == [
        (1, 1),
        (2, 2),
        (3, 3),
    ]


def test_snapshot_replaces_dropped_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "MAX_BYTES", 2000)
    log = EventLog()
    for number in range(300):
        log.add([ThinkingDelta(f"t{number} ") if number < 100 else ContentDelta(f"c{number} ")])
        assert log.size <= 2000
    log.add([ContentDelta("x" * 5000)])
    (first, kind, payload), (second, _, latest) = _events(log)
    assert (first, kind, second) == (300, b"snapshot", 301)
    assert orjson.loads(payload) == {
        "content": "".join(f"c{number} " for number in range(100, 300)),
        "thinking": "".join(f"t{number} " for number in range(100)),
    }
    assert orjson.loads(latest)["content"] == "x" * 5000


def test_long_log_does_not_add_work_for_the_gc() -> None:
    long, short = EventLog(), EventLog()
    for number in range(1000):
        long.add([ContentDelta(str(number))])
    short.add([ContentDelta("0")])
    assert len(_reachable(long)) == len(_reachable(short))


def _reachable(log: EventLog) -> list[object]:
    """Count the objects of a log that the garbage collector visits."""
    found: list[object] = []
    left: list[object] = [log]
    while left:
        thing = left.pop()
        if not isinstance(thing, type):
            found.append(thing)
            left += gc.get_referents(thing)
    return found


def test_warnings_are_retained_when_their_events_are_dropped() -> None:
    log, warning = EventLog(), TurnWarning("CODE", "Text with\nwarning lines.")
    log.add([warning, ContentDelta("warning ")])
    assert log.warnings == [warning]
    while _events(log)[0][0] == 1:
        log.add([ContentDelta("x" * 1_000_000)])
    log.add([warning])
    assert log.warnings == [warning, warning]
