"""Fair scheduling on the event loop: one waiter runs per iteration, in order, and cancelled waiters are skipped."""

import asyncio
from itertools import pairwise

from mochi_server.util.fair_scheduler import FairScheduler


async def test_one_waiter_runs_per_loop_iteration_in_order() -> None:
    turns, passed = FairScheduler(), list[int]()

    async def wait(number: int) -> None:
        await turns.wait()
        passed.append(number)

    waiters = [asyncio.ensure_future(wait(number)) for number in range(4)]
    seen = []
    while not all(waiter.done() for waiter in waiters):
        await asyncio.sleep(0)
        seen.append(list(passed))
    assert seen[-1] == [0, 1, 2, 3]
    assert all(len(after) - len(before) <= 1 for before, after in pairwise(seen))


async def test_cancelled_waiter_does_not_block_others() -> None:
    turns = FairScheduler()
    first, second = asyncio.ensure_future(turns.wait()), asyncio.ensure_future(turns.wait())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait_for(second, 5)
    await asyncio.wait_for(turns.wait(), 5)
