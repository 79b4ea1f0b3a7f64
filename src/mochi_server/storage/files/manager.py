"""Sessions for programs without an event loop: the synchronous face of the same directory of files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mochi_server.sessions.history_edits import Tail, edited, with_system_prompt, without_system_prompt
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message, SessionCreationOptions, SessionQuery
from mochi_server.storage.files.backend import SessionDirectory


class SessionManager:
    """The sessions of a directory, which a server may use at the same time.

    Every method raises ``SessionNotFound`` for what is not there and ``StorageFailed`` when the medium fails.
    """

    def __init__(self, sessions_dir: str | Path) -> None:
        self._directory = SessionDirectory(Path(sessions_dir))

    def create_session(self, options: SessionCreationOptions) -> ChatSession:
        """A new, stored session."""
        return self._directory.create(ChatSession.create(options))

    def load_session(self, session_id: str) -> ChatSession:
        """The session as it is now."""
        return self._directory.load(session_id)

    def list_sessions(
        self, *, limit: int | None = None, offset: int = 0, text: str | None = None
    ) -> list[dict[str, Any]]:
        """Sessions as flat objects without their messages, the last changed first.

        With ``text``, those in which every word of it occurs: in the title, or in the text of a message.
        """
        return self._directory.list(SessionQuery(limit, offset, text)).entries

    def update_session(self, session_id: str, **fields: Any) -> ChatSession:
        """Set metadata fields, by the names of ``SessionMetadata``; None is a field's default. Raises ValueError."""
        return self._directory.patch(session_id, fields)

    def append_messages(self, session_id: str, messages: Sequence[Message]) -> ChatSession:
        """Add messages at the end."""
        return self._directory.append(session_id, messages)

    def edit_message(self, session_id: str, index: int, content: str) -> ChatSession:
        """New words for a user message; what followed it goes. Raises InvalidMessageIndex, SessionConflict."""
        return self._replace(session_id, lambda session: edited(session, index, content))

    def set_system_prompt(self, session_id: str, content: str, source_file: str | None = None) -> ChatSession:
        """Put a system message first, in place of the one that was there. Raises SessionConflict."""
        return self._replace(session_id, lambda session: with_system_prompt(session, content, source_file))

    def remove_system_prompt(self, session_id: str) -> ChatSession:
        """Take the system message out, if there is one. Raises SessionConflict."""
        return self._replace(session_id, without_system_prompt)

    def delete_session(self, session_id: str) -> None:
        """Remove the session."""
        self._directory.delete(session_id)

    def _replace(self, session_id: str, edit: Callable[[ChatSession], Tail]) -> ChatSession:
        session = self._directory.load(session_id)
        return self._directory.replace_tail(session_id, *edit(session), revision=session.revision)
