"""Execution of tools with a timeout, each synchronous call in its own daemon thread.

A hung tool therefore blocks neither file I/O nor the exit of the server. The thread of a call that timed out or was
cancelled is lost until it returns; other threads replace it, up to a maximum in all.
"""

import asyncio
import contextvars
import inspect
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

import anyio
from pydantic_core import to_json

from mochi_server.tools.discovery import Tool
from mochi_server.tools.schema import InvalidArguments
from mochi_server.util.clock import now

T = TypeVar("T")

HISTORY_KEPT = 100
THREADS = 32
"""Maximum of running calls."""
MAX_THREADS = 128
"""Maximum of threads, including lost ones."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ToolExecutionResult:
    """Result of a call. ``execution_time`` is in seconds; ``result`` is text, cut to the limit."""

    success: bool
    result: str | None
    error_message: str | None
    execution_time: float
    tool_name: str
    timestamp: str = field(default_factory=now)


class ToolExecutionService:
    """Runs tools and keeps the last 100 results. ``output_limit`` is in characters, ``timeout`` in seconds.

    ``on_lost`` is called for a call that ended before its thread, ``on_refused`` for one that found no free thread.
    """

    def __init__(
        self,
        *,
        timeout: float = 60,
        output_limit: int = 20_000,
        on_lost: Callable[[], object] = lambda: None,
        on_refused: Callable[[], object] = lambda: None,
    ) -> None:
        self._timeout = timeout
        self._limit = output_limit
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._at_work = asyncio.Semaphore(THREADS)
        self._threads = asyncio.Semaphore(MAX_THREADS)
        self._history: deque[ToolExecutionResult] = deque(maxlen=HISTORY_KEPT)

    async def execute(self, tool: Tool, arguments: dict[str, Any]) -> ToolExecutionResult:
        """Check the arguments and run the tool. Whatever the tool does wrong is in the result, never raised."""
        try:
            return await self.execute_bound(tool, tool.schema.bind(arguments))
        except InvalidArguments as wrong:
            return self._record(tool, None, f"Wrong arguments for {tool.name}: {wrong}", 0.0)

    async def execute_bound(self, tool: Tool, arguments: inspect.BoundArguments) -> ToolExecutionResult:
        """Run the tool with validated arguments. Whatever the tool does wrong is in the result, never raised."""
        started = time.monotonic()
        try:
            text, error = await self._run(tool, arguments), None
        except ToolRaised as raised:
            text, error = None, shortened(f"{tool.name} failed: {raised}", self._limit)
        return self._record(tool, text, error, round(time.monotonic() - started, 6))

    def _record(self, tool: Tool, text: str | None, error: str | None, seconds: float) -> ToolExecutionResult:
        result = ToolExecutionResult(error is None, text, error, seconds, tool.name)
        self._history.append(result)
        return result

    def history(self) -> list[ToolExecutionResult]:
        """Return the last 100 results, oldest first."""
        return list(self._history)

    def statistics(self) -> dict[str, Any]:
        """Return counts and mean time of the last 100 results, in total and by tool."""
        names = sorted({run.tool_name for run in self._history})
        by_tool = {name: _statistics([run for run in self._history if run.tool_name == name]) for name in names}
        return {**_statistics(self._history), "by_tool": by_tool}

    async def _run(self, tool: Tool, bound: inspect.BoundArguments) -> str:
        def finish(value: object) -> str:
            return shortened(as_text(value), self._limit)

        if not inspect.iscoroutinefunction(tool.function):
            return await self._in_thread(lambda: finish(tool.function(*bound.args, **bound.kwargs)), "it did not start")
        with self._limited():
            value = await _guarded(tool.function(*bound.args, **bound.kwargs))
        return await self._in_thread(lambda: finish(value), "it ran, but its result could not be read")

    async def _in_thread(self, work: Callable[[], str], consequence: str) -> str:
        """Run a function in a thread, once fewer than the limit are at work. Raises ``ToolRaised``."""
        async with self._at_work:
            if self._threads.locked():
                self._on_refused()
                raise ToolRaised(f"{consequence}: all {MAX_THREADS} threads are taken by calls that have not returned")
            with self._limited():
                return await in_thread(work, self._threads, self._on_lost)

    @contextmanager
    def _limited(self) -> Iterator[None]:
        try:
            with anyio.fail_after(self._timeout):
                yield
        except TimeoutError:
            raise ToolRaised(f"it took longer than {self._timeout:g} seconds and was given up") from None


class ToolRaised(Exception):
    """The error of user code as text, so that nothing else that it raises reaches the event loop."""


async def in_thread(
    function: Callable[[], T], slots: asyncio.Semaphore, lost: Callable[[], object] = lambda: None
) -> T:
    """Run a function in a daemon thread of its own, when there is a slot. Raises ``ToolRaised`` for what it raises.

    Cancellation ends the wait, not the thread, which keeps its slot until it ends. ``lost`` is called in that case.
    """
    loop = asyncio.get_running_loop()
    await slots.acquire()
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()

    def work() -> None:
        try:
            outcome.set_result(function())
        except BaseException as failure:  # user code may raise anything, SystemExit included
            outcome.set_exception(_to_tool_raised(failure))
        with suppress(RuntimeError):  # the server ended before the tool
            loop.call_soon_threadsafe(slots.release)

    threading.Thread(target=contextvars.copy_context().run, args=(work,), name="tool", daemon=True).start()
    try:
        return await asyncio.wrap_future(outcome)
    except asyncio.CancelledError:
        if not outcome.done():
            lost()
        raise


def as_text(value: object) -> str:
    """Return a tool's result as text for a model. Structures become JSON, lone surrogates "?"."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if value is None:
        return "Done; there is no result."
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, Enum):
        return as_text(value.value)
    return to_json(value, fallback=str, inf_nan_mode="strings").decode("utf-8", "replace")


def shortened(text: str, limit: int) -> str:
    """Return at most ``limit`` characters of a text: its head, a note about the cut, its tail."""
    if len(text) <= limit:
        return text
    note = f"\n[... {len(text) - limit} characters left out ...]\n"
    room = max(limit - len(note), 0)
    head = room - room // 2
    return text[:head] + note + (text[-(room // 2) :] if room // 2 else "")


async def _guarded(work: Coroutine[Any, Any, T]) -> T:
    """Run user code in a task of its own, so that it cannot cancel the caller."""
    task = asyncio.get_running_loop().create_task(_contained(work))
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        raise
    if task.cancelled():
        raise ToolRaised("CancelledError: it was cancelled")
    return task.result()


async def _contained(work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    except (asyncio.CancelledError, ToolRaised):
        raise
    except BaseException as failure:  # as in a thread
        raise _to_tool_raised(failure) from None


def _to_tool_raised(failure: BaseException) -> ToolRaised:
    logger.info("A tool raised %s", type(failure).__name__)
    try:
        return ToolRaised(as_text(f"{type(failure).__name__}: {failure}"))
    except Exception:  # its own __str__ may fail
        return ToolRaised(type(failure).__name__)


def _statistics(runs: Collection[ToolExecutionResult]) -> dict[str, Any]:
    succeeded = sum(run.success for run in runs)
    mean = sum(run.execution_time for run in runs) / len(runs) if runs else 0.0
    return {"total": len(runs), "succeeded": succeeded, "failed": len(runs) - succeeded, "mean_seconds": round(mean, 6)}
