"""Running a tool: apart from the server, within a time, with a result that a model can read.

Each synchronous call has a daemon thread of its own, so that a hung tool costs one thread, never the server's file
I/O, and never the exit. A thread whose call timed out or was cancelled is lost until it returns: another one takes its
place at work, as long as there are not too many in all.
"""

import asyncio
import contextvars
import inspect
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

import anyio
from pydantic_core import to_json

from mochi_server.sessions.session import now
from mochi_server.tools.discovery import Tool
from mochi_server.tools.schema import WrongArguments

T = TypeVar("T")

HISTORY_KEPT = 100
THREADS = 32
"""Threads at work: calls that a turn waits for."""
MAX_THREADS = 128
"""Threads in all, lost ones included."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ToolExecutionResult:
    """How a call went. ``execution_time`` is in seconds; ``result`` is text, cut to the limit."""

    success: bool
    result: str | None
    error_message: str | None
    execution_time: float
    tool_name: str
    timestamp: str = field(default_factory=now)


class ThreadWatch:
    """Counts of the threads of tools. Does nothing; subclasses count."""

    def thread_lost(self) -> None:
        """A call has ended before its thread did."""

    def call_refused(self) -> None:
        """A call did not start, because every thread is lost."""


class ToolExecutionService:
    """Runs tools and remembers the last hundred runs. ``output_limit`` is in characters, ``timeout`` in seconds."""

    def __init__(self, *, timeout: float = 60, output_limit: int = 20_000, watch: ThreadWatch | None = None) -> None:
        self._timeout = timeout
        self._limit = output_limit
        self._watch = watch or ThreadWatch()
        self._at_work = asyncio.Semaphore(THREADS)
        self._threads = asyncio.Semaphore(MAX_THREADS)
        self._history: deque[ToolExecutionResult] = deque(maxlen=HISTORY_KEPT)

    async def execute(self, tool: Tool, arguments: dict[str, Any]) -> ToolExecutionResult:
        """Check the arguments and run the tool. Whatever the tool does wrong is in the result, never raised."""
        try:
            return await self.execute_bound(tool, tool.schema.bind(arguments))
        except WrongArguments as wrong:
            return self._record(tool, None, f"Wrong arguments for {tool.name}: {wrong}", 0.0)

    async def execute_bound(self, tool: Tool, arguments: inspect.BoundArguments) -> ToolExecutionResult:
        """Run the tool with validated arguments. Whatever the tool does wrong is in the result, never raised."""
        started = time.monotonic()
        try:
            text, error = await self._run(tool, arguments), None
        except Raised as raised:
            text, error = None, shortened(f"{tool.name} failed: {raised}", self._limit)
        return self._record(tool, text, error, round(time.monotonic() - started, 6))

    def _record(self, tool: Tool, text: str | None, error: str | None, seconds: float) -> ToolExecutionResult:
        result = ToolExecutionResult(error is None, text, error, seconds, tool.name)
        self._history.append(result)
        return result

    def history(self) -> list[ToolExecutionResult]:
        """The last hundred runs, oldest first."""
        return list(self._history)

    def statistics(self) -> dict[str, Any]:
        """Counts and mean time over the remembered runs, in all and by tool."""
        runs = self.history()
        names = sorted({run.tool_name for run in runs})
        by_tool = {name: _statistics([run for run in runs if run.tool_name == name]) for name in names}
        return {**_statistics(runs), "by_tool": by_tool}

    async def _run(self, tool: Tool, bound: inspect.BoundArguments) -> str:
        def finish(value: object) -> str:
            return shortened(as_text(value), self._limit)

        if not inspect.iscoroutinefunction(tool.function):
            return await self._in_thread(lambda: finish(tool.function(*bound.args, **bound.kwargs)), "it did not start")
        with self._limited():
            value = await _guarded(tool.function(*bound.args, **bound.kwargs))
        return await self._in_thread(lambda: finish(value), "it ran, but its result could not be read")

    async def _in_thread(self, work: Callable[[], str], consequence: str) -> str:
        """Run a function in a thread, once fewer than the limit are at work. Raises ``Raised``."""
        async with self._at_work:
            if self._threads.locked():
                self._watch.call_refused()
                raise Raised(f"{consequence}: all {MAX_THREADS} threads are taken by calls that have not returned")
            with self._limited():
                return await in_thread(work, self._threads, self._watch.thread_lost)

    @contextmanager
    def _limited(self) -> Iterator[None]:
        try:
            with anyio.fail_after(self._timeout):
                yield
        except TimeoutError:
            raise Raised(f"it took longer than {self._timeout:g} seconds and was given up") from None


class Raised(Exception):
    """What user code raised, as text: nothing it may raise reaches the event loop. A tool may raise it itself."""


async def in_thread(function: Callable[[], T], slots: asyncio.Semaphore, lost: Callable[[], None] = lambda: None) -> T:
    """Run a function in a daemon thread of its own, when there is a slot. Raises ``Raised`` for what it raises.

    Cancelling stops the waiting, not the thread, which keeps its slot until it ends; ``lost`` is called then.
    """
    loop = asyncio.get_running_loop()
    await slots.acquire()
    done: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: Raised | None) -> None:
        slots.release()
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(value)  # type: ignore[arg-type]  # a value where there is no error

    def work() -> None:
        value, error = None, None
        try:
            value = function()
        except BaseException as failure:  # user code may raise anything, SystemExit included
            error = _raised(failure)
        with suppress(RuntimeError):  # the server ended before the tool did
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=contextvars.copy_context().run, args=(work,), name="tool", daemon=True).start()
    try:
        return await done
    except asyncio.CancelledError:
        if done.cancelled():
            lost()
        raise


def as_text(value: object) -> str:
    """A tool's result as a model reads it: text as it is, structures as JSON; half characters become "?"."""
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
    """A text of at most ``limit`` characters: its head and its tail, and how much is missing between them."""
    if len(text) <= limit:
        return text
    note = f"\n[... {len(text) - limit} characters left out ...]\n"
    room = max(limit - len(note), 0)
    head = room - room // 2
    return text[:head] + note + (text[-(room // 2) :] if room // 2 else "")


async def _guarded(work: Coroutine[Any, Any, T]) -> T:
    """The result of user code on the loop, in a task of its own: what cancels it there does not cancel us."""
    task = asyncio.get_running_loop().create_task(_contained(work))
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        raise
    if task.cancelled():
        raise Raised("CancelledError: it was cancelled")
    return task.result()


async def _contained(work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    except (asyncio.CancelledError, Raised):
        raise
    except BaseException as failure:  # as in a thread
        raise _raised(failure) from None


def _raised(failure: BaseException) -> Raised:
    logger.info("A tool raised %s", type(failure).__name__)
    try:
        return Raised(as_text(f"{type(failure).__name__}: {failure}"))
    except Exception:  # its own __str__ may fail
        return Raised(type(failure).__name__)


def _statistics(runs: Sequence[ToolExecutionResult]) -> dict[str, Any]:
    succeeded = sum(run.success for run in runs)
    mean = sum(run.execution_time for run in runs) / len(runs) if runs else 0.0
    return {"total": len(runs), "succeeded": succeeded, "failed": len(runs) - succeeded, "mean_seconds": round(mean, 6)}
