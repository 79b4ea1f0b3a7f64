"""Execution of well-behaved and misbehaving tools."""

import asyncio
import inspect
import sys
import threading
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from mochi_server.tools.discovery import Tool
from mochi_server.tools.execution import (
    MAX_PARALLEL_CALLS,
    MAX_THREADS,
    ToolExecutionResult,
    ToolExecutionService,
    shorten,
)
from mochi_server.tools.schema import InvalidArguments, make_schema
from mochi_server.tools.toolbox import ToolInvocation
from tests.support.cases import cases
from tests.support.waiting import until


def tool(function: Callable[..., Any]) -> Tool:
    """Return a function as a tool, even without type hints."""
    function.__doc__ = function.__doc__ or "Do."
    function.__annotations__.setdefault("return", Any)
    return Tool(function.__name__, function, make_schema(function, function.__name__))


async def execute(
    function: Callable[..., Any], arguments: dict[str, Any] | None = None, **limits: Any
) -> ToolExecutionResult:
    return await ToolExecutionService(**limits).execute(tool(function), arguments or {})


class Thing(BaseModel):
    """A structured result."""

    name: str


@cases(
    ("value", "text"),
    [
        ("text", "text"),
        (5, "5"),
        (True, "true"),
        (None, "Done; there is no result."),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (Thing(name="x"), '{"name":"x"}'),
        (b"bytes", "bytes"),
        ("half \ud800", "half ?"),
        (float("nan"), '"NaN"'),
        ({1, 2}, "[1,2]"),
        (threading.Lock, f'"{threading.Lock!s}"'),
    ],
)
async def test_results_are_converted_to_text(value: object, text: str) -> None:
    def give() -> Any:
        return value

    assert (await execute(give)).result == text


async def test_coroutine_of_a_decorated_tool_is_awaited() -> None:
    async def add(number: int) -> int:
        await asyncio.sleep(0)
        return number + 1

    @wraps(add)
    def decorated(number: int) -> Any:
        return add(number)

    assert (await execute(decorated, {"number": 1})).result == "2"


async def test_coroutine_of_a_decorated_tool_has_the_time_limit() -> None:
    async def hang() -> str:
        await asyncio.Event().wait()
        return "never"

    @wraps(hang)
    def decorated() -> Any:
        return hang()

    result = await execute(decorated, timeout=0.05)
    assert not result.success
    assert "took longer than 0.05 seconds" in str(result.error_message)


async def test_coroutine_that_comes_after_the_time_limit_is_closed() -> None:
    timed_out = threading.Event()

    async def work() -> str:
        return "never"

    coroutine = work()

    @wraps(work)
    def decorated() -> Any:
        timed_out.wait()
        return coroutine

    result = await execute(decorated, timeout=0.05)
    assert "took longer than 0.05 seconds" in str(result.error_message)
    timed_out.set()
    until(lambda: inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED)


def leave() -> str:
    """Leave."""
    sys.exit(3)


def interrupt() -> str:
    """Interrupt."""
    raise KeyboardInterrupt


def stop() -> str:
    """Stop."""
    raise StopIteration


