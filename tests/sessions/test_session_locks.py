"""Session locks: one holder at a time, fair waiting, refusal and cancellation."""

import asyncio
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from mochi_server.errors import SessionBusy, SessionNotFound
from mochi_server.sessions import FileSessionStore
from mochi_server.sessions.change import Change, Notice
from mochi_server.storage.session_record import SessionLocks
from tests.sessions.samples import contents, new_session, stored_session, user

ID = "0123456789"


class Holder:
    """Task that holds the lock of `ID` until released, and records when it got it."""

    def __init__(
        self,
        holds: SessionLocks,
        log: list[str],
        name: str,
        *,
        is_turn: bool = True,
        wait: bool = True,
    ) -> None:
        self.holds, self.log, self.name, self.is_turn, self.wait = holds, log, name, is_turn, wait
        self.requested, self.released, self.ended = anyio.Event(), anyio.Event(), anyio.Event()
        self.scope = anyio.CancelScope()

    async def run(self) -> None:
        self.requested.set()
        with self.scope:
            try:
                async with self.holds.holding(
                    ID, run_id=self.name if self.is_turn else None, wait=self.wait
                ):
                    self.log.append(self.name)
                    await self.released.wait()
            except SessionBusy as busy:
                self.log.append(f"{self.name} refused by {busy.details['run_id']}")
        self.ended.set()

    async def start(self, tasks: TaskGroup) -> "Holder":
        tasks.start_soon(self.run)
        await self.requested.wait()
        await checkpoint()
        return self


async def test_waiters_get_the_lock_in_order() -> None:
    holds, log = SessionLocks(), list[str]()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            holders = [await Holder(holds, log, name).start(tasks) for name in "abcd"]
            assert log == ["a"]
            for holder in holders:
                holder.released.set()
    assert log == ["a", "b", "c", "d"]
    assert len(holds) == 0


async def test_short_lock_is_waited_for_without_if_busy() -> None:
    holds, log = SessionLocks(), list[str]()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            edit = await Holder(holds, log, "edit", is_turn=False).start(tasks)
            turn = await Holder(holds, log, "turn", wait=False).start(tasks)
            assert log == ["edit"]
            edit.released.set()
            turn.released.set()
    assert log == ["edit", "turn"]


async def test_waiter_for_an_edit_is_refused_if_a_turn_starts() -> None:
    holds, log = SessionLocks(), list[str]()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            edit = await Holder(holds, log, "edit", is_turn=False).start(tasks)
            first = await Holder(holds, log, "first", wait=False).start(tasks)
            second = await Holder(holds, log, "second", wait=False).start(tasks)
            edit.released.set()
            await second.ended.wait()
            first.released.set()
    assert log == ["edit", "first", "second refused by first"]
    assert len(holds) == 0


async def test_cancelled_waiter_delays_no_other_waiter() -> None:
    holds, log = SessionLocks(), list[str]()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            first = await Holder(holds, log, "first").start(tasks)
            second = await Holder(holds, log, "second").start(tasks)
            third = await Holder(holds, log, "third").start(tasks)
            second.scope.cancel()
            await second.ended.wait()
            first.released.set()
            third.released.set()
    assert log == ["first", "third"]
    assert len(holds) == 0


async def test_waiter_cancelled_on_wakeup_passes_the_lock_on() -> None:
    holds, log = SessionLocks(), list[str]()

    async def take(name: str) -> None:
        async with holds.holding(ID, run_id=name, wait=True):
            log.append(name)

    with anyio.fail_after(5):
        async with holds.holding(ID, run_id="first"):
            second, third = asyncio.create_task(take("second")), asyncio.create_task(take("third"))
            await checkpoint()
        second.cancel()
        await third
        with pytest.raises(asyncio.CancelledError):
            await second
    assert log == ["third"]
    assert len(holds) == 0


async def test_waiter_cancelled_before_the_release_is_skipped() -> None:
    holds, log = SessionLocks(), list[str]()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            second, third = Holder(holds, log, "second"), Holder(holds, log, "third")
            async with holds.holding(ID, run_id="first"):
                await second.start(tasks)
                await third.start(tasks)
                second.scope.cancel()
            third.released.set()
    assert log == ["third"]
    assert len(holds) == 0


async def test_different_sessions_do_not_wait_for_each_other() -> None:
    holds = SessionLocks()
    with anyio.fail_after(5):
        async with holds.holding(ID, run_id="a"), holds.holding("9876543210", run_id="b"):
            assert len(holds) == 2
    assert len(holds) == 0


async def test_cancelled_turn_releases_its_lock_with_all_saved(files: FileSessionStore) -> None:
    session = await stored_session(files)
    spoken = anyio.Event()

    async def turn() -> None:
        async with files.hold(session.session_id, run_id="r"):
            await files.write(session.session_id, Change([user("a")]))
            await files.write(session.session_id, Change([user("b")]))
            spoken.set()
            await anyio.sleep_forever()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn)
            await spoken.wait()
            tasks.cancel_scope.cancel()
        async with files.hold(session.session_id, run_id="next"):
            assert contents(await files.load(session.session_id)) == ["a", "b"]


async def test_running_write_finishes_before_cancellation(
    files: FileSessionStore,
) -> None:
    session = await stored_session(files)
    writing = asyncio.create_task(files.write(session.session_id, Change([user("a")])))
    await checkpoint()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert contents(await files.load(session.session_id)) == ["a"]


async def test_webhook_of_a_cancelled_write_is_delivered(files: FileSessionStore) -> None:
    session = await stored_session(files)
    notice = Notice("msg_a", session.session_id, "{}")
    writing = asyncio.create_task(files.write(session.session_id, Change(notices=[notice])))
    await checkpoint()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await files.undelivered() == [notice]
    assert await files.outbox.claim(60) == notice


async def test_lock_of_session_deleted_meanwhile_is_not_found(files: FileSessionStore) -> None:
    session = await stored_session(files)
    refused = anyio.Event()

    async def late() -> None:
        with pytest.raises(SessionNotFound):
            async with files.hold(session.session_id, run_id="late", wait=True):
                pass
        refused.set()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            async with files.hold(session.session_id, run_id="r"):
                tasks.start_soon(late)
                await checkpoint()
                await files.delete(session.session_id)
            await refused.wait()


async def test_first_sessions_of_a_missing_directory_are_all_stored(tmp_path: Path) -> None:
    for number in range(30):
        store = FileSessionStore(tmp_path / str(number))
        await asyncio.gather(*(store.create(new_session()) for _ in range(8)))
        await store.aclose()
        assert len(list(store.path.glob("*.json"))) == 8
