"""Slots of a model: a limited number at a time, in order of arrival, also if a waiter is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from mochi_stub.slots import Slots


async def waiting(slots: Slots, count: int) -> list[asyncio.Task[None]]:
    """Tasks that wait for a slot, in this order."""
    tasks = [asyncio.create_task(slots.wait()) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_released_slot_goes_to_the_next_waiter() -> None:
    slots = Slots(1)
    assert [slots.take(), slots.take()] == [True, False]
    first, second = await waiting(slots, 2)
    assert slots.waiting == 2
    slots.release()
    assert not slots.take()  # the waiters go first
    await first
    assert not second.done()
    slots.release()
    await second
    slots.release()
    assert (slots.taken, slots.take()) == (0, True)


@pytest.mark.parametrize("cancelled_first", [True, False])
async def test_slot_is_not_lost_when_its_next_waiter_is_cancelled(cancelled_first: bool) -> None:
    slots = Slots(1)
    slots.take()
    leaving, staying = await waiting(slots, 2)
    for step in (leaving.cancel, slots.release) if cancelled_first else (slots.release, leaving.cancel):
        step()
    await asyncio.wait_for(staying, 5)
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert (slots.taken, slots.waiting) == (1, 0)


def test_none_means_unlimited_slots() -> None:
    slots = Slots(None)
    assert all(slots.take() for _ in range(100))