class Unspeakable(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError


class Leaving(BaseException):
    """An error that leaves when it is shown."""

    def __str__(self) -> str:
        raise SystemExit


class Interrupting(Exception):
    """An error that interrupts when it is shown."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


def leave_when_shown() -> str:
    """Fail."""
    raise Leaving


async def leave_when_shown_later() -> str:
    """Fail, on the loop."""
    raise Leaving


async def interrupt_when_shown_later() -> str:
    """Fail, on the loop."""
    raise Interrupting


def leave_in_argument() -> str:
    """Fail with an argument that cannot be shown."""
    raise ValueError(Leaving())


def leave_in_generator() -> Any:
    """Leave after the first item."""
    yield 1
    sys.exit(3)


def close() -> str:
    """Raise what ends a generator."""
    raise GeneratorExit


async def close_later() -> str:
    """Raise what ends a generator, on the loop."""
    raise GeneratorExit


async def interrupt_later() -> str:
    """Interrupt, on the loop."""
    raise KeyboardInterrupt


class LeavingAwaitable:
    """An awaitable that leaves when it is awaited."""

    def __await__(self) -> Any:
        sys.exit(3)


def leave_when_awaited() -> Any:
    """Return an awaitable."""
    return LeavingAwaitable()


def unspeakable() -> str:
    """Fail."""
    raise Unspeakable


async def cancel_itself() -> str:
    """Raise a cancellation that the server did not request."""
    raise asyncio.CancelledError


def half() -> str:
    """Fail with half a character."""
    raise ValueError("\ud800")


async def leave_later() -> str:
    """Leave, on the loop."""
    sys.exit(3)


async def time_out_itself() -> str:
    """Raise what our own limit raises, too."""
    raise TimeoutError("mine")


@cases(
    ("function", "words"),
    [
        (leave, "SystemExit: 3"),
        (interrupt, "KeyboardInterrupt"),
        (stop, "StopIteration"),
        (unspeakable, "Unspeakable"),
        (leave_later, "SystemExit: 3"),
        (cancel_itself, "CancelledError"),
        (half, "ValueError: ?"),
        (time_out_itself, "TimeoutError: mine"),
        (leave_when_shown, "failed: Leaving"),
        (leave_when_shown_later, "failed: Leaving"),
        (interrupt_when_shown_later, "failed: Interrupting"),
        (leave_in_argument, "failed: ValueError"),
        (leave_in_generator, "SystemExit: 3"),
        (close, "GeneratorExit"),
        (close_later, "GeneratorExit"),
        (interrupt_later, "KeyboardInterrupt"),
        (leave_when_awaited, "SystemExit: 3"),
    ],
)
async def test_any_exception_of_a_tool_is_a_failed_result(
    function: Callable[..., Any], words: str
) -> None:
    result = await execute(function, timeout=10)
    assert not result.success
    assert words in str(result.error_message)


@cases("limit", [10, 100, 1000])
async def test_long_results_keep_head_and_tail(limit: int) -> None:
    def much() -> str:
        return "a" * 50_000 + "b" * 50_000

    result = await execute(much, output_limit=limit)
    assert result.result is not None
    assert "left out" in result.result
    assert len(result.result) <= max(limit, 80)
    if limit >= 100:
        assert result.result.startswith("a")
        assert result.result.endswith("b")


@pytest.mark.parametrize(("length", "limit"), [(20_001, 20_000), (1000, 10)])
def test_note_has_the_number_of_characters_left_out(length: int, limit: int) -> None:
    shortened = shorten("x" * length, limit, "LIMIT")
    kept = shortened.count("x") - "left out because of LIMIT".count("x")
    assert f"[... {length - kept} characters left out because of LIMIT ...]" in shortened


async def test_call_fails_if_the_system_starts_no_thread() -> None:
    service = ToolExecutionService()
    before = threading.stack_size(1 << 46)
    try:
        failed = [await service.execute(tool(leave), {}) for _ in range(MAX_THREADS + 1)]
    finally:
        threading.stack_size(before)
    assert {result.error_message for result in failed} == {
        "leave failed: it did not start: can't start new thread"
    }
    assert "SystemExit" in str((await service.execute(tool(leave), {})).error_message)


def test_text_at_the_limit_is_not_truncated() -> None:
    assert shorten("x" * 10, 10) == "x" * 10


async def test_tool_timeout_is_reported() -> None:
    release = threading.Event()

    def hang() -> str:
        release.wait(60)
        return "late"

    result = await execute(hang, timeout=0.05)
    release.set()
    assert not result.success
    assert "0.05 seconds" in str(result.error_message)


async def test_hung_tools_use_at_most_their_threads() -> None:
    release = threading.Event()
    begun: list[int] = []

    def hang() -> str:
        begun.append(1)
        release.wait(60)
        return ""

    service = ToolExecutionService(timeout=0.1)
    hanging = [
        asyncio.ensure_future(service.execute(tool(hang), {}))
        for _ in range(3 * MAX_PARALLEL_CALLS)
    ]
    await asyncio.wait(hanging)
    assert not any(task.result().success for task in hanging)
    assert len(begun) == 3 * MAX_PARALLEL_CALLS
    release.set()


async def test_hung_validator_of_a_type_ends_after_the_time_limit() -> None:
    release = threading.Event()

    def hang(value: int) -> int:
        release.wait(20)
        return value

    def take(value: Annotated[int, AfterValidator(hang)]) -> int:
        return value

    result = await ToolExecutionService(timeout=0.1).execute(tool(take), {"value": 1})
    release.set()
    assert result.error_message == (
        "Wrong arguments for take: their validation failed: it took longer than 0.1 seconds "
        "(MOCHI_TOOL_TIMEOUT_SECONDS)"
    )


async def test_validators_of_types_run_in_a_thread() -> None:
    threads: list[threading.Thread] = []

    def check(value: int) -> int:
        threads.append(threading.current_thread())
        if value < 0:
            raise ValueError("too small")
        return value

    def take(value: Annotated[int, AfterValidator(check)]) -> int:
        return value

    service = ToolExecutionService()
    results = [await service.execute(tool(take), {"value": value}) for value in (1, -1)]
    assert [result.result for result in results] == ["1", None]
    message = "Wrong arguments for take: value: Value error, too small"
    assert results[1].error_message == message
    assert threading.main_thread() not in threads


@pytest.mark.parametrize(
    ("kind", "is_in_thread"),
    [
        (str, False),
        (dict[str, list[int | None]], False),
        (Literal["a", "b"], False),
        (Annotated[int, Field(ge=0)], False),
        (datetime, False),
        (Thing, True),
        (Annotated[int, AfterValidator(abs)], True),
        (list[Annotated[int, BeforeValidator(int)]], True),
    ],
)
def test_only_types_with_code_are_validated_in_a_thread(kind: Any, is_in_thread: bool) -> None:
    def take(value: Any) -> str:
        return ""

    take.__annotations__["value"] = kind
    assert (tool(take).schema.bind_in_thread is not None) == is_in_thread


async def test_last_hundred_runs_are_kept_with_statistics() -> None:
    def double(a: int) -> int:
        return 2 * a

    service = ToolExecutionService()
    for number in range(120):
        await service.execute(tool(double), {"a": number if number % 2 else "x"})
    assert len(service.history()) == 100
    assert service.history()[-1].result == "238"
    statistics = service.statistics()
    assert (statistics["total"], statistics["succeeded"], statistics["failed"]) == (100, 50, 50)
    assert statistics["by_tool"]["double"]["total"] == 100
    assert statistics["mean_seconds"] > 0


async def test_arguments_with_too_many_values_are_invalid() -> None:
    def take(values: list[int]) -> int:
        """Take numbers."""
        return len(values)

    schema = make_schema(take, "take")
    call = ToolInvocation(0, "call", "take", {"values": [0] * 49_998})
    service = ToolExecutionService()
    assert len((await call.bind(schema, service)).arguments["values"]) == 49_998
    call.arguments["values"].append(0)
    with pytest.raises(InvalidArguments, match="more than 50,000 values"):
        await call.bind(schema, service)
