"""Execution and import of tools with a timeout.

Asynchronous tools run on the event loop. All other user code runs in daemon threads, which do not
block a shutdown.
"""

import asyncio
import contextvars
import inspect
import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import anyio

from mochi_server.sessions.caller import CALLER, current_owner
from mochi_server.sessions.types import Image
from mochi_server.tools.discovery import Tool
from mochi_server.tools.results import ResultConversion, encodable
from mochi_server.tools.schema import InvalidArguments, ToolSchema
from mochi_server.util.clock import now
from mochi_server.util.text import text_of_error

T = TypeVar("T")

HISTORY_LENGTH = 100
IMPORT_SECONDS = 30
# Calls, or imports of tools, that run in threads at the same time. Further ones wait.
MAX_PARALLEL_CALLS = 32
# maximum number of threads, including the threads of timed-out calls whose tools have not returned
MAX_THREADS = 128

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ToolContent:
    """Return value of a tool that returns images besides text."""

    text: str
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolExecutionResult:
    """Result of a tool call.

    ``execution_time`` is in seconds; ``result`` is text, shortened to the output limit.
    """

    success: bool
    result: str | None
    error_message: str | None
    execution_time: float
    tool_name: str
    timestamp: str = field(default_factory=now)
    images: tuple[Image, ...] = ()
    owner: str | None = field(default_factory=current_owner)


@dataclass(eq=False, kw_only=True)
class ToolExecutionService:
    """Service that runs tools, with a ``timeout`` in seconds.

    The timeout applies to each step of a call: the validation of its arguments, the function, an
    awaitable that the function returns, and the conversion of its result. The wait for a thread
    does not count.

    It stores the last 100 results in memory, without images.
    """

    timeout: float = 60
    output_limit: int = 20_000  # maximum characters of a result
    on_lost: Callable[[], object] = lambda: None
    """Called if a thread still runs after the end of its call."""
    on_refused: Callable[[], object] = lambda: None
    """Called if all threads are in use."""
    _call_slots: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_PARALLEL_CALLS), init=False
    )
    _thread_slots: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_THREADS), init=False
    )
    _history: deque[ToolExecutionResult] = field(
        default_factory=lambda: deque(maxlen=HISTORY_LENGTH), init=False
    )

    async def execute(self, tool: Tool, arguments: dict[str, Any]) -> ToolExecutionResult:
        """Validate the arguments and run the tool.

        Errors are returned in the result and never raised.
        """
        try:
            bound = await self.bind(tool.schema, arguments)
        except InvalidArguments as error:
            return self._record(tool, None, f"Wrong arguments for {tool.name}: {error}", 0.0)
        return await self.execute_bound(tool, bound)

    async def bind(
        self, schema: ToolSchema, arguments: Mapping[str, Any]
    ) -> inspect.BoundArguments:
        """Convert and validate arguments, in a thread if that runs user code.

        Raises ``InvalidArguments``, also after a timeout.
        """
        bind = schema.bind_in_thread
        if bind is None:
            return await schema.bind(arguments)

        def work() -> inspect.BoundArguments | InvalidArguments:
            try:
                return bind(arguments)
            except InvalidArguments as error:
                return error

        try:
            bound = await self._in_thread(work, "it did not start")
        except ToolRaised as raised:
            raise InvalidArguments(f"their validation failed: {raised}") from raised
        if isinstance(bound, InvalidArguments):
            raise bound
        return bound

    async def execute_bound(
        self, tool: Tool, arguments: inspect.BoundArguments
    ) -> ToolExecutionResult:
        """Run the tool with validated arguments.

        Errors are returned in the result and never raised.
        """
        started = time.monotonic()
        try:
            content = await self._run(tool, arguments)
        except ToolRaised as raised:
            error = shorten(f"{tool.name} failed: {raised}", self.output_limit)
            return self._record(tool, None, error, time.monotonic() - started)
        result = self._record(tool, content.text, None, time.monotonic() - started)
        return replace(result, images=content.images)

    def _record(
        self, tool: Tool, text: str | None, error: str | None, seconds: float
    ) -> ToolExecutionResult:
        result = ToolExecutionResult(
            success=error is None,
            result=text,
            error_message=error,
            execution_time=round(seconds, 6),
            tool_name=tool.name,
        )
        self._history.append(result)
        return result

    def history(self) -> list[ToolExecutionResult]:
        """Return the results of the caller's calls among the last 100, oldest first."""
        return [run for run in self._history if CALLER.get().sees(run.owner)]

    def statistics(self) -> dict[str, Any]:
        """Return the number of calls and their mean time in seconds, for the calls of ``history()``
        and for each tool.
        """
        history = self.history()
        by_name: dict[str, list[ToolExecutionResult]] = defaultdict(list)
        for run in history:
            by_name[run.tool_name].append(run)
        by_tool = {name: _statistics(by_name[name]) for name in sorted(by_name)}
        return _statistics(history) | {"by_tool": by_tool}

    async def _run(self, tool: Tool, bound: inspect.BoundArguments) -> ToolContent:
        conversion = ResultConversion()

        def finish(value: object) -> ToolContent:
            if not isinstance(value, ToolContent):
                value = ToolContent(conversion.text(value))
            text = shorten(value.text, self.output_limit, "MOCHI_TOOL_OUTPUT_LIMIT_CHARS")
            return replace(value, text=text)

        def call() -> ToolContent | Awaitable[object]:
            value = tool.function(*bound.args, **bound.kwargs)
            return value if inspect.isawaitable(value) else finish(value)

        async def call_async() -> object:
            return await tool.function(*bound.args, **bound.kwargs)

        try:
            # A decorator may hide that a function is `async`. The thread then only creates the
            # awaitable.
            is_async = inspect.iscoroutinefunction(tool.function)
            result = call_async() if is_async else await self._in_thread(call, "it did not start")
            if isinstance(result, ToolContent):
                return result
            with self._time_limit():
                value = await _run_isolated(result)
            return await self._in_thread(
                lambda: finish(value), "it ran, but its result could not be read"
            )
        finally:
            conversion.end()

    async def _in_thread(self, work: Callable[[], T], consequence: str) -> T:
        """Return the result of ``work``. Raises ``ToolRaised`` for an error or a timeout.

        If no thread is free, the message of the error begins with ``consequence``.
        """
        async with self._call_slots:
            if self._thread_slots.locked():
                self.on_refused()
                raise ToolRaised(
                    f"{consequence}: all {MAX_THREADS} threads are in use by calls that have not "
                    "returned"
                )
            with self._time_limit():
                return await run_in_thread(work, self._thread_slots, self.on_lost)

    @contextmanager
    def _time_limit(self) -> Iterator[None]:
        try:
            with anyio.fail_after(self.timeout):
                yield
        except TimeoutError:
            raise ToolRaised(
                f"it took longer than {self.timeout:g} seconds (MOCHI_TOOL_TIMEOUT_SECONDS)"
            ) from None


