"""Limits of runs, and of the turns of each API key."""

import math
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mochi_server.errors import RateLimited
from mochi_server.sessions.caller import Caller


@dataclass(frozen=True)
class RunLimits:
    """Limits of the runs of one server, in bytes and seconds."""

    log_bytes: int = 8 * 1024 * 1024
    """Maximum memory for the events of one run."""
    scan_seconds: float = 2
    """Interval of the search for suspended turns that continue without a decision."""


DEFAULT_LIMITS = RunLimits()


class TurnLimiter:
    """Counter of the turns of each key in this process."""

    def __init__(self) -> None:
        self._running = Counter[str]()
        # Times of the last minute, oldest first.
        self._started: dict[str, deque[float]] = defaultdict(deque)

    @contextmanager
    def turn(self, caller: Caller) -> Iterator[None]:
        """Count a turn of the caller while the context is open. Raises ``RateLimited``.

        A turn that an error refuses does not count among those of the last minute.
        """
        started, now = self._started[caller.key], time.monotonic()
        while started and started[0] <= now - 60:
            started.popleft()
        if self._running[caller.key] >= (caller.turns_at_a_time or math.inf):
            raise RateLimited(f"{caller.turns_at_a_time} turns at a time", 1)
        if len(started) >= (caller.turns_per_minute or math.inf):
            raise RateLimited(
                f"{caller.turns_per_minute} turns per minute", math.ceil(started[0] + 60 - now)
            )
        started.append(now)
        self._running[caller.key] += 1
        try:
            yield
        except BaseException:
            if now in started:
                started.remove(now)
            raise
        finally:
            self._running[caller.key] -= 1
