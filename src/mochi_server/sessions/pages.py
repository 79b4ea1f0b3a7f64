"""A part of the list of sessions, as JSON: lists are long, and are sent as they were written. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mochi_server.sessions.encoding import decode, encode


@dataclass(frozen=True)
class SessionPage:
    """A part of the list; ``total`` counts the sessions of the whole list, or of all that were found.

    ``encoded`` is what clients get, ``{"sessions": [...]}``: sessions as flat objects without their messages.
    """

    encoded: bytes
    total: int

    @classmethod
    def of(cls, entries: Iterable[Mapping[str, Any]], total: int) -> "SessionPage":
        """A page of these entries."""
        return cls.of_encoded(map(encode, entries), total)

    @classmethod
    def of_encoded(cls, entries: Iterable[bytes], total: int) -> "SessionPage":
        """A page of these entries, which are JSON already. They are joined in one go: each copy of many is paid for."""
        parts = [part for entry in entries for part in (b",", entry)] or [b""]
        parts[0] = b'{"sessions":['
        return cls(b"".join([*parts, b"]}"]), total)

    @cached_property
    def entries(self) -> list[dict[str, Any]]:
        """The sessions, decoded."""
        entries: list[dict[str, Any]] = decode(self.encoded)["sessions"]
        return entries
