"""Types of parameters and their schemas.

A program imports this module, so it imports no test library.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional, Union

from pydantic import BaseModel, Field


class Colour(enum.Enum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    """A nested form."""

    street: str = Field(description="with the number")
    parent: Optional["Address"] = None


@dataclass
class Point:
    """A nested form."""

    x: int
    y: int = 0


def returns(annotation: Any, default: Any = ...) -> Callable[..., str]:
    """Return a function with one parameter of a type, which returns its argument's
    representation.
    """

    def tool(value: Any) -> str:
        """Say what was given."""
        return repr(value)

    tool.__annotations__ = {"value": annotation, "return": str}
    if default is not ...:
        tool.__defaults__ = (default,)
    return tool


KINDS: dict[str, tuple[Any, dict[str, Any], list[tuple[Any, Any]], list[Any]]] = {
    "int": (int, {"type": "integer"}, [(3, 3), ("3", 3)], ["x", 3.5, None, [3]]),
    "float": (float, {"type": "number"}, [(1, 1.0), ("2.5", 2.5)], ["x", None]),
    "bool": (bool, {"type": "boolean"}, [(True, True), ("true", True)], ["perhaps", 7]),
    "str": (str, {"type": "string"}, [("x", "x")], [5, None, ["x"]]),
    "Optional": (Optional[str], {"type": "string"}, [("x", "x"), (None, None)], [5]),  # noqa: UP045 - under test
    "or None": (int | None, {"type": "integer"}, [(1, 1), (None, None)], ["x"]),
    "Literal": (
        Literal["a", "b"],
        {"type": "string", "enum": ["a", "b"]},
        [("a", "a")],
        ["c", None],
    ),
    "one Literal": (Literal["a"], {"type": "string", "enum": ["a"]}, [("a", "a")], ["b"]),
    "Enum": (
        Colour,
        {"type": "string", "description": "A choice.", "enum": ["red", "blue"]},
        [("blue", Colour.BLUE)],
        ["green"],
    ),
    "list of anything": (list, {"type": "array", "items": {}}, [(["a", 1], ["a", 1])], ["a"]),
    "list": (
        list[str],
        {"type": "array", "items": {"type": "string"}},
        [(["a"], ["a"])],
        ["a", [1]],
    ),
    "set": (set[int], {"type": "array", "items": {"type": "integer"}}, [([1, 1], {1})], [5]),
    "tuple": (
        tuple[int, str, int],
        {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}},
        [([1, "x", 2], (1, "x", 2))],
        [[1, "x"], ["x", 1, 2]],
    ),
    "tuple of one type": (
        tuple[float, float],
        {"type": "array", "items": {"type": "number"}},
        [([1, 2.5], (1.0, 2.5))],
        [[1], ["x", 1]],
    ),
    "dict": (dict[str, int], {"type": "object"}, [({"a": 1}, {"a": 1})], [{"a": "x"}, []]),
    "union": (
        Union[int, str],  # noqa: UP007 - under test
        {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        [(1, 1), ("x", "x")],
        [None, []],
    ),
    "union with bool": (
        int | bool,
        {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
        [(1, 1), (True, True)],
        ["x"],
    ),
    "dataclass": (
        Point,
        {
            "type": "object",
            "description": "A nested form.",
            "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
            "required": ["x"],
        },
        [({"x": "1"}, Point(1, 0))],
        [{}, {"x": "a"}],
    ),
    "model": (
        Address,
        {
            "type": "object",
            "description": "A nested form.",
            "properties": {
                "street": {"type": "string", "description": "with the number"},
                "parent": {"type": "object"},
            },
            "required": ["street"],
        },
        [
            (
                {"street": "A 1", "parent": {"street": "B 2"}},
                Address(street="A 1", parent=Address(street="B 2")),
            )
        ],
        [{"parent": None}],
    ),
    "Annotated": (
        Annotated[int, Field(ge=1, description="at least one")],
        {"type": "integer", "description": "at least one"},
        [(1, 1)],
        [0],
    ),
}
