"""Schedule of checkpoints: bounded loss after a crash and bounded cost."""

from mochi_server.chat.flush_schedule import FlushSchedule


def test_single_turn_is_saved_every_two_seconds() -> None:
    schedule = FlushSchedule()
    assert [schedule.following(moment) for moment in (100, 102, 104)] == [102, 104, 106]


def test_checkpoint_is_never_late() -> None:
    schedule = FlushSchedule()
    moments = [100 + number / 100 for number in range(1000)]
    for moment in moments:
        assert 1.8 < schedule.following(moment) - moment <= 2


def test_concurrent_turns_are_saved_together() -> None:
    schedule = FlushSchedule()
    assert len({schedule.following(100 + number / 1000) for number in range(1000)}) <= 9


def test_two_thousand_turns_are_saved_within_four_seconds() -> None:
    schedule = FlushSchedule()
    moments = [schedule.following(100) for _ in range(2000)]
    assert 102 <= moments[0] < moments[-1] < 104.1
    assert max(moments.count(moment) for moment in moments) == 125
    assert [schedule.following(moment) - moment < 2.1 for moment in moments].count(False) == 0


def test_any_number_of_turns_has_bounded_delay() -> None:
    schedule = FlushSchedule()
    assert max(schedule.following(100) for _ in range(30_000)) == 120
    assert schedule.following(130) == 132
