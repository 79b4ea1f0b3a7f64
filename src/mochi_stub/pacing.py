"""Pieces over time. Each has an absolute deadline, so that one late piece does not delay those behind it."""

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
    """The monotonic clock of the system."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def paced(pieces: Iterable[Piece], clock: Clock, speed: float, end: int = 0) -> AsyncGenerator[list[Piece], None]:
    """Yield the pieces when they are due, `speed` times as fast as planned, those due together in one list.

    It lasts until `end`, in nanoseconds after the start, even if the last piece is due earlier. Speed 0 never waits.
    The lists grow from one piece to `MAX_BATCH`, so that the first piece is sent at once. A gate is waited for at any
    speed, and moves the deadlines behind it.
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
    left = start + end / 1e9 / speed - clock.now() if speed else 0.0
    if left > 0:
        await clock.sleep(left)
