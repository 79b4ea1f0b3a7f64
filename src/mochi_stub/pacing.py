"""Pieces over time. Each has an absolute deadline, so that waiting too long once does not delay what follows.

This module does not know what the pieces say nor who reads them; the clock is handed in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from typing import Protocol

from mochi_stub.chunks import Piece
from mochi_stub.reply import Gate

MAX_BATCH = 512


class Clock(Protocol):
    """Seconds since any fixed moment, and a way to let them pass."""

    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class RealClock:
    """The clock on the wall, unmoved by adjustments of the date."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def paced(pieces: Iterable[Piece], clock: Clock, speed: float) -> AsyncGenerator[list[Piece], None]:
    """Yield the pieces when they are due, `speed` times as fast as planned, those due together in one list.

    Speed 0 waits for nothing; the lists then grow from one piece to `MAX_BATCH`, so that the first is out at once.
    A gate is waited for at any speed, and moves the deadlines behind it.
    """
    start = clock.now()
    batch: list[Piece] = []
    limit = 1
    for piece in pieces:
        wait = start + piece.due / 1e9 / speed - clock.now() if speed else 0.0
        if batch and (wait > 0 or len(batch) >= limit or piece.kind is Gate):
            yield batch
            batch, limit = [], min(limit * 4, MAX_BATCH)
        if wait > 0:
            await clock.sleep(wait)
        if piece.kind is Gate:
            closed = clock.now()
            await piece.value.wait()
            start += clock.now() - closed
        else:
            batch.append(piece)
    if batch:
        yield batch
