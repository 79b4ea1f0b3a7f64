"""Versions of a session's history, for clients."""

from collections.abc import Sequence
from dataclasses import dataclass

from mochi_server.errors import VersionNotFound
from mochi_server.services.history_changes import ChangedHistory, change_history
from mochi_server.services.sessions import SessionService
from mochi_server.sessions.change import Change, VersionChange
from mochi_server.sessions.session import index_of
from mochi_server.sessions.versions import Alternative, alternatives


@dataclass(frozen=True)
class VersionService:
    """Service that lists, shows and deletes versions.

    All methods raise ``SessionNotFound``. Changes raise ``SessionBusy`` while a turn goes on.
    """

    sessions: SessionService

    async def list(self, session_id: str, message_id: str) -> Sequence[Alternative]:
        """Return the alternatives at a message, the oldest first, with the shown one.

        Raises ``InvalidMessageIndex``.
        """
        session = await self.sessions.store.load(session_id)
        index = index_of(session, message_id)
        versions = await self.sessions.store.load_versions(session_id)
        return alternatives(versions, session.history, index)

    async def select(self, session_id: str, version_id: str) -> ChangedHistory:
        """Show a version. All messages from its place on become a version.

        Raises ``VersionNotFound``, also for a version inside another one.
        """
        async with self.sessions.changing(session_id) as session:
            places = {message["message_id"]: index for index, message in enumerate(session.history)}
            for version in await self.sessions.store.load_versions(session_id):
                if version.version_id != version_id or version.inside is not None:
                    continue
                if version.message_id not in places:
                    continue
                change = Change(
                    version.messages,
                    start=places[version.message_id],
                    versions=VersionChange(selected=version_id),
                    revision=session.revision,
                )
                return await change_history(self.sessions.store, session, change)
            raise VersionNotFound(version_id)

    async def delete(self, session_id: str, message_id: str) -> None:
        """Delete the versions of a message, with those inside them. The history stays as it is.

        Raises ``InvalidMessageIndex``.
        """
        async with self.sessions.changing(session_id) as session:
            index_of(session, message_id)
            change = Change(versions=VersionChange(deleted=message_id), revision=session.revision)
            await self.sessions.store.write(session_id, change)
