"""Validation of request bodies for hosted providers. It finds what is wrong; each provider has its own words for it.

A schema is written in literals: `{"name!": string, "mode": ("auto", "none"), "tags": [string]}`. A dictionary is an
object, a tuple lists the permitted strings, a list is an array. A name that ends in `!` is required. A name in camel
case is accepted in snake case, too. Null counts as absent, and other fields are ignored. Anything else in a schema is a
check: a callable that takes a JSON value and its location and returns the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import inf
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


def read(data: bytes, check: Check) -> Any:
    """Return the checked body. Raises Problem."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Problem("syntax", (), found=str(error)) from None
    return check(value, ())


_KINDS = {"NoneType": "null", "bool": "boolean", "int": "integer", "float": "decimal", "str": "string", "list": "array"}


def kind_of(value: Any) -> str:
    """Return the JSON type of the value."""
    return _KINDS.get(type(value).__name__, "object")


def snake_case(name: str) -> str:
    """Return a name in camel case in snake case."""
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def choice(values: tuple[str, ...], last: str) -> str:
    """Return the values in quotes. `last` separates the last two."""
    *names, final = [f"'{value}'" for value in values]
    return f"{', '.join(names)}{last}{final}" if names else final


def schema(literal: Schema) -> Check:
    """Return the check that a schema stands for."""
    if isinstance(literal, Mapping):
        return _object(literal)
    if isinstance(literal, tuple):
        return _one_of(literal)
    check: Check = array(literal[0]) if isinstance(literal, list) else literal
    return check


def anything(value: Any, _where: Where) -> Any:
    return value


def _typed(kind: str) -> Check:
    def check(value: Any, where: Where) -> Any:
        if kind_of(value) != kind:
            raise Problem("type", where, kind, value)
        return value

    return check


string, flag, mapping, _array = map(_typed, ("string", "boolean", "object", "array"))


def whole(low: float = -inf, high: float = 2**63 - 1) -> Check:
    """Accept an integer, also one written as 3.0."""
    return _numeric("integer", low, high)


def number(low: float = -inf, high: float = inf) -> Check:
    """Accept an integer or a decimal."""
    return _numeric("decimal", low, high)


def _numeric(kind: str, low: float, high: float) -> Check:
    def check(value: Any, where: Where) -> Any:
        if kind == "integer" and isinstance(value, float) and value.is_integer():
            value = int(value)
        if kind_of(value) not in ("integer", kind):
            raise Problem("type", where, kind, value)
        if value < low:
            raise Problem("low", where, low, value)
        if value > high:
            raise Problem("high", where, high, value)
        return value

    return check


def _one_of(values: tuple[str, ...]) -> Check:
    def check(value: Any, where: Where) -> Any:
        if string(value, where) not in values:
            raise Problem("value", where, values, value)
        return value

    return check


def array(item: Schema, least: int = 0) -> Check:
    """Accept an array with at least so many items."""
    check_item = schema(item)

    def check(value: Any, where: Where) -> Any:
        if len(_array(value, where)) < least:
            raise Problem("empty", where, least, value)
        return [check_item(one, (*where, index)) for index, one in enumerate(value)]

    return check


def text_or(items: Schema) -> Check:
    """Accept a string, or an array by its schema."""
    check_items = schema(items)

    def check(value: Any, where: Where) -> Any:
        return check_items(value, where) if isinstance(value, list) else string(value, where)

    return check


def _object(fields: Mapping[str, Schema]) -> Check:
    checks = {name.removesuffix("!"): schema(field) for name, field in fields.items()}
    required = [name.removesuffix("!") for name in fields if name.endswith("!")]
    names = {snake_case(name): name for name in checks}

    def check(value: Any, where: Where) -> Any:
        given = {names.get(name, name): item for name, item in mapping(value, where).items() if item is not None}
        for name in required:
            if name not in given:
                raise Problem("missing", (*where, name))
        return {name: field(given[name], (*where, name)) for name, field in checks.items() if name in given}

    return check


def tagged(tag: str, variants: Mapping[str, Schema], default: str | None = None) -> Check:
    """Accept an object whose field `tag` names its variant. `default` is the variant of an object without the field."""
    checks = {name: schema(variant) for name, variant in variants.items()}

    def check(value: Any, where: Where) -> Any:
        found = mapping(value, where).get(tag)
        found = default if found is None else string(found, (*where, tag))
        if found is None:
            raise Problem("missing", (*where, tag))
        if found not in checks:
            raise Problem("tag", (*where, tag), tuple(checks), found)
        return {tag: found, **checks[found](value, where)}

    return check
