"""Changes of a stored session."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mochi_server.sessions.turn import StoredTurn
from mochi_server.sessions.types import Blob, Message, PartialMessage
from mochi_server.util.clock import new_id, now


@dataclass(frozen=True)
class Notice:
    """Webhook about a turn, which is stored in the same write as the transition that it reports."""

    webhook_id: str
    session_id: str
    body: str
    """JSON object with the type, the time and the IDs of the session and the run."""
    is_request: bool = False
    """Whether it reports that a call waits. A later webhook of the session replaces it."""

    @classmethod
    def from_dict(cls, stored: object) -> "Notice | None":
        """Return the notice in a session file, or None if it is damaged."""
        if not isinstance(stored, dict):
            return None
        webhook_id, session_id, body = (
            stored.get(name) for name in ("webhook_id", "session_id", "body")
        )
        if (
            not isinstance(webhook_id, str)
            or not isinstance(session_id, str)
            or not isinstance(body, str)
        ):
            return None
        if "\0" in webhook_id + session_id + body:  # a database cannot store it
            return None
        return cls(webhook_id, session_id, body, stored.get("is_request") is True)


@dataclass(frozen=True)
class VersionChange:
    """Change of the versions of a session. The replaced messages become a version.

    If the same change is stored twice, the second time changes nothing.
    """

    version_id: str = field(default_factory=new_id)
    replaced_at: str = field(default_factory=now)
    selected: str | None = None
    """ID of the version whose messages are the new ones. It is no version from now on."""
    deleted: str | None = None
    """ID of the message whose versions are deleted."""


@dataclass(frozen=True)
class Change:
    """One change of a session, which is stored as a whole or, after an error, not at all.

    It appends ``messages`` to the history. With ``start``, they replace all messages from that
    position.
    """

    messages: Sequence[Message] = ()
    start: int | None = None
    images: Sequence[Blob] = ()
    """Images and files that the messages reference.

    A store removes a blob when no message references it any more.
    """
    partial: PartialMessage | None = None
    """Partial answer of the turn, or a placeholder of results, from which crash recovery makes
    messages.

    The next change of the history removes it. Alone, it need not survive a crash of the machine.
    """
    ends_turn: bool = False
    """Whether the messages are the last ones of their turn."""
    turn: StoredTurn | None = None
    """Turn of the session from now on, or None if it stays the same."""
    notices: Sequence[Notice] = ()
    versions: VersionChange | None = None
    """Change of the versions, or None if the replaced messages are removed."""
    revision: str | None = None
    """Revision of the stored history, or None for any. Another one raises ``SessionConflict``."""

    @property
    def only_partial(self) -> PartialMessage | None:
        """Partial answer of a change that contains nothing else, or None."""
        return None if self.changes_history or self.turn is not None else self.partial

    @property
    def changes_history(self) -> bool:
        return bool(self.messages) or self.start is not None
