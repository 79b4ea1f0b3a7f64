"""Synchronous access to a directory of session files, for programs without an event loop."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from mochi_server.sessions.change import Change
from mochi_server.sessions.session import (
    ChatSession,
    edited,
    has_stale_checkpoint,
    with_system_prompt,
    without_system_prompt,
)
from mochi_server.sessions.settings import check_messages, checked_fields
from mochi_server.sessions.types import (
    Message,
    SessionCreationOptions,
    SessionQuery,
    SessionSettings,
)
from mochi_server.storage.files.backend import DirectoryUse


class SessionManager:
    """Synchronous store for the sessions in a directory.

    The first change locks the directory for this process, until ``close`` or garbage collection.
    Changes raise ``DirectoryInUse`` if another process has locked it. Reads need no lock. Methods
    raise ``SessionNotFound`` for an unknown session id and ``StorageFailed`` for an I/O error.
    """

    def __init__(self, sessions_dir: str | Path) -> None:
        self._use = DirectoryUse(Path(sessions_dir))

    def __enter__(self) -> "SessionManager":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unlock the directory, unless a server or another manager of this process uses it."""
        self._use.close()

    def create_session(self, options: SessionCreationOptions) -> ChatSession:
        """Create a session with these options and store it.

        None is the default of a setting. Raises ValueError for an invalid value, or a
        ``system_prompt_source_file`` without ``system_prompt``: no file is read.
        """
        prompt = options.system_prompt
        source_file = options.system_prompt_source_file
        if source_file and not prompt:
            raise ValueError(
                "system_prompt_source_file is only a label and needs system_prompt. Read the file, "
                "and set both."
            )
        given = {f.name: getattr(options, f.name) for f in fields(SessionSettings)}
        checked = checked_fields({"model": options.model, **given})
        settings = {name: value for name, value in checked.items() if value is not None}
        valid = SessionCreationOptions(
            system_prompt=prompt, system_prompt_source_file=source_file, **settings
        )
        return self._use.directory.create(ChatSession.create(valid))

    def load_session(self, session_id: str) -> ChatSession:
        """Return the current state of a session."""
        return self._use.directory.load(session_id)

    def list_sessions(
        self, *, limit: int | None = None, offset: int = 0, text: str | None = None
    ) -> list[dict[str, Any]]:
        """Return sessions that contain every word of ``text``, without messages, most recently
        changed first.
        """
        return self._use.directory.list(SessionQuery(limit, offset, text)).entries

    def update_session(self, session_id: str, **fields: Any) -> ChatSession:
        """Set metadata fields by name.

        None resets a field to its default. Raises ValueError for an unknown field or an
        invalid value.
        """
        return self._use.directory.patch(session_id, fields)

    def append_messages(self, session_id: str, messages: Sequence[Message]) -> ChatSession:
        """Append messages to the history of a session and return the session.

        Raises ValueError for an invalid role or text.
        """
        check_messages(messages)
        self._use.directory.write(session_id, Change(messages))
        return self._use.directory.load(session_id)

    def edit_message(self, session_id: str, index: int, content: str) -> ChatSession:
        """Replace the text of a user message and remove all later messages.

        Raises ``InvalidMessageIndex``, and ``SessionConflict`` if another change of the history
        came first.
        """
        changed = self._change(session_id, lambda session: edited(session, index, content))
        if has_stale_checkpoint(changed.metadata, changed.history.prefix(index)):
            changed = self._use.directory.patch(session_id, {"compaction": None})
        return changed

    def set_system_prompt(
        self, session_id: str, content: str, source_file: str | None = None
    ) -> ChatSession:
        """Set or replace the system message.

        Raises ``SessionConflict`` if another change of the history came first.
        """
        return self._change(
            session_id, lambda session: with_system_prompt(session, content, source_file)
        )

    def remove_system_prompt(self, session_id: str) -> ChatSession:
        """Remove the system message, if any.

        Raises ``SessionConflict`` if another change of the history came first.
        """
        return self._change(session_id, without_system_prompt)

    def delete_session(self, session_id: str) -> None:
        self._use.directory.delete(session_id)

    def _change(self, session_id: str, change: Callable[[ChatSession], Change]) -> ChatSession:
        directory = self._use.directory
        directory.write(session_id, change(directory.load(session_id)))
        return directory.load(session_id)