class ToolRaised(Exception):
    """Failure of a tool: an exception of its code, a timeout or no free thread.

    The message is for the model.
    """


async def run_in_thread(
    function: Callable[[], T],
    slots: asyncio.Semaphore,
    on_lost: Callable[[], object] = lambda: None,
) -> T:
    """Wait for a slot, then run ``function`` in a daemon thread and return its result.

    Raises errors as ``ToolRaised``.

    Cancellation does not end the thread: ``on_lost`` is called, and the slot stays in use until the
    thread ends.
    """
    loop = asyncio.get_running_loop()
    await slots.acquire()
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # so that cancellation of the wait leaves it intact

    def work(outcome: Future[T]) -> None:
        try:
            outcome.set_result(function())
        except BaseException as failure:  # user code may raise anything, including SystemExit
            outcome.set_exception(_to_tool_raised(failure))
        with suppress(RuntimeError):  # the event loop is closed: the server ended before the tool
            loop.call_soon_threadsafe(slots.release)

    thread = threading.Thread(
        target=contextvars.copy_context().run, args=(work, outcome), name="tool", daemon=True
    )
    try:
        thread.start()
    except RuntimeError as error:  # the system limits the number of threads
        slots.release()
        raise ToolRaised(f"it did not start: {error}") from error
    try:
        return await asyncio.wrap_future(outcome)
    except asyncio.CancelledError:
        if not outcome.done():
            on_lost()
        outcome.add_done_callback(_close_coroutine)
        raise
    finally:
        del outcome  # an error of the tool refers to this frame


def _close_coroutine(outcome: Future[Any]) -> None:
    """Close the coroutine of a tool that came too late to be awaited."""
    if outcome.exception() is None and inspect.iscoroutine(outcome.result()):
        outcome.result().close()


def shorten(text: str, limit: int, limit_name: str = "") -> str:
    """Return ``text`` with at most ``limit`` characters.

    A note, which names the limit, replaces the middle. The note is never shortened, even if it is
    longer than the limit.
    """
    if len(text) <= limit:
        return text
    reason = f" because of {limit_name}" if limit_name else ""
    note = ""
    room = limit
    for _ in range(3):  # the number in the note can have one more digit
        note = f"\n[... {len(text) - room} characters left out{reason} ...]\n"
        room = max(limit - len(note), 0)
    tail = room // 2
    return text[: room - tail] + note + text[len(text) - tail :]


async def _run_isolated(work: Awaitable[T]) -> T:
    """Await the result of a tool in a separate task, so that the tool cannot cancel the caller."""

    async def run() -> T:
        try:
            return await work
        except (asyncio.CancelledError, ToolRaised):
            raise
        except BaseException as failure:  # user code may raise anything
            raise _to_tool_raised(failure) from None

    task = asyncio.get_running_loop().create_task(run())
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        raise
    if task.cancelled():
        raise ToolRaised("CancelledError: it was cancelled")
    try:
        return task.result()
    finally:
        del task  # an error of the tool refers to this frame


def _to_tool_raised(failure: BaseException) -> ToolRaised:
    name = type(failure).__name__
    logger.info("Tool failed error=%s", name)
    text = text_of_error(failure)
    return ToolRaised(encodable(f"{name}: {text}" if text else name))


def _statistics(runs: Collection[ToolExecutionResult]) -> dict[str, Any]:
    succeeded = sum(run.success for run in runs)
    mean = sum(run.execution_time for run in runs) / len(runs) if runs else 0.0
    return {
        "total": len(runs),
        "succeeded": succeeded,
        "failed": len(runs) - succeeded,
        "mean_seconds": round(mean, 6),
    }


async def run_import(work: Callable[[], T], slots: asyncio.Semaphore, seconds: float) -> T:
    """Run ``work``, which imports user code, in a thread.

    Raises ``ToolRaised`` if ``work`` fails or times out.
    """
    try:
        with anyio.fail_after(seconds):
            return await run_in_thread(work, slots)
    except TimeoutError:
        raise ToolRaised(f"the import took longer than {seconds:g} seconds") from None
