"""Request bodies held against what they may hold. It finds what is wrong; each wire says so in its own words.

A check takes a JSON value and where it stands, and gives back the value as the program wants it. Fields that no check
names are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, Literal, TypeAlias

import orjson

Where: TypeAlias = "tuple[str | int, ...]"
Check: TypeAlias = "Callable[[Any, Where], Any]"
Kind = Literal["syntax", "missing", "type", "value", "tag", "empty", "low", "high"]


class Problem(Exception):
    """The first thing that is wrong with a body.

    `where` leads to it. `wanted` is the type ("string", "array" ...), the permitted values or the limit, by `kind`;
    `found` is the value that stands there.
    """

    def __init__(self, kind: Kind, where: Where, wanted: Any = None, found: Any = None) -> None:
        super().__init__(kind, where, wanted, found)
        self.kind, self.where, self.wanted, self.found = kind, where, wanted, found


def read(data: bytes, check: Check) -> dict[str, Any]:
    """The body as an object. Raises Problem."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Problem("syntax", (), found=str(error)) from None
    checked: dict[str, Any] = check(value, ())
    return checked


def kind_of(value: Any) -> str:
    """What JSON calls the value."""
    if isinstance(value, bool):
        return "boolean"
    if value is None:
        return "null"
    kinds: dict[type, str] = {int: "integer", float: "decimal", str: "string", list: "array", dict: "object"}
    return kinds[type(value)]


def _of_kind(wanted: str, value: Any, where: Where) -> Any:
    if kind_of(value) != wanted:
        raise Problem("type", where, wanted, value)
    return value


def anything(value: Any, _where: Where) -> Any:
    return value


def string(value: Any, where: Where) -> Any:
    return _of_kind("string", value, where)


def flag(value: Any, where: Where) -> Any:
    return _of_kind("boolean", value, where)


def mapping(value: Any, where: Where) -> Any:
    return _of_kind("object", value, where)


@dataclass(frozen=True)
class Whole:
    """An integer, also one written 3.0."""

    low: float = -inf
    high: float = 2**63 - 1

    def __call__(self, value: Any, where: Where) -> Any:
        if isinstance(value, float) and isfinite(value) and value == int(value):
            value = int(value)
        return _within(_of_kind("integer", value, where), self.low, self.high, where)


@dataclass(frozen=True)
class Number:
    low: float = -inf
    high: float = inf

    def __call__(self, value: Any, where: Where) -> Any:
        if kind_of(value) != "integer":
            _of_kind("decimal", value, where)
        return _within(value, self.low, self.high, where)


def _within(value: Any, low: float, high: float, where: Where) -> Any:
    if value < low:
        raise Problem("low", where, low, value)
    if value > high:
        raise Problem("high", where, high, value)
    return value


@dataclass(frozen=True)
class OneOf:
    values: tuple[str, ...]

    def __call__(self, value: Any, where: Where) -> Any:
        if string(value, where) not in self.values:
            raise Problem("value", where, self.values, value)
        return value


@dataclass(frozen=True)
class ListOf:
    item: Check
    least: int = 0

    def __call__(self, value: Any, where: Where) -> Any:
        if len(_of_kind("array", value, where)) < self.least:
            raise Problem("empty", where, self.least, value)
        return [self.item(one, (*where, index)) for index, one in enumerate(value)]


@dataclass(frozen=True)
class Object:
    """An object; null stands for a field that is left out. `key` turns a name as sent into the name as declared."""

    fields: Mapping[str, Check]
    required: tuple[str, ...] = ()
    key: Callable[[str], str] = str

    def __call__(self, value: Any, where: Where) -> Any:
        given = {self.key(name): item for name, item in _of_kind("object", value, where).items() if item is not None}
        for name in self.required:
            if name not in given:
                raise Problem("missing", (*where, name))
        return {name: check(given[name], (*where, name)) for name, check in self.fields.items() if name in given}


@dataclass(frozen=True)
class ByKind:
    """One check for each kind of JSON value that may stand here."""

    checks: Mapping[str, Check]

    def __call__(self, value: Any, where: Where) -> Any:
        check = self.checks.get(kind_of(value))
        if check is None:
            raise Problem("type", where, next(iter(self.checks)), value)
        return check(value, where)


@dataclass(frozen=True)
class Tagged:
    """An object whose field `tag` says what else is in it; `default` is the tag of one that has none."""

    tag: str
    checks: Mapping[str, Check]
    default: str | None = None

    def __call__(self, value: Any, where: Where) -> Any:
        tag = _of_kind("object", value, where).get(self.tag)
        tag = self.default if tag is None else string(tag, (*where, self.tag))
        if tag is None:
            raise Problem("missing", (*where, self.tag))
        if tag not in self.checks:
            raise Problem("tag", (*where, self.tag), tuple(self.checks), tag)
        return {self.tag: tag, **self.checks[tag](value, where)}
