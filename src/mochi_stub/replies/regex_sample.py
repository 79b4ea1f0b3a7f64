"""Texts for regular expressions, as far as Ollama's grammars support them: no back-references and no lookarounds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias

Pick = Callable[[int], int]
"""Return a number below the argument."""

_READABLE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_ .,:;/@+*#=%&!?()[]{}<>|\\\"'`~^$"
_MAX_REPEATS = 10_000
_TOKEN = re.compile(
    r"""(?P<anchor>[\^$]|\\[AbBZ])
    | (?P<open>\((?:\?:|\?P<\w+>|(?!\?)))
    | (?P<close>\))
    | (?P<branch>\|)
    | (?P<repeat>(?:[*+?]|\{(?=[\d,])(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)\})[?+]?)
    | (?P<one>\[\^?\]?(?:\\.|[^\]\\])*\]|\\(?:x..|u.{4}|[^1-9])|[^(\\])""",
    re.VERBOSE | re.DOTALL,
)


class _Item(NamedTuple):
    """An expression for one character, or the branches of a group, and how often it repeats."""

    one: str | _Branches
    least: int = 1
    most: int = 1


_Branches: TypeAlias = "list[list[_Item]]"


def sample(pattern: str, pick: Pick, longer: int = 0) -> str | None:
    """Return a text in which the pattern is found, or None if none can be made.

    Each repeat at the top level repeats `longer` times more than it must, as far as the pattern allows.
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
    """Read up to the end of the group that has been opened."""
    branches: _Branches = [[]]
    for token in tokens:
        kind = token.lastgroup
        if kind == "close":
            break
        if kind == "branch":
            branches.append([])
        elif kind == "repeat":
            branches[-1].append(_Item(branches[-1].pop().one, *_limits(token)))
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
    for one, least, most in branches[pick(len(branches))]:
        times = least + longer + (pick(3) if most >= least + 2 else 0)
        for _ in range(min(times, most)):
            if isinstance(one, str):
                found = _characters(one)
                text += found[pick(len(found))]
            else:
                text += _sample(one, pick)
    return text


@lru_cache(maxsize=1024)
def _characters(one: str) -> str:
    """Return the readable characters that the expression matches, else the first of any kind."""
    fits = re.compile(one, re.DOTALL).fullmatch
    return "".join(filter(fits, _READABLE)) or next(filter(fits, map(chr, range(0x10000))), "")
