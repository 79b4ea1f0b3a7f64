"""Validation of requests and files by pydantic: types that report only their first error, and texts
of errors.

Pydantic would report each invalid entry. A body can contain millions of them, which would exhaust
the memory.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar, cast

from pydantic import (
    AfterValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

MAX_REPORTED = 20  # maximum number of entries in the details of an API error
_OBJECT_TYPES = ("dict_type", "model_type", "model_attributes_type")
"""Types of pydantic's errors for values that are no objects. Their messages name Python classes."""

_Item = TypeVar("_Item")


def _validate_each(entries: object, validate: ValidatorFunctionWrapHandler) -> dict[str, Any]:
    if not isinstance(entries, dict):
        return cast("dict[str, Any]", validate(entries))
    valid: dict[str, Any] = {}
    for name, value in entries.items():
        valid |= validate({name: value})
    return valid


Items = Annotated[list[_Item], Field(fail_fast=True)]
"""List that reports only its first invalid item."""
Entries = Annotated[dict[str, _Item], WrapValidator(_validate_each)]
"""Object with any field names that reports only its first invalid value."""


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain NUL characters")
    return text


StorableText = Annotated[
    str, AfterValidator(_without_nul), Field(json_schema_extra={"pattern": r"^[^\x00]*$"})
]
"""Text for a column of PostgreSQL, which cannot store NUL characters."""


NOT_BLANK = {"pattern": r"[^\s\x1c-\x1f\x85]"}
"""Pattern for text that is not blank, for the OpenAPI document.

JavaScript's ``\\s`` lacks some of Python's blanks.
"""


def to_entry(error: Mapping[str, Any], location: Sequence[str | int]) -> dict[str, Any]:
    """Return the entry of the invalid field at ``location`` for the details of an API error."""
    text = error["msg"].removeprefix("Value error, ")
    if error["type"] in _OBJECT_TYPES:
        text = "Input should be a JSON object"
    return {"loc": [*location], "msg": text, "type": error["type"]}


def to_entries(error: ValidationError, value: object) -> list[dict[str, Any]]:
    """Return the entries of the first invalid fields of ``value`` for the details of an API
    error.
    """
    problems = error.errors(include_url=False, include_context=False)[:MAX_REPORTED]
    return [to_entry(problem, field_path(problem, problem["loc"], value)) for problem in problems]


def describe(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the path of the first invalid field, without a leading ``body``, and what is wrong
    with this field.
    """
    first = entries[0]["loc"]
    # A field with a union type has one entry per member of the union. The deepest one is about the
    # sent type.
    candidates = [entry["loc"] for entry in entries if entry["loc"][: len(first)] == first]
    location = max(candidates, key=len)
    reasons = [entry["msg"] for entry in entries if entry["loc"] == location]
    text = "; ".join(dict.fromkeys(reasons))
    steps = location[1:] if location[:1] == ["body"] else location
    field = ".".join(map(str, steps))
    return f"{field}: {text}" if field else text


def field_path(error: Mapping[str, Any], steps: Sequence[Any], value: Any) -> list[str | int]:
    """Return the path of an invalid field in ``value``.

    ``steps`` also contains the names of union members.
    """
    path: list[str | int] = []
    absent = steps[-1:] if error["type"] in ("missing", "extra_forbidden") else ()
    for step in steps[: len(steps) - len(absent)]:
        if value is error.get("input"):  # the other steps are names of union members
            break
        is_key = isinstance(value, dict) and step in value
        is_index = isinstance(value, list) and isinstance(step, int)
        if is_key or is_index:
            path.append(step)
            value = value[step]
    return [*path, *absent]
