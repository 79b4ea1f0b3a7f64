"""Tool schemas from functions: the schema for models and the arguments for the function."""

import functools
import math
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import date
from typing import Annotated, Any, Literal, Optional

import orjson
import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, StrictFloat, StrictInt

from mochi_server.tools.schema import InvalidArguments, InvalidTool, ToolSchemaService, make_schema
from tests.support.cases import cases
from tests.unit.tool_kinds import KINDS, Colour, returns


@cases(("annotation", "schema", "fitting", "refused"), KINDS.values(), ids=KINDS)
async def test_schema_has_the_type_and_arguments_are_converted(
    annotation: Any, schema: dict[str, Any], fitting: list[tuple[Any, Any]], refused: list[Any]
) -> None:
    tool = make_schema(returns(annotation), "tool")

    assert tool.parameters["properties"] == {"value": schema}
    assert tool.parameters["required"] == ["value"]
    for given, received in fitting:
        bound = await tool.bind({"value": given})
        assert bound.arguments == {"value": received}
        assert type(bound.arguments["value"]) is type(received)
    for given in refused:
        with pytest.raises(InvalidArguments, match="value"):
            await tool.bind({"value": given})


def test_schema_has_the_name_of_its_function_by_default() -> None:
    schemas = ToolSchemaService()
    assert schemas.schema_of(returns(int)).name == "tool"
    assert schemas.schema_of(returns(int), "other").name == "other"


def test_schema_is_made_once_for_each_name_of_a_function() -> None:
    schemas, function = ToolSchemaService(), returns(int)
    schema = schemas.schema_of(function)
    assert schemas.schema_of(function) is schema
    assert schemas.schema_of(function, "other") is not schema
    assert schemas.schema_of(returns(int)) is not schema


async def test_default_makes_a_parameter_optional() -> None:
    tool = make_schema(returns(int, 3), "tool")
    assert "required" not in tool.parameters
    assert tool.parameters["properties"]["value"]["description"] == "(default: 3)"
    assert (await tool.bind({})).arguments == {"value": 3}


