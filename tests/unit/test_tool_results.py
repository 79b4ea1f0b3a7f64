"""Conversion of tool results to text: limits of values, characters and time."""

import asyncio
import sys
import threading
from collections import ChainMap, UserDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_serializer

from mochi_server.tools.results import MAX_CHARACTERS, MAX_VALUES
from tests.support.cases import cases
from tests.unit.test_tool_execution import execute

FAR_BEYOND = 5 * MAX_VALUES


class Endless(Iterator[int]):
    """Iterator without an end.

    It fails far beyond the limit, so that a conversion without a limit ends.
    """

    def __init__(self) -> None:
        self.taken = 0

    def __next__(self) -> int:
        self.taken += 1
        assert self.taken < FAR_BEYOND, "the conversion has no limit"
        return self.taken


class Report(BaseModel):
    """Model with a field that may be an iterator."""

    name: str = Field(default="r", serialization_alias="Name")
    secret: str = Field(default="s", exclude=True)
    rows: Iterable[int]


class Shown(BaseModel):
    """Model with a serializer for JSON only."""

    value: Any

    @field_serializer("value", when_used="json")
    def _shown(self, value: Any) -> str:
        return f"shown {value}"


class Kept(BaseModel):
    """Model that holds anything."""

    value: Any


@dataclass
class Pair:
    """Dataclass that holds anything."""

    first: Any
    second: int = 2


class EndlessList(list[int]):
    """List whose iterator never ends."""

    def __iter__(self) -> Iterator[int]:
        return Endless()


class Opaque:
    """Object that looks like a container, but is none: it becomes its text."""

    def __iter__(self) -> Iterator[int]:
        return Endless()

    def __getitem__(self, index: int) -> int:
        return index

    def keys(self) -> Iterator[int]:
        return Endless()

    def __str__(self) -> str:
        return "opaque"


def doubled(levels: int) -> list[Any]:
    """Return a list with 2**levels values, which takes little memory."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value, value]
    return value


def give(value: object) -> Callable[[], Any]:
    def given() -> Any:
        return value

    return given


def give_later(value: object) -> Callable[[], Any]:
    async def given() -> Any:
        return value

    return given


@cases(
    ("kind", "endless"),
    [
        (give, lambda: (number for number in Endless())),
        (give_later, lambda: map(str, Endless())),
        (give, lambda: {"rows": [Endless()]}),
        (give, lambda: Pair(Endless())),
        (give, lambda: [Report(rows=Endless())]),
        (give, lambda: EndlessList([1])),
    ],
)
async def test_endless_results_are_cut(
    kind: Callable[[object], Any], endless: Callable[[], object]
) -> None:
    result = await execute(kind(endless()))
    assert result.success, result.error_message
    assert "1,2,3,4,5" in str(result.result).replace('"', "")
    assert "The rest of the result is left out" in str(result.result)


@cases("value", [["a\udcff"], {"a\udcff": "a\udcff"}, Pair("a\udcff"), [Path("a\udcff")]])
async def test_characters_that_cannot_be_encoded_are_replaced(value: object) -> None:
    result = await execute(give(value))
    assert result.success, result.error_message
    assert "a?" in str(result.result)


@cases(
    "value",
    [
        [b"a\xff"],
        {"key": bytearray(b"a\xff")},
        {b"a\xff": 1},
        Pair(b"a\xff"),
        Kept(value=b"a\xff"),
        Kept(value=[{"key": b"a\xff"}]),
    ],
)
async def test_bytes_in_a_structure_are_decoded(value: object) -> None:
    result = await execute(give(value))
    assert result.success, result.error_message
    assert "a\ufffd" in str(result.result)


@cases(
    "huge",
    [
        lambda: doubled(60),
        lambda: deque(range(MAX_VALUES + 1)),
        dict.fromkeys(range(MAX_VALUES + 1)).values,
        lambda: {"text": ["x" * 1_000_000] * MAX_VALUES},
        lambda: ["x" * (MAX_CHARACTERS + 1)],
        lambda: [["é" * 1_000_000] * MAX_VALUES] * MAX_VALUES,
        lambda: dict.fromkeys(range(MAX_VALUES + 1), 0),
        lambda: MappingProxyType(dict.fromkeys(range(MAX_VALUES + 1), 0)),
        lambda: range(sys.maxsize),
    ],
)
async def test_huge_results_are_cut(huge: Callable[[], object]) -> None:
    result = await execute(give(huge()))
    assert result.success, result.error_message
    assert "The rest of the result is left out" in str(result.result)
    assert len(str(result.result)) <= 20_000


@cases(
    ("value", "text"),
    [
        ([0] * (MAX_VALUES - 1), "[" + ",".join("0" * (MAX_VALUES - 1)) + "]"),
        (iter([1, 2]), "[1,2]"),
        ({"a": 1}.items(), '[["a",1]]'),
        (Report(rows=[1, 2]), '{"Name":"r","rows":[1,2]}'),
        (Shown(value=5), '{"value":"shown 5"}'),
        ({1: Pair([Pair(1)])}, '{"1":{"first":[{"first":1,"second":2}],"second":2}}'),
        (Opaque(), '"opaque"'),
        ([Opaque()], '["opaque"]'),
        (range(3), "[0,1,2]"),
        (MappingProxyType({"a": range(1)}), '{"a":[0]}'),
        (UserDict({"a": {1}}), '{"a":[1]}'),
        ([ChainMap({"a": 1}, {"a": 2, "b": 3})], '[{"a":1,"b":3}]'),
        (Pair, f'"{Pair!s}"'),
    ],
)
async def test_results_within_the_limits_are_complete(value: object, text: str) -> None:
    assert (await execute(give(value), output_limit=10 * MAX_VALUES)).result == text


def circular() -> list[Any]:
    value: list[Any] = []
    value += [value, value]
    return value


def nested() -> Iterator[Any]:
    yield nested()


@pytest.mark.parametrize("value", [circular(), nested()], ids=["circular", "nested"])
async def test_endless_nesting_is_a_failed_result(value: object) -> None:
    result = await execute(give(value))
    assert not result.success
    assert "nested deeper than 200 levels" in str(result.error_message)


class Watched(Iterator[int]):
    """Iterator without an end, which holds back each item until it is released.

    It counts the items.
    """

    def __init__(self) -> None:
        self.taken = 0
        self.thread = threading.current_thread()
        self.begun, self.released = threading.Event(), threading.Event()

    def __next__(self) -> int:
        self.taken += 1
        self.thread = threading.current_thread()
        self.begun.set()
        self.released.wait(60)
        assert self.taken < FAR_BEYOND, "the conversion has no limit"
        return self.taken


@cases("kind", [give, give_later])
async def test_conversion_ends_with_its_call(kind: Callable[[object], Any]) -> None:
    watched = Watched()
    call = asyncio.ensure_future(execute(kind(watched)))
    assert await asyncio.to_thread(watched.begun.wait, 60)
    call.cancel()
    await asyncio.wait({call})
    watched.released.set()
    await asyncio.to_thread(watched.thread.join, 60)
    assert not watched.thread.is_alive()
    assert watched.taken == 1
