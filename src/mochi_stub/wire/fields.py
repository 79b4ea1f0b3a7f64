"""Validation of request bodies for hosted providers. It finds what is wrong; each provider has its own words for it.

A schema is written in literals: `{"name!": string, "mode": ("auto", "none"), "tags": [string]}`. A dictionary is an
object, a tuple lists the permitted strings, a list is an array. A name that ends in `!` is required. A name in camel
case is accepted in snake case, too. Null counts as absent, and other fields are ignored. Anything else in a schema is a
check: a callable that takes a JSON value and its location and returns the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import inf, isfinite
from typing import Any, Literal, TypeAlias

import orjson

Where: TypeAlias = "tuple[str | int, ...]"
Check: TypeAlias = "Callable[[Any, Where], Any]"
Schema: TypeAlias = Any
"""Nested literals and checks, see above. Python cannot infer a narrower type for them."""
Kind = Literal["syntax", "missing", "type", "value", "tag", "empty", "low", "high"]


class Problem(Exception):
    """The first thing that is wrong with a body, at the location `where`.

    By `kind`, `wanted` is the type ("string", "array" ...), the permitted values or the limit. `found` is the value.
    """

    def __init__(self, kind: Kind, where: Where, wanted: Any = None, found: Any = None) -> None:
        super().__init__(kind, where, wanted, found)
        self.kind, self.where, self.wanted, self.found = kind, where, wanted, found


def read(data: bytes, check: Check) -> dict[str, Any]:
    """Return the checked body. Raises Problem."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Problem("syntax", (), found=str(error)) from None
    checked: dict[str, Any] = check(value, ())
    return checked


def kind_of(value: Any) -> str:
    """Return the JSON type of the value."""
    if value is None:
        return "null"
    kinds: dict[type, str] = {
        **{bool: "boolean", int: "integer", float: "decimal"},
        **{str: "string", list: "array", dict: "object"},
    }
    return kinds[type(value)]


def choice(values: tuple[str, ...], last: str) -> str:
    """Return the values in quotes. `last` separates the last two."""
    *names, final = [f"'{value}'" for value in values]
    return f"{', '.join(names)}{last}{final}" if names else final


def compiled(schema: Schema) -> Check:
    """Return the check of a schema."""
    if isinstance(schema, Mapping):
        return _object(schema)
    if isinstance(schema, tuple):
        return _one_of(schema)
    check: Check = array(schema[0]) if isinstance(schema, list) else schema
    return check


def anything(value: Any, _where: Where) -> Any:
    return value


def _typed(kind: str) -> Check:
    def check(value: Any, where: Where) -> Any:
        if kind_of(value) != kind:
            raise Problem("type", where, kind, value)
        return value

    return check


string, flag, mapping = _typed("string"), _typed("boolean"), _typed("object")
_integer, _decimal, _array = _typed("integer"), _typed("decimal"), _typed("array")


def whole(low: float = -inf, high: float = 2**63 - 1) -> Check:
    """Accept an integer, also one written as 3.0."""

    def check(value: Any, where: Where) -> Any:
        if isinstance(value, float) and isfinite(value) and value == int(value):
            value = int(value)
        return _within(_integer(value, where), low, high, where)

    return check


def number(low: float = -inf, high: float = inf) -> Check:
    """Accept an integer or a decimal."""

    def check(value: Any, where: Where) -> Any:
        return _within(value if kind_of(value) == "integer" else _decimal(value, where), low, high, where)

    return check


def _within(value: Any, low: float, high: float, where: Where) -> Any:
    if value < low:
        raise Problem("low", where, low, value)
    if value > high:
        raise Problem("high", where, high, value)
    return value


def _one_of(values: tuple[str, ...]) -> Check:
    def check(value: Any, where: Where) -> Any:
        if string(value, where) not in values:
            raise Problem("value", where, values, value)
        return value

    return check


def array(schema: Schema, least: int = 0) -> Check:
    """Accept an array with at least so many items."""
    item = compiled(schema)

    def check(value: Any, where: Where) -> Any:
        if len(_array(value, where)) < least:
            raise Problem("empty", where, least, value)
        return [item(one, (*where, index)) for index, one in enumerate(value)]

    return check


def text_or(schema: Schema) -> Check:
    """Accept a string, or an array by its schema."""
    items = compiled(schema)

    def check(value: Any, where: Where) -> Any:
        return items(value, where) if isinstance(value, list) else string(value, where)

    return check


def _object(schema: Mapping[str, Any]) -> Check:
    checks = {name.removesuffix("!"): compiled(field) for name, field in schema.items()}
    required = [name.removesuffix("!") for name in schema if name.endswith("!")]
    snake_case = {re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name): name for name in checks}

    def check(value: Any, where: Where) -> Any:
        given = {snake_case.get(name, name): item for name, item in mapping(value, where).items() if item is not None}
        for name in required:
            if name not in given:
                raise Problem("missing", (*where, name))
        return {name: field(given[name], (*where, name)) for name, field in checks.items() if name in given}

    return check


def tagged(tag: str, variants: Mapping[str, Schema], default: str | None = None) -> Check:
    """Accept an object whose field `tag` names its variant. `default` is the variant of an object without the field."""
    checks = {name: compiled(variant) for name, variant in variants.items()}

    def check(value: Any, where: Where) -> Any:
        found = mapping(value, where).get(tag)
        found = default if found is None else string(found, (*where, tag))
        if found is None:
            raise Problem("missing", (*where, tag))
        if found not in checks:
            raise Problem("tag", (*where, tag), tuple(checks), found)
        return {tag: found, **checks[found](value, where)}

    return check
