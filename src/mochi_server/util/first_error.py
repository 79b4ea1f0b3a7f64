"""Types of lists and objects in requests and files that report only their first invalid entry.

Pydantic reports each invalid entry by default. A body can contain millions of them, which would exhaust the memory.
"""

from typing import Annotated, Any, TypeVar, cast

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator

_Item = TypeVar("_Item")


def _validate_each(entries: object, validate: ValidatorFunctionWrapHandler) -> dict[str, Any]:
    if not isinstance(entries, dict):
        return cast("dict[str, Any]", validate(entries))
    return {name: value for entry in entries.items() for name, value in validate(dict([entry])).items()}


Items = Annotated[list[_Item], Field(fail_fast=True)]
"""List that reports only its first invalid item."""
Entries = Annotated[dict[str, _Item], WrapValidator(_validate_each)]
"""Object with any field names that reports only its first invalid value."""
