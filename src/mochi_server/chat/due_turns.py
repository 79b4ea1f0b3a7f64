"""Times at which stored turns continue without a request of a client."""

import time
from collections.abc import Mapping


class DueTurns:
    """Times at which turns continue alone, as Unix times by session ID."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._paused_until: dict[str, float] = {}

    def add(self, session_id: str, at: float) -> None:
        self._due[session_id] = at

    def add_found(self, due: Mapping[str, float]) -> None:
        """Add the turns that a search of the store has found. A pause of a turn stays."""
        for session_id, at in due.items():
            self._due[session_id] = max(at, self._paused_until.get(session_id, at))

    def pause(self, session_id: str, seconds: float) -> None:
        """Continue a turn after a pause, also if a search of the store finds it before."""
        at = time.time() + seconds
        self._due[session_id] = at
        self._paused_until[session_id] = at

    def remove(self, session_id: str) -> None:
        """Do not continue a turn alone, because it continues now or has ended."""
        self._due.pop(session_id, None)
        self._paused_until.pop(session_id, None)

    def take_due(self) -> list[str]:
        """Remove the turns that are due now, and return the IDs of their sessions."""
        now = time.time()
        due = [session_id for session_id, at in self._due.items() if at <= now]
        for session_id in due:
            self.remove(session_id)
        return due
