"""Running tools that behave, and tools that do not."""

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from mochi_server.tools.discovery import Tool
from mochi_server.tools.execution import THREADS, ToolExecutionResult, ToolExecutionService, shortened
from mochi_server.tools.schema import make_schema


def tool(function: Callable[..., Any]) -> Tool:
    """A function as a tool, whatever it lacks."""
    function.__doc__ = function.__doc__ or "Do."
    function.__annotations__.setdefault("return", Any)
    return Tool(function.__name__, function, make_schema(function, function.__name__))


def execute(
    function: Callable[..., Any], arguments: dict[str, Any] | None = None, **limits: Any
) -> ToolExecutionResult:
    return asyncio.run(ToolExecutionService(**limits).execute(tool(function), arguments or {}))


class Thing(BaseModel):
    """A structured result."""

    name: str


@pytest.mark.parametrize(
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
def test_results_become_text_that_a_model_can_read(value: object, text: str) -> None:
    def give() -> Any:
        return value

    assert execute(give).result == text


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


def unspeakable() -> str:
    """Fail."""
    raise Unspeakable


async def cancel_itself() -> str:
    """Be cancelled, by nobody of ours."""
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


@pytest.mark.parametrize(
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
    ],
)
def test_whatever_a_tool_raises_is_a_failed_result(function: Callable[..., Any], words: str) -> None:
    result = execute(function)
    assert not result.success
    assert words in str(result.error_message)


@pytest.mark.parametrize("limit", [10, 100, 1000])
def test_long_results_keep_head_and_tail(limit: int) -> None:
    def much() -> str:
        return "a" * 50_000 + "b" * 50_000

    result = execute(much, output_limit=limit)
    assert result.result is not None
    assert "left out" in result.result
    assert len(result.result) <= max(limit, 50)
    if limit >= 100:
        assert result.result.startswith("a")
        assert result.result.endswith("b")


def test_a_text_at_the_limit_is_not_cut() -> None:
    assert shortened("x" * 10, 10) == "x" * 10


def test_a_hung_tool_is_given_up_and_said_so() -> None:
    release = threading.Event()

    def hang() -> str:
        release.wait(10)
        return "late"

    result = execute(hang, timeout=0.05)
    release.set()
    assert not result.success
    assert "0.05 seconds" in str(result.error_message)


def test_hung_tools_cost_their_threads_and_nothing_else() -> None:
    release = threading.Event()
    begun: list[int] = []

    def hang() -> str:
        begun.append(1)
        release.wait(10)
        return ""

    async def run() -> None:
        service = ToolExecutionService(timeout=0.1)
        hanging = [asyncio.ensure_future(service.execute(tool(hang), {})) for _ in range(3 * THREADS)]
        await asyncio.wait(hanging)
        assert not any(task.result().success for task in hanging)
        assert len(begun) == 3 * THREADS
        release.set()

    asyncio.run(run())


def test_the_last_hundred_runs_are_kept_with_their_statistics() -> None:
    def double(a: int) -> int:
        return 2 * a

    async def run() -> ToolExecutionService:
        service = ToolExecutionService()
        for number in range(120):
            await service.execute(tool(double), {"a": number if number % 2 else "x"})
        return service

    service = asyncio.run(run())
    assert len(service.history()) == 100
    assert service.history()[-1].result == "238"
    statistics = service.statistics()
    assert (statistics["total"], statistics["succeeded"], statistics["failed"]) == (100, 50, 50)
    assert statistics["by_tool"]["double"]["total"] == 100
    assert statistics["mean_seconds"] > 0
