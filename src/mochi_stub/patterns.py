"""A text for a regular expression. Made from Python's own parse of it; what that does not read has no text here."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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


@dataclass
class _Wish:
    """How to choose where there is a choice. `longer` is how often more than needed whatever may repeat does."""

    pick: Pick
    longer: int
    groups: dict[int, str] = field(default_factory=dict)


def matching(pattern: str, pick: Pick, longer: int = 0) -> str | None:
    """A text in which the pattern is found; None where none could be made.

    Whatever may repeat does so `longer` times more than it must, as far as the pattern allows; what is in it does not.
    """
    try:
        text = _sequence(_PARSER.parse(pattern), _Wish(pick, longer))
        return text if re.search(pattern, text) else None
    except (re.error, KeyError, ValueError, RecursionError, OverflowError):
        return None


def _sequence(parsed: Any, wish: _Wish) -> str:
    return "".join([_piece(operation.name, argument, wish) for operation, argument in parsed])


def _piece(name: str, argument: Any, wish: _Wish) -> str:
    """One item of the parse. Raises KeyError for one that is not known here."""
    if name == "SUBPATTERN":
        wish.groups[argument[0]] = text = _sequence(argument[-1], wish)
        return text
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _repeated(argument, wish)
    if name == "BRANCH":
        return _sequence(argument[1][wish.pick(len(argument[1]))], wish)
    if name == "GROUPREF":
        return wish.groups[argument]
    if name in ("AT", "ASSERT", "ASSERT_NOT"):
        return ""
    single = {
        "LITERAL": lambda: chr(argument),
        "ANY": lambda: _READABLE[wish.pick(26)],
        "NOT_LITERAL": lambda: _first(lambda one: ord(one) != argument, wish.pick),
        "IN": lambda: _one_of(argument, wish.pick),
    }
    return single[name]()


def _repeated(argument: Any, wish: _Wish) -> str:
    least, most, item = argument
    if least > _MAX_REPEATS:
        raise ValueError("too many repeats")
    times = least + wish.longer + (wish.pick(3) if int(most) >= least + 2 else 0)
    inner = replace(wish, longer=0)  # or repeats in repeats would multiply
    return "".join([_sequence(item, inner) for _ in range(min(times, int(most), _MAX_REPEATS))])


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
