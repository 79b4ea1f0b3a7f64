"""Position of a client in a stream, from `Last-Event-ID` or the query."""

import re
from dataclasses import dataclass

from mochi_server.chat.run import Run


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a client in a stream: the number of the last received event and, if sent, the run ID."""

    number: int = 0
    run_id: str | None = None

    @classmethod
    def of(cls, after: str | None, last_event_id: str | None) -> "Position":
        """Return the position after an event ID or an event number. Invalid values mean the beginning.

        The header overrides the query, because a reconnecting ``EventSource`` updates only the header.
        """
        for value in (last_event_id or "", after or ""):
            run_id, _, number = value.rpartition(":")
            if re.fullmatch("[0-9]{1,18}", number):
                return cls(int(number), run_id or None)
        return cls()

    def within(self, run: Run) -> int:
        """Return the event number in ``run``, at most the last one. A position in another run means 0."""
        return min(self.number, run.log.last) if self.run_id in (None, run.run_id) else 0
