"""Validation of JSON request bodies.

A schema consists of literals, for example `{"name!": str, "mode": ("auto", "none"), "tags":
[str]}`:

- A dictionary describes an object. A field whose name ends in `!` is required. Field names in camel
  case are also accepted in snake case. A field whose value is null is treated as missing, and
  unknown fields are ignored.
- A tuple lists the permitted strings.
- A list describes an array. If the list ends in `...`, the array must not be empty.
- `str`, `bool`, `float` (any number), `dict` or `object` (any value) is a type.
- Any other value is a `Check`: a function that validates and returns a JSON value. Its arguments
  are the value and the location of the value in the body.

Checks raise ValidationError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import inf
from typing import Any, TypeAlias

import orjson

from mochi_stub.handlers import Handler, Result, Stub
from mochi_stub.http import Request
from mochi_stub.json_encoding import JsonObject, dumps
from mochi_stub.reply import HttpError

MAX_INTEGER = 2**63 - 1
Location: TypeAlias = "tuple[str | int, ...]"
Check: TypeAlias = "Callable[[Any, Location], Any]"
Schema: TypeAlias = Any
"""Nested literals and checks, as the module docstring describes.

Type checkers cannot infer a narrower type.
"""


class ValidationError(HttpError):
    """First error in a request body.

    The argument `expected` describes the valid values in the message.

    Attributes:
        location: Path of keys and indices to the invalid value.
        found: The invalid value, or None if it is missing or null.
        type_name: Type that Ollama's message about this error names. It is empty for kinds of
            errors that no schema of Ollama has.
    """

    def __init__(
        self, location: Location, expected: str, found: Any = None, type_name: str = ""
    ) -> None:
        path = _path_of(location)
        place = path or "the body"
        shown = "nothing" if found is None else dumps(found)
        message = f"Invalid value for {place}: expected {expected}, found {shown:.100}"
        super().__init__(400, message, param=path or None)
        self.location = location
        self.found = found
        self.type_name = type_name


def _path_of(location: Location) -> str:
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}"
    return path.removeprefix(".")


def read(data: bytes, check: Check) -> Any:
    """Parse a JSON body and return the result of `check`.

    Raises HttpError (400) for an invalid body.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise HttpError(400, f"The request body is not valid JSON: {error}") from error
    return check(value, ())


def checked(check: Check, handler: Callable[[Stub, Request, JsonObject], Result]) -> Handler:
    """Return a handler that validates the request body and passes it to `handler`."""

    def handle(stub: Stub, request: Request) -> Result:
        body = read(request.body, check)
        return handler(stub, request, body)

    return handle


_KINDS = {
    "NoneType": "null",
    "bool": "boolean",
    "int": "integer",
    "float": "decimal",
    "str": "string",
    "list": "array",
}


def kind_of(value: Any) -> str:
    """Return the name of the JSON type of a value."""
    return _KINDS.get(type(value).__name__, "object")


@lru_cache
def snake_case(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def schema(literal: Schema) -> Check:
    """Build the function that validates values against a schema."""
    if isinstance(literal, Mapping):
        return _object(literal)
    if isinstance(literal, tuple):
        return _one_of(literal)
    if isinstance(literal, list):
        return _array_of(literal[0], least=len(literal) - 1)
    if isinstance(literal, type):
        return _number if literal is float else _typed(literal)
    check: Check = literal
    return check


def _typed(python_type: type) -> Check:
    kind = kind_of(python_type())

    def check(value: Any, location: Location) -> Any:
        if not isinstance(value, python_type):
            raise ValidationError(location, kind, value, type_name=kind)
        return value

    return check


_string = _typed(str)
_array = _typed(list)
_mapping = _typed(dict)


def integer(low: float = -inf, high: float = MAX_INTEGER) -> Check:
    """Build a check for an integer from `low` to `high`. A number such as 3.0 is also accepted."""
    too_low = f"integer of at least {low:g}"
    too_high = f"integer of at most {high}"
    if high < MAX_INTEGER:
        too_low = too_high = f"integer from {low:g} to {high:g}"

    def check(value: Any, location: Location) -> Any:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if kind_of(value) != "integer":
            raise ValidationError(location, "integer", value, type_name="integer")
        if value < low:
            raise ValidationError(location, too_low, value, type_name="integer")
        if value > high:
            raise ValidationError(location, too_high, value, type_name="integer")
        return value

    return check


def _number(value: Any, location: Location) -> Any:
    if kind_of(value) not in ("integer", "decimal"):
        raise ValidationError(location, "number", value)
    return value


def _one_of(values: tuple[str, ...]) -> Check:
    expected = ", ".join(values)

    def check(value: Any, location: Location) -> Any:
        if _string(value, location) not in values:
            raise ValidationError(location, f"one of {expected}", value)
        return value

    return check


def _array_of(item: Schema, least: int) -> Check:
    check_item = schema(item)

    def check(value: Any, location: Location) -> Any:
        items = _array(value, location)
        if len(items) < least:
            raise ValidationError(location, f"at least {least} item", value)
        results = []
        for index, element in enumerate(items):
            place = (*location, index)
            results.append(check_item(element, place))
        return results

    return check


def string_or(array: Schema) -> Check:
    """Build a check for a string, or for an array that matches the schema `array`."""
    check_array = schema(array)

    def check(value: Any, location: Location) -> Any:
        if isinstance(value, list):
            return check_array(value, location)
        return _string(value, location)

    return check


def _object(fields: Mapping[str, Schema]) -> Check:
    checks = {}
    required = []
    names = {}
    for declared, field in fields.items():
        name = declared.removesuffix("!")
        checks[name] = schema(field)
        names[snake_case(name)] = name
        if declared.endswith("!"):
            required.append(name)

    def check(value: Any, location: Location) -> Any:
        present = {}
        for given, item in _mapping(value, location).items():
            if item is not None:
                name = names.get(given, given)
                present[name] = item
        for name in required:
            if name not in present:
                raise ValidationError((*location, name), "a value")
        results = {}
        for name, check_field in checks.items():
            if name in present:
                place = (*location, name)
                results[name] = check_field(present[name], place)
        return results

    return check


def tagged(
    tag: str, variants: Mapping[str, Schema], default: str | None = None, *, others: Schema = None
) -> Check:
    """Build a check for an object that has one of several schemas.

    The value of the field with the name `tag` is the key of the schema in `variants`. If an object
    has no such field, `default` is the key, or the object is refused if `default` is None. `others`
    is the schema of objects with another tag, which are refused if it is None.

    The schemas in `variants` do not declare the tag: the check adds it to their results. `others`
    declares the tag itself.
    """
    checks = {name: schema(variant) for name, variant in variants.items()}
    check_other = None if others is None else schema(others)
    expected = ", ".join(checks)

    def check(value: Any, location: Location) -> Any:
        place = (*location, tag)
        found = _mapping(value, location).get(tag)
        if found is None:
            found = default
        else:
            _string(found, place)
        if found in checks:
            results = checks[found](value, location)
            return {tag: found, **results}
        if check_other is not None and found is not None:
            return check_other(value, location)
        raise ValidationError(place, f"one of {expected}", found)

    return check
