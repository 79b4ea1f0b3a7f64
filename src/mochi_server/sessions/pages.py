"""A part of the list of sessions, as JSON: lists are long, and are sent as they were written. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mochi_server.sessions.encoding import decode, encode


@dataclass(frozen=True)
class SessionPage:
    """A part of the list; ``total`` counts the sessions of the whole list, or of all that were found.

    ``encoded`` is a JSON array of sessions as flat objects without their messages, ``entries`` what it holds.
    """

    encoded: bytes
    total: int

    @classmethod
    def of(cls, entries: Sequence[dict[str, Any]], total: int) -> "SessionPage":
        """A page of these entries."""
        return cls(encode(entries), total)

    @cached_property
    def entries(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = decode(self.encoded)
        return entries
