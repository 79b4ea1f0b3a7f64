"""When the partial answers of running turns are written to disk."""

FLUSH_SECONDS = 2.0
_MOMENT_SECONDS = 0.125
_FLUSHES_PER_MOMENT = 125
_LONGEST_SECONDS = 20.0


class FlushSchedule:
    """When partial answers are flushed: after two seconds at most, and at most a thousand a second of all turns.

    More than two thousand turns at a time are flushed less often: disk and processor would otherwise be busier with
    flushes than with answers. Flushes of many turns share moments: together they cost less.
    """

    def __init__(self) -> None:
        self._last = 0.0
        self._count = 0

    def following(self, moment: float) -> float:
        """Return when an answer that begins, or is flushed, at this moment is flushed next, on the same clock."""
        latest = moment + FLUSH_SECONDS
        wanted = max(latest - latest % _MOMENT_SECONDS, self._last)
        if wanted > self._last:
            self._last, self._count = wanted, 0
        elif self._count >= _FLUSHES_PER_MOMENT and wanted + _MOMENT_SECONDS <= moment + _LONGEST_SECONDS:
            self._last, self._count = wanted + _MOMENT_SECONDS, 0
        self._count += 1
        return self._last
