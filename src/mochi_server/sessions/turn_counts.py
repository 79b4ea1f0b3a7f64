"""Counts of the turns of API keys, at all servers that share the sessions."""

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from mochi_server.errors import RateLimited
from mochi_server.sessions.caller import Caller

MINUTE_SECONDS = 60


class CountedTurn(NamedTuple):
    """Turn that counts as running."""

    turn_id: str  # of this count only
    key: str  # name of the API key
    began: float | None = None
    """Unix time in seconds from which the turn counts as started, or None if it does not."""


class TurnCounter(Protocol):
    """Protocol of the numbers of turns that run, and that have started in the last minute."""

    async def begin(self, turn_id: str, caller: Caller) -> CountedTurn:
        """Count a turn as running and started.

        Raises ``RateLimited`` at a limit of the caller, and ``StorageFailed``.
        """
        raise NotImplementedError

    async def begin_again(self, turn_id: str, key: str, at_most: int | None = None) -> CountedTurn:
        """Count a turn that continues as running.

        Raises ``RateLimited`` if ``at_most`` turns of the key run, and ``StorageFailed``.
        """
        raise NotImplementedError

    async def end(self, turn: CountedTurn, *, has_started: bool) -> None:
        """Count a turn no longer as running, and if not ``has_started``, nor as started.

        The turn may never have been counted.
        """


def check_limits(caller: Caller, running: int, began: Sequence[float], now: float) -> None:
    """Raise ``RateLimited`` if the caller may not start another turn.

    ``began`` has the times of the starts in the last minute.
    """
    check_running(caller.turns_at_a_time, running)
    per_minute = caller.turns_per_minute
    if per_minute is None or len(began) < per_minute:
        return
    next_start = min(began) + MINUTE_SECONDS
    seconds = math.ceil(next_start - now)
    raise RateLimited(f"{_turns(per_minute)} per minute", max(seconds, 1))


def check_running(at_most: int | None, running: int) -> None:
    """Raise ``RateLimited`` if ``at_most`` turns run already."""
    if at_most is None or running < at_most:
        return
    raise RateLimited(f"{_turns(at_most)} at a time", 1)


def _turns(number: int) -> str:
    return "1 turn" if number == 1 else f"{number} turns"


@dataclass
class _KeyTurns:
    running: set[str] = field(default_factory=set)
    began: list[float] = field(default_factory=list)


class LocalTurnCounter(TurnCounter):
    """``TurnCounter`` of a server that shares its sessions with no other server."""

    def __init__(self) -> None:
        self._keys: dict[str, _KeyTurns] = defaultdict(_KeyTurns)

    async def begin(self, turn_id: str, caller: Caller) -> CountedTurn:
        turns, now = self._keys[caller.key], time.time()
        turns.began = [began for began in turns.began if began > now - MINUTE_SECONDS]
        check_limits(caller, len(turns.running), turns.began, now)
        turns.running.add(turn_id)
        turns.began.append(now)
        return CountedTurn(turn_id, caller.key, now)

    async def begin_again(self, turn_id: str, key: str, at_most: int | None = None) -> CountedTurn:
        running = self._keys[key].running
        check_running(at_most, len(running))
        running.add(turn_id)
        return CountedTurn(turn_id, key)

    async def end(self, turn: CountedTurn, *, has_started: bool) -> None:
        turns = self._keys[turn.key]
        turns.running.discard(turn.turn_id)
        if not has_started and turn.began in turns.began:
            turns.began.remove(turn.began)
