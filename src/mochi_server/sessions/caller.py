"""Caller of the current request, which owns what the request creates."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from mochi_server.sessions.permissions import EVERYTHING, Permissions


@dataclass(frozen=True)
class Caller:
    """Sender of a request, from its API key and `X-Mochi-User`.

    The default sees everything, may use everything and owns nothing.
    """

    key: str = ""  # name of the API key, or "" for no key; `key-1` is the first of the settings
    owner: str | None = None  # owner of what the caller creates: `<key ID>` or `<key ID>/<user ID>`
    sees_all: bool = True
    turns_at_a_time: int | None = None
    turns_per_minute: int | None = None
    tokens_per_day: int | None = None
    expires_at: float | None = None  # Unix time in seconds after which the key is refused
    permissions: Permissions = EVERYTHING

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Caller":
        """Return the caller in the result of ``dataclasses.asdict``, sent as JSON.

        Missing fields have their defaults. Raises ValueError, TypeError or LookupError for
        unknown fields and values.
        """
        if "permissions" not in fields:
            return cls(**fields)
        return cls(**{**fields, "permissions": Permissions.from_json(fields["permissions"])})

    @property
    def has_expired(self) -> bool:
        return self.expires_at is not None and time.time() >= self.expires_at

    @property
    def limits_turns(self) -> bool:
        """Whether the turns of the key are counted."""
        return self.turns_at_a_time is not None or self.turns_per_minute is not None

    def sees(self, owner: str | None) -> bool:
        """Return whether the caller may see what belongs to ``owner``."""
        return self.sees_all or owner == self.owner

    def inside(self, owner: str | None) -> "Caller":
        """Return the caller during a turn in a session of ``owner``.

        What the turn creates has the same owner. In a session of another owner, even a caller that
        sees everything sees only what belongs to that owner.
        """
        return (
            self
            if owner == self.owner
            else replace(self, owner=owner, sees_all=self.sees_all and owner is None)
        )


UNRESTRICTED = Caller()
CALLER: ContextVar[Caller] = ContextVar("caller", default=UNRESTRICTED)
"""Caller of the current request. Tasks that the request starts inherit the caller."""


def current_owner() -> str | None:
    return CALLER.get().owner


@contextmanager
def acting_as(caller: Caller) -> Iterator[None]:
    """Replace the current caller while the context is open."""
    token = CALLER.set(caller)
    try:
        yield
    finally:
        CALLER.reset(token)
