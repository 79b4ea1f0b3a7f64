"""Position of a client in a stream, from `Last-Event-ID` or the query."""

import re
from dataclasses import dataclass

from mochi_server.chat.run import Run


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a client in a stream: the number of the last event that the client received, and the run ID.

    If ``run_id`` is None, the position is valid for any run.
    """

    number: int = 0
    run_id: str | None = None

    @classmethod
    def of(cls, after: str | None, last_event_id: str | None) -> "Position":
        """Parse an event ID or an event number as a position. Return the start of the stream for invalid values.

        ``last_event_id`` overrides ``after``, because an ``EventSource`` that reconnects updates only the header
        `Last-Event-ID` and not the query.
        """
        for value in (last_event_id or "", after or ""):
            run_id, _, number = value.rpartition(":")
            if re.fullmatch("[0-9]{1,18}", number):
                return cls(int(number), run_id or None)
        return cls()

    def within(self, run: Run) -> int:
        """Return the event number, limited to the last event of ``run``. For a position in another run, return 0."""
        return min(self.number, run.log.last) if self.run_id in (None, run.run_id) else 0
