"""Pieces over time. Each has an absolute deadline, so that waiting too long once does not delay what follows.

This module does not know what the pieces say nor who reads them; the clock is handed in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from itertools import islice
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


async def paced(pieces: Iterable[Piece], clock: Clock, speed: float, end: int = 0) -> AsyncGenerator[list[Piece], None]:
    """Yield the pieces when they are due, `speed` times as fast as planned, those due together in one list.

    It lasts until `end`, nanoseconds after the start, also where the last piece is due before.
    Speed 0 waits for nothing; the lists then grow from one piece to `MAX_BATCH`, so that the first is out at once.
    A gate is waited for at any speed, and moves the deadlines behind it.
    """
    if not speed:
        for batch in _grown(pieces):
            if batch[0].kind is Gate:
                await batch[0].value.wait()
            else:
                yield batch
        return
    start = clock.now()
    batch = []
    limit = 1
    for piece in pieces:
        wait = start + piece.due / 1e9 / speed - clock.now()
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
    left = start + end / 1e9 / speed - clock.now()
    if left > 0:
        await clock.sleep(left)


def _grown(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """All pieces, in ever longer lists; a gate is a list of its own."""
    limit = 1
    source = iter(pieces)
    while batch := list(islice(source, limit)):
        limit = min(limit * 4, MAX_BATCH)
        begin = 0
        for gate in [at for at, piece in enumerate(batch) if piece.kind is Gate]:
            if gate > begin:
                yield batch[begin:gate]
            yield [batch[gate]]
            begin = gate + 1
        if begin < len(batch):
            yield batch[begin:] if begin else batch
