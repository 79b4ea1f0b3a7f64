"""Checkpoint: the summary that a session stores in place of its oldest messages."""

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Checkpoint:
    """Summary that replaces the oldest messages of a prompt, except the system message."""

    text: str
    covers_through_message_id: str
    model: str

    @classmethod
    def from_dict(cls, stored: object) -> "Checkpoint | None":
        """Return the checkpoint from the value that a session stores, or None if the value is
        invalid.
        """
        if not isinstance(stored, dict):
            return None
        values: list[Any] = [stored.get(each.name) for each in fields(cls)]
        for value in values:
            if not isinstance(value, str) or not value:
                return None
        return cls(*values)
