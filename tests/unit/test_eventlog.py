"""The log of a run: what is kept can be had from any event on, however it is kept."""

from mochi_server.chat.eventlog import EventLog
from mochi_server.events import ChatEvent, ContentDelta


def _events(log: EventLog) -> list[tuple[int, bytes, bytes]]:
    """All that is to be had, piece by piece."""
    found: list[tuple[int, bytes, bytes]] = []
    while (batch := log.after(found[-1][0] if found else 0)) is not None:
        found += batch.events()
    return found


def test_a_compact_log_says_the_same_from_every_position_and_takes_less() -> None:
    log = EventLog()
    for number in range(5000):
        log.add([ContentDelta(f"{number} " + "x" * 200)])
    before, size = _events(log), log.size
    log.compact()
    assert _events(log) == before
    assert log.size < size - 4900 * 80
    for position in (1, 999, 1000, 4998, 4999):
        batch = log.after(position)
        assert batch is not None
        assert next(batch.events()) == before[position]
    assert log.after(5000) is None


def test_slow_speech_counts_for_what_it_takes_up() -> None:
    slow, fast = EventLog(), EventLog()
    events: list[ChatEvent] = [ContentDelta("a") for _ in range(100)]
    fast.add(events)
    for event in events:
        slow.add([event])
    assert slow.size > 2 * fast.size
    slow.compact()
    assert slow.size == fast.size


def test_a_log_without_events_can_be_compacted() -> None:
    log = EventLog()
    log.compact()
    assert _events(log) == []
