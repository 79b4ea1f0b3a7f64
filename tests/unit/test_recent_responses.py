"""Values that the server stores in memory for an hour, by owner and ID."""

from mochi_server.services.recent_responses import RecentValues


def test_oldest_values_are_dropped() -> None:
    values = RecentValues(max_bytes=700)
    for number in range(3):
        values.add(str(number), b"x" * 20)
    assert [values.get(str(number)) is not None for number in range(3)] == [False, True, True]


def test_values_are_kept_for_an_hour() -> None:
    seconds = [0.0]
    values = RecentValues(max_bytes=1000, clock=lambda: seconds[-1])
    values.add("1", b"x")
    seconds.append(3599.0)
    assert values.get("1") == b"x"
    values.add("2", b"y")
    seconds.append(3600.0)
    assert (values.get("1"), values.get("2")) == (None, b"y")


def test_value_that_exceeds_the_limit_is_not_kept() -> None:
    values = RecentValues(1000)
    values.add("0", b"x" * 2000)
    values.add("1", b"x")
    assert (values.get("0"), values.get("1")) == (None, b"x")


def test_new_value_replaces_the_earlier_one() -> None:
    values = RecentValues(700)
    for value_id in ("0", "1", "0", "0", "2"):
        values.add(value_id, b"x")
    assert [values.get(str(number)) for number in range(3)] == [b"x", None, b"x"]
