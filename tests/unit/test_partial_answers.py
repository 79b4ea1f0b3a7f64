"""Writes of partial answers while the model writes, so that a crash loses only the last seconds of
text.
"""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any

from mochi_server.chat.answer import AnswerBuilder
from mochi_server.chat.conversation import Conversation
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.writer import TurnWriter
from mochi_server.errors import InternalError, MochiError
from mochi_server.sessions.change import Change
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import SessionCreationOptions
from mochi_server.storage.memory import MemorySessionStore


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
    """Store that notes the time and the text of each flush."""

    def __init__(self) -> None:
        super().__init__()
        self.flushes: list[tuple[float, str]] = []
        self.failure: MochiError | None = None
        """Error of the next flush."""
        self.seconds = 0.0
        """Duration of a flush."""

    async def write(self, session_id: str, change: Change) -> int:
        if change.partial is None:
            return await super().write(session_id, change)
        await asyncio.sleep(self.seconds)
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        self.flushes.append(
            (round(asyncio.get_running_loop().time(), 1), change.partial["content"])
        )
        return 0


class _Turn:
    """Turn in which a test plays the model."""

    def __init__(self, store: _Store, writer: TurnWriter) -> None:
        self.store = store
        self.writer = writer
        self.answer = AnswerBuilder("mochi", lambda _: None, 8)
        writer.partial_answer.builder = self.answer

    def receive(self, text: str) -> None:
        self.answer.feed([{"message": {"content": text}}])
        self.writer.schedule_flush()


def _flushes(scenario: Callable[[_Turn], Awaitable[None]]) -> list[tuple[float, str]]:
    """Run a scenario, and 100 seconds more, on a clock that does not wait. Return the flushes."""

    async def run() -> list[tuple[float, str]]:
        store = _Store()
        session = await store.create(ChatSession.create(SessionCreationOptions("mochi")))
        writer = TurnWriter(Conversation(session.session_id, store), session, TurnInput("Hi"), "r1")
        writer.begin()
        await scenario(_Turn(store, writer))
        await asyncio.sleep(100)
        return store.flushes

    loop = _Loop()
    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()


def test_text_is_stored_every_two_seconds() -> None:
    async def scenario(turn: _Turn) -> None:
        for _ in range(50):
            turn.receive("x")
            await asyncio.sleep(0.1)

    assert [time for time, _ in _flushes(scenario)] == [102, 104.1, 106.2]
    assert _flushes(scenario)[-1][1] == "x" * 50


def test_complete_answer_is_not_stored_as_partial() -> None:
    async def scenario(turn: _Turn) -> None:
        turn.receive("Hello")
        await turn.writer.add_answer(turn.answer.message(), is_last=True)

    assert _flushes(scenario) == []


def test_answer_is_added_after_a_running_flush() -> None:
    async def scenario(turn: _Turn) -> None:
        turn.store.seconds = 5
        turn.receive("Hello")
        await asyncio.sleep(3)
        await turn.writer.add_answer(turn.answer.message(), is_last=True)
        assert turn.store.flushes == [(107, "Hello")]

    assert _flushes(scenario) == [(107, "Hello")]


def test_flush_follows_a_failed_flush() -> None:
    async def scenario(turn: _Turn) -> None:
        turn.store.failure = InternalError()
        turn.receive("Hel")
        await asyncio.sleep(3)
        turn.receive("lo")

    assert _flushes(scenario) == [(105, "Hello")]
