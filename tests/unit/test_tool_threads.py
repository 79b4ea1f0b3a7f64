"""Threads of hung tools: replaced up to a limit, and calls are refused beyond it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from mochi_server.telemetry.metrics import Metrics
from mochi_server.tools.discovery import Tool
from mochi_server.tools.execution import (
    MAX_PARALLEL_CALLS,
    MAX_THREADS,
    ToolExecutionResult,
    ToolExecutionService,
)
from mochi_server.tools.schema import make_schema

TIMEOUT = 0.1


class Tools:
    """Tool that hangs until released, and tools that return at once."""

    def __init__(self, timeout: float) -> None:
        self.metrics = Metrics()
        self.service = ToolExecutionService(
            timeout=timeout,
            on_lost=self.metrics.lost_threads.inc,
            on_refused=self.metrics.refused_calls.inc,
        )
        self.released = threading.Event()
        self.started: list[int] = []
        self._begins = threading.Semaphore(0)

    def hang(self) -> str:
        """Hang."""
        self.started.append(1)
        self._begins.release()
        self.released.wait(60)
        return "late"

    def add(self, a: int) -> str:
        """Add."""
        return str(a)

    async def later(self) -> str:
        """Answer on the event loop."""
        return "later"

    async def execute(self, name: str, **arguments: Any) -> ToolExecutionResult:
        function = getattr(self, name)
        return await self.service.execute(
            Tool(name, function, make_schema(function, name)), arguments
        )

    async def hang_all(self, count: int) -> list[ToolExecutionResult]:
        return await asyncio.gather(*(self.execute("hang") for _ in range(count)))

    async def wait_until_hanging(self, count: int) -> None:
        """Wait until `count` more calls have started to hang."""
        begins = [asyncio.to_thread(self._begins.acquire, timeout=60) for _ in range(count)]
        assert all(await asyncio.gather(*begins))

    def counter(self, name: str) -> float:
        return self.metrics.registry.get_sample_value(f"mochi_{name}_total") or 0.0


@asynccontextmanager
async def tools(tool_timeout: float = TIMEOUT) -> AsyncIterator[Tools]:
    service = Tools(tool_timeout)
    try:
        yield service
    finally:
        service.released.set()


async def test_calls_run_after_all_threads_have_hung() -> None:
    async with tools() as service:
        hung = await service.hang_all(MAX_PARALLEL_CALLS)
        assert not any(result.success for result in hung)
        result = await service.execute("add", a=1)
    assert (result.success, result.result) == (True, "1")
    assert service.counter("tool_threads_lost") == MAX_PARALLEL_CALLS
    assert service.counter("tool_calls_refused") == 0


async def test_concurrent_calls_are_limited() -> None:
    async with tools(tool_timeout=20) as service:
        hanging = asyncio.ensure_future(service.hang_all(2 * MAX_PARALLEL_CALLS))
        await service.wait_until_hanging(MAX_PARALLEL_CALLS)
        assert len(service.started) == MAX_PARALLEL_CALLS
        service.released.set()
        await hanging
        assert len(service.started) == 2 * MAX_PARALLEL_CALLS


async def test_call_is_refused_if_every_thread_is_lost() -> None:
    async with tools() as service:
        await service.hang_all(MAX_THREADS)
        assert len(service.started) == MAX_THREADS
        refused = await service.execute("add", a=1)
        unread = await service.execute("later")
        refusals = service.counter("tool_calls_refused")
        service.released.set()
        with anyio.fail_after(5):  # threads that return late are reused
            while not (reused := await service.execute("add", a=2)).success:
                await checkpoint()
    assert reused.result == "2"
    assert not refused.success
    assert "did not start" in str(refused.error_message)
    assert f"all {MAX_THREADS} threads" in str(refused.error_message)
    assert "took longer" not in str(refused.error_message)
    assert "its result could not be read" in str(unread.error_message)
    assert refusals == 2
    assert service.counter("tool_threads_lost") == MAX_THREADS


async def test_cancelled_call_frees_its_slot() -> None:
    async with tools() as service:
        running = [
            asyncio.ensure_future(service.execute("hang")) for _ in range(MAX_PARALLEL_CALLS)
        ]
        await service.wait_until_hanging(MAX_PARALLEL_CALLS)
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        assert (await service.execute("add", a=3)).result == "3"
        assert service.counter("tool_threads_lost") == MAX_PARALLEL_CALLS
