"""Texts that help users to correct a misspelt name."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

MAX_LISTED = 10


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the name in ``known`` that is most similar to ``name``, or None if no name is similar."""
    return next(iter(get_close_matches(name, list(known), n=1)), None)


def join_names(names: Collection[str]) -> str:
    """Return names as a list in one line. A long list ends with the number of the remaining names, at least two."""
    first = [*names] if len(names) == MAX_LISTED + 1 else [*names][:MAX_LISTED]
    more = len(names) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")
