"""Changes that replace a part of a session's history."""

from collections.abc import Sequence
from dataclasses import dataclass

from mochi_server.events import TurnWarning
from mochi_server.sessions.change import Change
from mochi_server.sessions.session import ChatSession, has_stale_checkpoint
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.versions import versions_removed


@dataclass(frozen=True)
class ChangedHistory:
    """Session after a change of its history, and warnings about its versions."""

    session: ChatSession
    warnings: Sequence[TurnWarning]


async def change_history(
    store: SessionStore, session: ChatSession, change: Change
) -> ChangedHistory:
    """Store a change of a locked session.

    Drop its checkpoint if it covers a replaced message.

    Raises ``SessionConflict``.
    """
    removed = await store.write(session.session_id, change)
    changed = await store.load(session.session_id)
    unchanged = session.history.prefix(change.start or 0)
    if has_stale_checkpoint(changed.metadata, unchanged):
        changed = await store.patch(session.session_id, {"compaction": None})
    return ChangedHistory(changed, [versions_removed(removed)] if removed else [])
