"""Schemas of the versions of a session."""

from collections.abc import Sequence

from pydantic import Field

from mochi_server.schemas.common import Schema, WarningOut
from mochi_server.schemas.sessions import SessionDetail
from mochi_server.services.history_changes import ChangedHistory
from mochi_server.sessions.session import last_answer
from mochi_server.sessions.versions import Alternative

_PREVIEW_CHARS = 200


class Version(Schema):
    """One of the alternatives at a message."""

    version_id: str | None = Field(description="Null for the messages that are shown.")
    is_shown: bool
    created_at: str = Field(description="Time of the first message.")
    model: str | None = Field(description="Model of the last answer. Null if there is no answer.")
    preview: str = Field(description=f"The first {_PREVIEW_CHARS} characters of the first message.")
    message_count: int

    @classmethod
    def of(cls, alternative: Alternative) -> "Version":
        first = alternative.messages[0]
        answer = last_answer(alternative.messages)
        return cls(
            version_id=alternative.version_id,
            is_shown=alternative.version_id is None,
            created_at=first["timestamp"],
            model=None if answer is None else answer.get("model"),
            preview=first["content"][:_PREVIEW_CHARS],
            message_count=len(alternative.messages),
        )


class VersionList(Schema):
    """Alternatives at a message, the oldest first. One of them is shown."""

    session_id: str
    message_id: str
    versions: list[Version]

    @classmethod
    def of(
        cls, session_id: str, message_id: str, alternatives: Sequence[Alternative]
    ) -> "VersionList":
        return cls(
            session_id=session_id,
            message_id=message_id,
            versions=[Version.of(alternative) for alternative in alternatives],
        )


class HistoryChanged(SessionDetail):
    """A session whose history was changed.

    ``warnings`` says how many of the oldest versions exceeded a limit and were removed.
    """

    warnings: list[WarningOut]

    @classmethod
    def of_change(cls, changed: ChangedHistory) -> "HistoryChanged":
        detail = SessionDetail.of(changed.session).model_dump()
        return cls.model_validate(detail | {"warnings": changed.warnings})
