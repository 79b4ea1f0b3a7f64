"""A text for a regular expression. Made from Python's own parse of it; what that does not read has no text here."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

_PARSER: Any = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
_READABLE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_ .,:;/@+*#=%&!?()[]{}<>|\\\"'`~^$"
_CATEGORIES: dict[str, Callable[[str], bool]] = {
    "DIGIT": str.isdecimal,
    "SPACE": str.isspace,
    "WORD": lambda one: one.isalnum() or one == "_",
}
_MAX_REPEATS = 10_000

Pick = Callable[[int], int]
"""A number below the one given."""


def matching(pattern: str, pick: Pick) -> str | None:
    """A text in which the pattern is found; None where none could be made."""
    try:
        text = _sequence(_PARSER.parse(pattern), pick, {})
        return text if re.search(pattern, text) else None
    except (re.error, KeyError, ValueError, RecursionError, OverflowError):
        return None


def _sequence(parsed: Any, pick: Pick, groups: dict[int, str]) -> str:
    return "".join([_piece(operation.name, argument, pick, groups) for operation, argument in parsed])


def _piece(name: str, argument: Any, pick: Pick, groups: dict[int, str]) -> str:
    """One item of the parse. Raises KeyError for one that is not known here."""
    if name == "SUBPATTERN":
        groups[argument[0]] = text = _sequence(argument[-1], pick, groups)
        return text
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _repeated(argument, pick, groups)
    if name == "BRANCH":
        return _sequence(argument[1][pick(len(argument[1]))], pick, groups)
    if name == "GROUPREF":
        return groups[argument]
    if name in ("AT", "ASSERT", "ASSERT_NOT"):
        return ""
    single = {
        "LITERAL": lambda: chr(argument),
        "ANY": lambda: _READABLE[pick(26)],
        "NOT_LITERAL": lambda: _first(lambda one: ord(one) != argument, pick),
        "IN": lambda: _one_of(argument, pick),
    }
    return single[name]()


def _repeated(argument: Any, pick: Pick, groups: dict[int, str]) -> str:
    least, most, item = argument
    if least > _MAX_REPEATS:
        raise ValueError("too many repeats")
    return "".join([_sequence(item, pick, groups) for _ in range(least + (pick(3) if int(most) >= least + 2 else 0))])


def _one_of(members: Any, pick: Pick) -> str:
    """A character of a class, a readable one where the class has any."""
    negated = members[0][0].name == "NEGATE"
    tests = [_member(operation.name, argument) for operation, argument in members if operation.name != "NEGATE"]
    try:
        return _first(lambda one: any(test(one) for test in tests) is not negated, pick)
    except ValueError:
        name, argument = members[0][0].name, members[0][1]
        return chr(argument[0] if name == "RANGE" else argument)


def _member(name: str, argument: Any) -> Callable[[str], bool]:
    if name == "LITERAL":
        return lambda one: ord(one) == argument
    if name == "RANGE":
        return lambda one: bool(argument[0] <= ord(one) <= argument[1])
    category = argument.name.removeprefix("CATEGORY_")
    test = _CATEGORIES[category.removeprefix("NOT_")]
    return lambda one: test(one) is not category.startswith("NOT_")


def _first(fits: Callable[[str], bool], pick: Pick) -> str:
    found = [one for one in _READABLE if fits(one)]
    if not found:
        raise ValueError("no readable character fits")
    return found[pick(len(found))]
