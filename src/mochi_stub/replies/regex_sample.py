"""Sample texts for regular expressions. Back-references and lookarounds are not supported, as in Ollama."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias

Pick = Callable[[int], int]  # pick(n) returns a whole number from 0 to n - 1

_READABLE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_ .,:;/@+*#=%&!?()[]{}<>|\\\"'`~^$"
_MAX_REPEATS = 10_000
_TOKEN = re.compile(
    r"""(?P<anchor>[\^$]|\\[AbBZ])
    | (?P<open>\((?:\?:|\?P<\w+>|(?!\?)))
    | (?P<close>\))
    | (?P<branch>\|)
    | (?P<repeat>(?:[*+?]|\{(?=[\d,])(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)\})[?+]?)
    | (?P<expression>\[\^?\]?(?:\\.|[^\]\\])*\]|\\(?:x..|u.{4}|[^1-9])|[^(\\])""",
    re.VERBOSE | re.DOTALL,
)


class _Item(NamedTuple):
    """Part of a pattern: an expression for one character or a group, with its minimum and maximum repetitions."""

    expression: str | _Branches
    least: int = 1
    most: int = 1


_Branches: TypeAlias = "list[list[_Item]]"


def sample(pattern: str, pick: Pick, longer: int = 0) -> str | None:
    """Return a text that contains a match of the pattern. Return None if the pattern is invalid or not supported.

    `pick(n)` selects one of n alternatives. `longer` adds repetitions to the quantifiers outside of groups.
    """
    try:
        text = _sample(_parsed(pattern), pick, longer)
        return text if re.search(pattern, text) else None
    except (re.error, KeyError, ValueError, IndexError, RecursionError):
        return None


@lru_cache(maxsize=256)
def _parsed(pattern: str) -> _Branches:
    tokens = list(_TOKEN.finditer(pattern))
    if "".join(token[0] for token in tokens) != pattern:
        raise ValueError(f"unsupported syntax: {pattern}")
    return _branches(iter(tokens))


def _branches(tokens: Iterator[re.Match[str]]) -> _Branches:
    branches: _Branches = [[]]
    for token in tokens:
        kind = token.lastgroup
        if kind == "close":
            break
        if kind == "branch":
            branches.append([])
        elif kind == "repeat":
            branches[-1].append(_Item(branches[-1].pop().expression, *_limits(token)))
        elif kind != "anchor":
            branches[-1].append(_Item(_branches(tokens) if kind == "open" else token[0]))
    return branches


def _limits(token: re.Match[str]) -> tuple[int, int]:
    if token["least"] is None:
        return {"*": (0, _MAX_REPEATS), "+": (1, _MAX_REPEATS), "?": (0, 1)}[token[0][0]]
    least = int(token["least"] or 0)
    if least > _MAX_REPEATS:
        raise ValueError("too many repeats")
    return least, int(token["most"] or _MAX_REPEATS) if token["comma"] else least


def _sample(branches: _Branches, pick: Pick, longer: int = 0) -> str:
    text = ""
    for expression, least, most in branches[pick(len(branches))]:
        times = least + longer + (pick(3) if most >= least + 2 else 0)
        for _ in range(min(times, most)):
            if isinstance(expression, str):
                characters = _characters(expression)
                text += characters[pick(len(characters))]
            else:
                text += _sample(expression, pick)
    return text


@lru_cache(maxsize=1024)
def _characters(expression: str) -> str:
    """Return all readable ASCII characters that match, or the first other Unicode character that matches."""
    matches = re.compile(expression, re.DOTALL).fullmatch
    return "".join(filter(matches, _READABLE)) or next(filter(matches, map(chr, range(0x10000))), "")
