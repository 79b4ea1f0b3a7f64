"""Flushes of partial answers: bounded loss after a crash and bounded cost."""

import asyncio
import selectors
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mochi_server.chat.conversation import Flusher
from mochi_server.errors import InternalError, MochiError, StorageBusy
from mochi_server.sessions.types import Message
from mochi_server.storage.memory import MemorySessionStore
from tests.sessions.samples import assistant


class _SkippingSelector(selectors.SelectSelector):
    """Selector that moves the clock instead of waiting."""

    now = 100.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = _SkippingSelector()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


class _Store(MemorySessionStore):
    """Store that notes the time of each flush."""

    def __init__(self) -> None:
        super().__init__()
        self.flushes: list[tuple[str, float]] = []
        self.failures: list[MochiError] = []
        """Errors of the next flushes, for the first session of each."""
        self.slow: set[str] = set()
        """Sessions whose flushes take five seconds."""

    async def flush_all(self, partials: Mapping[str, Message]) -> Mapping[str, MochiError]:
        await asyncio.sleep(5 if self.slow & set(partials) else 0)
        self.flushes += [(session_id, asyncio.get_running_loop().time()) for session_id in partials]
        return {next(iter(partials)): self.failures.pop()} if self.failures else {}

    @property
    def times(self) -> list[float]:
        return [time for _, time in self.flushes]


def _partial() -> Message:
    return assistant("so f")


def _run(scenario: Callable[[_Store, Flusher], Awaitable[None]]) -> _Store:
    """Run a scenario and 100 seconds more on a clock that does not wait."""

    async def run() -> None:
        await scenario(store, Flusher(store))
        await asyncio.sleep(100)

    store, loop = _Store(), _Loop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    return store


def test_single_turn_is_saved_every_two_seconds() -> None:
    async def scenario(store: _Store, flusher: Flusher) -> None:
        while len(store.flushes) < 3:
            flusher.schedule("a", _partial)
            await asyncio.sleep(0.1)

    times = _run(scenario).times
    assert len(times) == 4  # the text after the third flush, too
    assert all(1.9 < later - earlier < 2.2 for earlier, later in zip([100, *times], times, strict=False))


def test_concurrent_turns_share_flushes_that_are_never_late() -> None:
    begun: dict[str, float] = {}

    async def scenario(_: _Store, flusher: Flusher) -> None:
        for number in range(200):
            begun[str(number)] = asyncio.get_running_loop().time()
            flusher.schedule(str(number), _partial)
            await asyncio.sleep(0.01)

    store = _run(scenario)
    assert len(store.flushes) == 200
    assert all(1.4 < time - begun[session_id] < 2.01 for session_id, time in store.flushes)
    assert len(set(store.times)) <= 5


def test_two_thousand_turns_are_saved_within_four_seconds() -> None:
    async def scenario(_: _Store, flusher: Flusher) -> None:
        for number in range(2000):
            flusher.schedule(str(number), _partial)

    store = _run(scenario)
    assert len(store.flushes) == 2000
    assert max(store.times) < 104.1
    assert max(Counter(store.times).values()) == 125


def test_any_number_of_turns_has_bounded_delay() -> None:
    async def scenario(_: _Store, flusher: Flusher) -> None:
        for number in range(30_000):
            flusher.schedule(str(number), _partial)

    store = _run(scenario)
    assert len(store.flushes) == 30_000
    assert max(store.times) <= 120


def test_finished_turn_is_not_saved_again() -> None:
    async def scenario(store: _Store, flusher: Flusher) -> None:
        flusher.schedule("scheduled", _partial)
        await flusher.finish("scheduled")
        store.slow = {"running"}
        store.failures = [InternalError()]
        flusher.schedule("running", _partial)
        await asyncio.sleep(3)
        await flusher.finish("running")
        assert store.flushes == [("running", 107)]

    assert len(_run(scenario).flushes) == 1


def test_failed_flush_is_repeated() -> None:
    async def scenario(store: _Store, flusher: Flusher) -> None:
        store.failures = [StorageBusy("locked")]
        flusher.schedule("a", _partial)

    assert _run(scenario).times == [102, 104]


def test_locked_session_is_flushed_again_at_once_and_apart() -> None:
    async def scenario(store: _Store, flusher: Flusher) -> None:
        store.failures = [StorageBusy("locked")]
        flusher.schedule("locked", _partial)
        flusher.schedule("other", _partial)

    assert _run(scenario).flushes == [("locked", 102), ("other", 102), ("locked", 102)]


def test_slow_flush_delays_only_its_session() -> None:
    async def scenario(store: _Store, flusher: Flusher) -> None:
        store.flushes_together, store.slow = False, {"slow"}
        flusher.schedule("slow", _partial)
        flusher.schedule("other", _partial)
        await asyncio.sleep(2.5)
        flusher.schedule("other", _partial)
        await flusher.finish("other")
        assert store.flushes == [("other", 102)]
        flusher.schedule("other", _partial)
        await flusher.finish("slow")
        assert store.flushes == [("other", 102), ("other", 104.5), ("slow", 107)]

    _run(scenario)


def test_answer_without_text_is_not_saved() -> None:
    async def scenario(_: _Store, flusher: Flusher) -> None:
        flusher.schedule("a", lambda: None)
        await asyncio.sleep(3)
        flusher.schedule("a", _partial)

    assert _run(scenario).times == [105]
