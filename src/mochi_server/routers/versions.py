"""Routes under `/sessions/{session_id}/versions`."""

from typing import Annotated

from fastapi import Query

from mochi_server import errors
from mochi_server.dependencies import ServicesDep
from mochi_server.errors import InvalidMessageIndex, SessionNotFound, StorageBusy, VersionNotFound
from mochi_server.schemas.versions import HistoryChanged, VersionList
from mochi_server.web.routes import STORAGE_ERRORS, PrefixRouter, responses

router = PrefixRouter(prefix="/sessions", tags=["sessions"])

MessageQuery = Annotated[
    str, Query(min_length=1, max_length=200, description="ID of a message of the history.")
]
_READ_ERRORS = (SessionNotFound, errors.SessionTooNew, StorageBusy)
_CHANGES = (SessionNotFound, errors.SessionBusy, *STORAGE_ERRORS)


@router.get(
    "/{session_id}/versions",
    responses=responses(*_READ_ERRORS, InvalidMessageIndex, errors.ValidationFailed),
)
async def list_versions(
    session_id: str, message_id: MessageQuery, services: ServicesDep
) -> VersionList:
    """List the versions of a message, the oldest first.

    The list includes the messages that are shown.
    """
    versions = await services.versions.list(session_id, message_id)
    return VersionList.of(session_id, message_id, versions)


@router.post(
    "/{session_id}/versions/{version_id}/select",
    responses=responses(*_CHANGES, VersionNotFound, errors.SessionConflict),
)
async def select_version(session_id: str, version_id: str, services: ServicesDep) -> HistoryChanged:
    """Show a version: its messages replace the messages at its place, which become a version."""
    return HistoryChanged.of_change(await services.versions.select(session_id, version_id))


@router.delete(
    "/{session_id}/versions",
    status_code=204,
    responses=responses(*_CHANGES, InvalidMessageIndex, errors.ValidationFailed),
)
async def delete_versions(session_id: str, message_id: MessageQuery, services: ServicesDep) -> None:
    """Delete the versions of a message. The messages that are shown stay."""
    await services.versions.delete(session_id, message_id)
