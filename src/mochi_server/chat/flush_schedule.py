"""Schedule for writing partial answers to disk."""

FLUSH_SECONDS = 2.0
_BATCH_SECONDS = 0.125
_FLUSHES_PER_BATCH = 125
_MAX_DELAY_SECONDS = 20.0


class FlushSchedule:
    """Schedule that flushes each partial answer every two seconds, with at most a thousand flushes per second.

    With more than two thousand concurrent turns, each turn is flushed less often. Several turns share one flush time,
    because a batch of flushes costs less than separate flushes.
    """

    def __init__(self) -> None:
        self._last = 0.0
        self._count = 0

    def following(self, moment: float) -> float:
        """Return the time of the next flush. ``moment`` is the current time. Both are seconds on the loop's clock."""
        latest = moment + FLUSH_SECONDS
        batch = max(latest - latest % _BATCH_SECONDS, self._last)
        if batch > self._last:
            self._last, self._count = batch, 0
        elif self._count >= _FLUSHES_PER_BATCH and batch + _BATCH_SECONDS <= moment + _MAX_DELAY_SECONDS:
            self._last, self._count = batch + _BATCH_SECONDS, 0
        self._count += 1
        return self._last
