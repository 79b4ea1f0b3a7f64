"""Turns on the event loop: in order, one in a round, and nobody waits for who has left."""

import asyncio
from itertools import pairwise

from mochi_server.turns import Turns


def test_one_passes_in_each_round_in_the_order_in_which_they_came() -> None:
    async def rounds() -> list[list[int]]:
        turns, passed = Turns(), list[int]()

        async def visitor(number: int) -> None:
            await turns.mine()
            passed.append(number)

        visitors = [asyncio.ensure_future(visitor(number)) for number in range(4)]
        seen = []
        while not all(one.done() for one in visitors):
            await asyncio.sleep(0)
            seen.append(list(passed))
        return seen

    seen = asyncio.run(rounds())
    assert seen[-1] == [0, 1, 2, 3]
    assert all(len(after) - len(before) <= 1 for before, after in pairwise(seen))


def test_who_leaves_holds_nobody_up() -> None:
    async def second_passes() -> None:
        turns = Turns()
        first, second = asyncio.ensure_future(turns.mine()), asyncio.ensure_future(turns.mine())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait_for(second, 5)
        await asyncio.wait_for(turns.mine(), 5)

    asyncio.run(second_passes())
