"""Pacing of chunks, with a clock that only sleeping advances."""

from __future__ import annotations

import asyncio

import pytest
from anyio.lowlevel import checkpoint

from mochi_stub import Failure, Gate, Reasoning, Reply, Text, ToolCall, ToolCalls
from mochi_stub.replies import lorem
from mochi_stub.replies.chunks import MAX_BATCH, Piece, paced, pieces


class Clock:
    """Clock on which each sleep takes `lag` seconds longer than requested."""

    def __init__(self, lag: float = 0.0) -> None:
        self.time = 100.0
        self.lag = lag

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds + self.lag


async def timed_batches(
    reply: Reply, clock: Clock, speed: float = 1.0
) -> list[tuple[float, list[Piece]]]:
    """Return each batch with the time of its arrival in seconds after the start."""
    return [
        (round(clock.time - 100, 6), batch)
        async for batch in paced(pieces(reply), speed, now=clock.now, sleep=clock.sleep)
    ]


async def test_five_words_are_sent_every_tenth_of_a_second() -> None:
    batches = await timed_batches(Reply.of(lorem(500)), Clock())
    assert [moment for moment, _ in batches] == [round(0.1 * n, 6) for n in range(1, 101)]
    assert {len(batch) for _, batch in batches} == {1}


async def test_lag_of_the_clock_does_not_accumulate() -> None:
    moments = [moment for moment, _ in await timed_batches(Reply.of(lorem(500)), Clock(lag=0.03))]
    assert 10.0 <= moments[-1] <= 10.03


async def test_overdue_chunks_are_sent_at_once() -> None:
    batches = await timed_batches(Reply.of(lorem(50)), Clock(lag=0.35))
    assert [len(batch) for _, batch in batches] == [1, 3, 4, 2]


async def test_speed_scales_the_waiting_time() -> None:
    assert (await timed_batches(Reply.of(lorem(100)), Clock(), speed=4))[-1][0] == 0.5


async def test_speed_zero_does_not_wait() -> None:
    batches = await timed_batches(Reply.of(lorem(20_000)), Clock(), speed=0)
    assert {moment for moment, _ in batches} == {0.0}
    sizes = [len(batch) for _, batch in batches]
    assert sizes[:5] == [1, 4, 16, 64, 256]
    assert max(sizes) == MAX_BATCH
    assert sum(sizes) == 4000


async def test_durations_do_not_depend_on_the_speed() -> None:
    reply = Reply([Reasoning(lorem(12)), Text(("a b", "c")), ToolCalls([ToolCall("now")])])
    slow = [piece for _, batch in (await timed_batches(reply, Clock())) for piece in batch]
    assert slow == [
        piece for _, batch in (await timed_batches(reply, Clock(), speed=0)) for piece in batch
    ]
    assert [piece.due for piece in slow] == [n * 20_000_000 for n in (5, 10, 12, 14, 15, 20)]


async def test_gate_delays_the_chunks_after_it() -> None:
    clock, gate = Clock(), Gate()

    async def play() -> list[float]:
        moments = []
        gated = pieces(Reply([Text(lorem(5)), gate, Text(lorem(5))]))
        async for _ in paced(gated, 1, now=clock.now, sleep=clock.sleep):
            moments.append(round(clock.time - 100, 6))
            clock.time += 60 if len(moments) == 1 else 0
            gate.open()
        return moments

    assert await play() == [0.1, 60.1]


def test_gate_can_be_opened_after_its_server_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()

    async def leave() -> None:
        waiting = asyncio.ensure_future(gate.wait())
        await checkpoint()
        waiting.cancel()
        await asyncio.wait({waiting})

    asyncio.run(leave())
    gate.open()
    gate.open()
    asyncio.run(gate.wait())
    assert [record for record in caplog.records if record.name in ("asyncio", "mochi_stub")] == []


async def test_stream_lasts_until_its_planned_end() -> None:
    clock = Clock()

    async def play(speed: float) -> list[float]:
        begun = clock.time
        batches = paced(
            pieces(Reply.of(lorem(5))), speed, 3_000_000_000, now=clock.now, sleep=clock.sleep
        )
        return [round(clock.time - begun, 6) async for _ in batches]

    assert await play(2) == [0.05]
    assert clock.time == 101.5
    assert await play(0) == [0.0]
    assert clock.time == 101.5


def test_nothing_is_sent_after_a_failure() -> None:
    failure = Failure("kaput")
    kinds = [piece.value for piece in pieces(Reply([Text(("a",)), failure, Text(("b",))]))]
    assert kinds == ["a", failure]