@cases("arguments", [{}, {"valeu": 1}, {"value": 1, "more": 2}])
async def test_missing_and_misspelled_arguments_are_named(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        await make_schema(returns(int), "tool").bind(arguments)


class Booking(BaseModel):
    """A booking."""

    model_config = ConfigDict(strict=True)
    day: date
    colours: set[Colour]
    size: tuple[int, float] = (1, 1.0)


@cases(
    ("annotation", "fitting", "received", "refused", "reason"),
    [
        (
            Booking,
            {"day": "2026-01-02", "colours": ["red"], "size": [2, 3]},
            Booking(day=date(2026, 1, 2), colours={Colour.RED}, size=(2, 3.0)),
            {"day": "2026-01-02", "colours": [], "size": ["2", 3]},
            "value.size.0: Input should be a valid integer",
        ),
        (
            Annotated[date, Field(strict=True)],
            "2026-01-02",
            date(2026, 1, 2),
            "tomorrow",
            "value: Input should be a valid date",
        ),
        (Annotated[bytes, Strict()], "x", b"x", 5, "value: Input should be a valid bytes"),
        (list[StrictFloat], [1, math.inf], [1.0, math.inf], ["1"], "value.0: Input should be a"),
    ],
)
async def test_strict_types_accept_their_values_in_json(
    annotation: Any, fitting: Any, received: Any, refused: Any, reason: str
) -> None:
    tool = make_schema(returns(annotation), "tool")
    assert (await tool.bind({"value": fitting})).arguments == {"value": received}
    with pytest.raises(InvalidArguments, match=re.escape(reason)):
        await tool.bind({"value": refused})


async def test_missing_and_misspelled_arguments_of_strict_types_are_named() -> None:
    tool = make_schema(returns(StrictInt, 3), "tool")
    assert (await tool.bind({})).arguments == {"value": 3}
    with pytest.raises(InvalidArguments, match="valeu: Unexpected argument"):
        await tool.bind({"valeu": 1})


@pytest.mark.parametrize("annotation", [int, StrictInt])
async def test_problems_of_arguments_do_not_name_kinds_of_python(annotation: Any) -> None:
    tool = make_schema(returns(annotation), "tool")
    with pytest.raises(InvalidArguments) as raised:
        await tool.bind({"valeu": 1})
    assert sorted(str(raised.value).split("; ")) == [
        "valeu: Unexpected argument",
        "value: Missing required argument",
    ]


def fail(value: int) -> int:
    raise ZeroDivisionError


async def test_exception_of_a_validator_is_an_invalid_argument() -> None:
    tool = make_schema(returns(Annotated[int, AfterValidator(fail)]), "tool")
    with pytest.raises(InvalidArguments, match="ZeroDivisionError"):
        await tool.bind({"value": 0})


def leave(value: int) -> int:
    raise SystemExit


async def test_validator_cannot_stop_the_event_loop() -> None:
    tool = make_schema(returns(Annotated[int, AfterValidator(leave)]), "tool")
    with pytest.raises(InvalidArguments, match="SystemExit"):
        await tool.bind({"value": 0})


def google(a: int, b: str = "x") -> str:
    """Do a thing.

    At length.

    Args:
        a: The first,
            over two lines.
        b (str): The second.

    Returns:
        What was done.
    """
    return f"{a}{b}"


def numpy(a: int, b: str = "x") -> str:
    """Do a thing.

    At length.

    Parameters
    ----------
    a : int
        The first,
        over two lines.
    b : str
        The second.
    """
    return f"{a}{b}"


def rest(a: int, b: str = "x") -> str:
    """Do a thing.

    At length.

    :param a: The first,
        over two lines.
    :param b: The second.
    :returns: What was done.
    """
    return f"{a}{b}"


@cases("function", [google, numpy, rest])
def test_docstrings_of_every_style_describe_the_parameters(function: Callable[..., str]) -> None:
    tool = make_schema(function, "tool")
    assert tool.description == "Do a thing.\n\nAt length."
    assert tool.overview == {
        "a": {"type": "int", "description": "The first, over two lines."},
        "b": {"type": "str", "description": "The second."},
    }
    assert tool.parameters["properties"]["b"]["description"] == "The second. (default: x)"


def test_description_in_the_annotation_is_shown_unless_the_docstring_has_one() -> None:
    function = returns(Annotated[int, Field(description="From the annotation.")])
    assert make_schema(function, "tool").overview["value"]["description"] == "From the annotation."
    function.__doc__ = "Do.\n\nArgs:\n    value: From the docstring."
    assert make_schema(function, "tool").overview["value"]["description"] == "From the docstring."


GOOGLE_WITH_PARAGRAPHS = """Book a seat.

At length.

Args:
    value: The seat.

        Its row comes first.

Never book two seats.

Note:
    Seats are free.

Example:
    book(1)

Raises:
    ValueError: If it is taken.

Ask before you book."""

NUMPY_WITH_PARAGRAPHS = """Book a seat.

At length.

Parameters
----------
value : int
    The seat.

    Its row comes first.

Notes
-----
Seats are free.

Raises
------
ValueError
    If it is taken.

Examples
--------
>>> book(1)"""


@cases(
    ("documentation", "description"),
    [
        (
            GOOGLE_WITH_PARAGRAPHS,
            "Book a seat.\n\nAt length.\n\nNever book two seats.\n\nNote:\n    Seats are free.\n\n"
            "Example:\n    book(1)\n\nAsk before you book.",
        ),
        (
            NUMPY_WITH_PARAGRAPHS,
            "Book a seat.\n\nAt length.\n\nNotes\n-----\nSeats are free.\n\n"
            "Examples\n--------\n>>> book(1)",
        ),
        ("Args:\n    value: The seat.\n\nNever book two seats.", "Never book two seats."),
    ],
)
def test_paragraphs_and_notes_after_the_parameters_reach_the_model(
    documentation: str, description: str
) -> None:
    function = returns(int)
    function.__doc__ = documentation
    tool = make_schema(function, "tool")
    assert tool.description == description
    assert tool.overview["value"]["description"].startswith("The seat.")


@pytest.mark.parametrize(
    ("documentation", "description"),
    [
        (
            "Do.\n\nArgs:\n    value: The value.\n\n:param dict or None value: malformed",
            "The value.",
        ),
        ("Do.\n\n:param dict or None value: malformed", ""),
    ],
)
def test_styles_in_which_a_docstring_is_malformed_are_ignored(
    documentation: str, description: str
) -> None:
    function = returns(int)
    function.__doc__ = documentation
    tool = make_schema(function, "tool")
    assert tool.description.startswith("Do.")
    assert tool.overview["value"]["description"].startswith(description)


@cases(
    ("annotation", "name"),
    [
        (list[str], "list[str]"),
        (dict[str, list[int]], "dict"),
        (int | None, "int | None"),
        (Optional[str], "str | None"),  # noqa: UP045 - under test
        (Literal["a", 1], "Literal['a', 1]"),
        (Annotated[float, Field(ge=0)], "float"),
        (tuple[int, ...], "list[int]"),
        (Colour, "Literal['red', 'blue']"),
    ],
)
def test_types_are_shown_in_python_notation(annotation: Any, name: str) -> None:
    assert make_schema(returns(annotation), "tool").overview["value"]["type"] == name


def without_docstring(a: int) -> str:
    return str(a)


def without_hint(a) -> str:  # type: ignore[no-untyped-def]  # under test
    """Do."""
    return str(a)


def without_result(a: int):  # type: ignore[no-untyped-def]  # under test
    """Do."""


def with_several_faults(a, b):  # type: ignore[no-untyped-def]  # under test
    return a + b


def with_many(*numbers: int) -> str:
    """Do."""
    return str(numbers)


def with_anything(**things: int) -> str:
    """Do."""
    return str(things)


async def in_parts(number: int) -> AsyncIterator[str]:
    """Do."""
    yield str(number)


def with_a_socket(a: "socket.socket") -> str:  # type: ignore[name-defined]  # noqa: F821 - under test
    """Do."""
    return str(a)


@cases(
    ("thing", "reason"),
    [
        (without_docstring, "docstring"),
        (without_hint, "'a' has no type"),
        (without_result, "return type"),
        (with_several_faults, "docstring.*'a' has no type.*'b' has no type.*return type"),
        (with_many, "numbers"),
        (with_anything, "things"),
        (with_a_socket, "annotations"),
        (in_parts, "yields"),
        (returns(subprocess.Popen), "JSON"),
        (Colour, "not a function"),
        (5, "not a function"),
    ],
)
def test_invalid_tools_have_a_reason(thing: Any, reason: str) -> None:
    with pytest.raises(InvalidTool, match=reason):
        make_schema(thing, "tool")


class Counter:
    """Something with state."""

    def __call__(self, up_to: int) -> str:
        return self.count(up_to)

    def count(self, up_to: int) -> str:
        """Count."""
        return str(up_to)


async def test_methods_callable_objects_and_wrapped_or_async_functions_are_tools() -> None:
    async def later(a: int) -> str:
        """Do it later."""
        return str(a)

    @functools.wraps(google)
    def wrapped(*arguments: Any, **named: Any) -> str:
        return google(*arguments, **named)

    def positional(a: int, /, b: int) -> str:
        """Subtract."""
        return str(a - b)

    assert make_schema(Counter().count, "count").parameters["required"] == ["up_to"]
    assert make_schema(Counter(), "count").parameters["required"] == ["up_to"]
    assert make_schema(later, "later").parameters["required"] == ["a"]
    assert make_schema(wrapped, "wrapped").parameters["required"] == ["a"]
    bound = await make_schema(positional, "positional").bind({"b": 1, "a": 3})
    assert (bound.args, bound.kwargs) == ((3, 1), {}) or bound.args == (3,)
    assert positional(*bound.args, **bound.kwargs) == "2"


@pytest.mark.parametrize(
    "seeds", [("1",), pytest.param(("1", "2", "3"), marks=pytest.mark.nightly)]
)
def test_schemas_are_the_same_bytes_in_every_process(seeds: tuple[str, ...]) -> None:
    program = (
        "from tests.unit.tool_kinds import KINDS, returns\nfrom mochi_server.tools.schema import "
        "make_schema\nimport orjson\nprint(orjson.dumps([make_schema(returns(k[0]), "
        "'t').definition() for k in KINDS.values()]).decode())"
    )
    here = orjson.dumps(
        [make_schema(returns(kind[0]), "t").definition() for kind in KINDS.values()]
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in seeds
    }
    assert printed == {here + b"\n"}


def test_description_of_the_result_reaches_the_model() -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a (int): First.
            b (int): Second.

        Returns:
            int: The sum of
                both numbers.
        """
        return a + b

    schema = make_schema(add, "add")
    assert schema.description == "Add two numbers."
    description = schema.definition()["function"]["description"]
    assert description == "Add two numbers.\n\nReturns: The sum of both numbers."
