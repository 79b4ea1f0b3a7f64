"""Changes of a stored session."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mochi_server.sessions.types import Image, Message


@dataclass(frozen=True)
class Change:
    """One change of a session, which is stored as a whole or, after an error, not at all.

    It appends ``messages`` to the history. With ``start``, they replace all messages from that position.
    """

    messages: Sequence[Message] = ()
    start: int | None = None
    images: Sequence[Image] = ()
    """Images that the messages reference. A store removes an image when no message references it any more."""
    partial: Message | None = None
    """Partial answer of the turn, or a placeholder of results, from which crash recovery makes messages.

    The next change of the history removes it. Alone, it need not survive a crash of the machine.
    """
    ends_turn: bool = False
    """Whether the messages are the last ones of their turn."""
    last_run: dict[str, Any] | None = None
    """State of the latest run, or None if it stays the same."""
    revision: str | None = None
    """Revision of the stored history, or None for any. Another one raises ``SessionConflict``."""

    @property
    def only_partial(self) -> Message | None:
        """Partial answer of a change that contains nothing else, or None."""
        return None if self.messages or self.start is not None else self.partial
