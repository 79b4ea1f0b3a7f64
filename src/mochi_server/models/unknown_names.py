"""Rejection of misspelt names: fields of request bodies and generation options."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from itertools import islice

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

_REPORTED = 20
_SHOWN_CHARS = 100


def reject_unknown(names: Iterable[str], known: Collection[str], *, kind: str) -> None:
    """Raise a `ValidationError` that names each unknown name and the nearest known one.

    Args:
        kind: What the names are, for the message: "field" or "option".
    """
    if unknown := [*islice((name for name in names if name not in known), _REPORTED)]:
        raise ValidationError.from_exception_data(kind, [_problem(_shown(name), known, kind) for name in unknown])


def _problem(name: str, known: Collection[str], kind: str) -> InitErrorDetails:
    nearest = get_close_matches(name, known, n=1)
    hint = f"Did you mean `{nearest[0]}`?" if nearest else f"Known {kind}s: {', '.join(sorted(known))}."
    error = PydanticCustomError("extra_forbidden", "unknown {kind}. {hint}", {"kind": kind, "hint": hint})
    return InitErrorDetails(type=error, loc=(name,), input=None)


def _shown(name: str) -> str:
    """Return a name that a response can carry: short, and without lone surrogates."""
    return name[:_SHOWN_CHARS].encode(errors="backslashreplace").decode()
