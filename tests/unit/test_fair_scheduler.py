"""Fair scheduling on the event loop: few waiters run per iteration, in order, and cancelled waiters are skipped."""

import asyncio
from itertools import pairwise

import pytest

from mochi_server.util.fair_scheduler import FairScheduler


@pytest.mark.parametrize("per_iteration", [1, 3])
async def test_few_waiters_run_per_loop_iteration_in_order(per_iteration: int) -> None:
    turns, passed = FairScheduler(per_iteration), list[int]()

    async def wait(number: int) -> None:
        await turns.wait()
        passed.append(number)

    waiters = [asyncio.ensure_future(wait(number)) for number in range(8)]
    seen = []
    while not all(waiter.done() for waiter in waiters):
        await asyncio.sleep(0)
        seen.append(list(passed))
    assert seen[-1] == list(range(8))
    assert max(len(after) - len(before) for before, after in pairwise([[], *seen])) == per_iteration


async def test_cancelled_waiter_does_not_block_others() -> None:
    turns = FairScheduler()
    first, second = asyncio.ensure_future(turns.wait()), asyncio.ensure_future(turns.wait())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait_for(second, 5)
    await asyncio.wait_for(turns.wait(), 5)
