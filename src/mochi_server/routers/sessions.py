"""Routes under `/sessions`."""

from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import Query, Request, Response

from mochi_server import errors
from mochi_server.constants import MAX_TAGS, TOTAL_HEADER
from mochi_server.dependencies import ServicesDep
from mochi_server.errors import (
    InvalidMessageIndex,
    PromptNotFound,
    SessionNotFound,
    StorageBusy,
    ValidationFailed,
)
from mochi_server.schemas import sessions as schemas
from mochi_server.schemas.sessions import (
    ExportFormat,
    SessionChanged,
    SessionDetail,
    SessionFork,
    SessionsImported,
)
from mochi_server.schemas.versions import HistoryChanged
from mochi_server.services.attachments import MEDIA_TYPE
from mochi_server.sessions.types import MEDIA_TYPES, SessionQuery, Tag
from mochi_server.util.validation import StorableText
from mochi_server.web.requests import read_body, until_disconnect
from mochi_server.web.routes import MODEL_ERRORS, STORAGE_ERRORS, PrefixRouter, Responses, responses

router = PrefixRouter(prefix="/sessions", tags=["sessions"])

SearchQuery = Annotated[
    str | None,
    Query(
        max_length=1000,
        description="Words to search for. Title and messages must contain all of them.",
    ),
]
LimitQuery = Annotated[
    int | None, Query(ge=1, le=10_000, description="Maximum number of sessions. Default: all.")
]
FormatQuery = Annotated[
    ExportFormat, Query(description="`json` can be imported. `markdown` is for reading.")
]
_OWNER = "Owner of the sessions: the ID of an API key, or `<key ID>/<user ID>`."
OwnerQuery = Annotated[StorableText | None, Query(max_length=200, description=_OWNER)]
TagQuery = Annotated[
    list[Tag] | None,
    Query(
        max_length=MAX_TAGS,
        description="Only sessions with this tag. Repeat it for sessions that have several tags.",
    ),
]
ArchivedQuery = Annotated[
    bool | None, Query(description="Only archived sessions, or only others. Default: both.")
]
TemporaryQuery = Annotated[
    bool, Query(description="Only temporary sessions. By default they are left out.")
]
PinnedQuery = Annotated[
    Literal["first"] | None, Query(description="`first`: the list begins with pinned sessions.")
]
OffsetQuery = Annotated[int, Query(ge=0, le=2**31 - 1, description="Number of sessions to skip.")]

VersionsQuery = Annotated[bool, Query(description="Whether to include the versions of messages.")]

_READ_ERRORS = (SessionNotFound, errors.SessionTooNew, StorageBusy)
_CHANGE_ERRORS = (SessionNotFound, ValidationFailed, *STORAGE_ERRORS)
_HISTORY_CHANGE_ERRORS = (*_CHANGE_ERRORS, errors.SessionBusy)
_CREATION_ERRORS = (
    *MODEL_ERRORS,
    PromptNotFound,
    ValidationFailed,
    *STORAGE_ERRORS,
    errors.ShuttingDown,
)
_IMPORT_CONTENT = {
    "application/json": {"schema": {"$ref": "#/components/schemas/SessionImport"}},
    "application/zip": {"schema": {"type": "string", "format": "binary"}},
}
_TOTAL = {"description": "Number of sessions on all pages.", "schema": {"type": "integer"}}
_PAGE_RESPONSES: Responses = {
    200: {"headers": {TOTAL_HEADER: _TOTAL}},
    **responses(ValidationFailed),
}

_EXPORT_TYPES = {
    "json": ("application/json", "json"),
    "markdown": ("text/markdown; charset=utf-8", "md"),
}
"""Media type and suffix of an exported file, by format."""
_BLOB_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    # The name of a blob is its hash, so it never changes. Shared caches must not send it to other
    # users.
    "Cache-Control": "private, max-age=31536000, immutable",
}
_EXPORT_CONTENT = {
    "application/json": {"schema": {"$ref": "#/components/schemas/SessionFile"}},
    "text/markdown": {"schema": {"type": "string"}},
}
_EXPORT_RESPONSES: Responses = {
    200: {"description": "The file.", "content": _EXPORT_CONTENT},
    **responses(*_READ_ERRORS, ValidationFailed),
}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_IMAGE_RESPONSES = {
    200: {
        "description": "The image as it was sent.",
        "content": dict.fromkeys(MEDIA_TYPES, _BINARY),
    },
    **responses(SessionNotFound, errors.BlobNotFound, *STORAGE_ERRORS),
}
_FILE_RESPONSES = {
    200: {"description": "The file as it was sent.", "content": {"*/*": _BINARY}},
    **responses(SessionNotFound, errors.BlobNotFound, *STORAGE_ERRORS),
}


@router.get("", response_model=schemas.SessionList, responses=_PAGE_RESPONSES)
async def list_sessions(
    services: ServicesDep,
    *,
    q: SearchQuery = None,
    limit: LimitQuery = None,
    offset: OffsetQuery = 0,
    owner: OwnerQuery = None,
    tag: TagQuery = None,
    archived: ArchivedQuery = None,
    temporary: TemporaryQuery = False,
    pinned: PinnedQuery = None,
) -> Response:
    """List or search sessions, the most recently changed first."""
    query = SessionQuery(
        limit=limit,
        offset=offset,
        text=q,
        owner=owner,
        tags=tuple(tag or ()),
        archived=archived,
        temporary=temporary,
        pinned_first=pinned == "first",
    )
    page = await services.store.list(query)
    return Response(
        page.encoded, headers={TOTAL_HEADER: str(page.total)}, media_type="application/json"
    )


@router.post("", status_code=201, responses=responses(*_CREATION_ERRORS))
async def create_session(body: schemas.SessionCreate, services: ServicesDep) -> SessionChanged:
    """Create a session.

    The response has a warning for each tool, tool group and agent that cannot be used.
    """
    services.turns.refuse_at_shutdown()
    session = await services.sessions.create(body.creation_options())
    warnings = await services.sessions.warnings(session, body.sent_values())
    return SessionChanged.with_warnings(session, warnings)


@router.post(
    "/import",
    status_code=201,
    response_model=SessionsImported,
    openapi_extra={"requestBody": {"required": True, "content": _IMPORT_CONTENT}},
    responses=responses(
        ValidationFailed, errors.UnpackedTooLarge, *STORAGE_ERRORS, errors.ShuttingDown
    ),
)
async def import_sessions(request: Request, services: ServicesDep) -> Response:
    """Import a file from this server, ChatGPT, Claude, LibreChat or Open WebUI.

    The file is JSON, or the ZIP file of ChatGPT or Claude. Sessions get new IDs. If the file is
    invalid, nothing is stored.
    """
    imported = await services.transfers.import_sessions(await read_body(request))
    return Response(imported, 201, media_type="application/json")


@router.get("/tags", responses=responses(ValidationFailed))
async def list_tags(
    services: ServicesDep,
    owner: OwnerQuery = None,
    archived: ArchivedQuery = None,
    temporary: TemporaryQuery = False,
) -> schemas.TagList:
    """List the tags of sessions, and how many sessions have each tag."""
    query = SessionQuery(owner=owner, archived=archived, temporary=temporary)
    return schemas.TagList.of(await services.store.count_tags(query))


@router.get("/{session_id}", responses=responses(*_READ_ERRORS))
async def get_session(session_id: str, services: ServicesDep) -> SessionDetail:
    """Get a session with its messages."""
    return SessionDetail.of(await services.store.load(session_id))


@router.patch("/{session_id}", responses=responses(*_CHANGE_ERRORS, *MODEL_ERRORS))
async def patch_session(
    session_id: str, body: schemas.SessionPatch, services: ServicesDep
) -> SessionChanged:
    """Change the settings of a session, even while a turn is running.

    The response can contain warnings.
    """
    changes = body.changes()
    session = await services.sessions.patch(session_id, changes)
    warnings = await services.sessions.warnings(session, changes)
    return SessionChanged.with_warnings(session, warnings)


@router.delete(
    "/{session_id}", status_code=204, responses=responses(SessionNotFound, *STORAGE_ERRORS)
)
async def delete_session(session_id: str, services: ServicesDep) -> None:
    """Delete a session. If a turn is running, the server stops it first."""
    await services.turns.delete(session_id)


@router.post(
    "/{session_id}/fork",
    status_code=201,
    responses=responses(*_CHANGE_ERRORS, InvalidMessageIndex, errors.ShuttingDown),
)
async def fork_session(
    session_id: str,
    services: ServicesDep,
    body: SessionFork | None = None,
    versions: VersionsQuery = False,
) -> SessionDetail:
    """Fork a session: create a new session with the messages up to a given message.

    The original does not change.
    """
    position = body or SessionFork.model_validate({})
    forked = await services.transfers.fork(
        session_id, position.message_index, position.message_id, includes_versions=versions
    )
    return SessionDetail.of(forked)


@router.get("/{session_id}/export", response_class=Response, responses=_EXPORT_RESPONSES)
async def export_session(
    session_id: str,
    services: ServicesDep,
    format: FormatQuery = "json",
    versions: VersionsQuery = False,
) -> Response:
    """Export a session: as JSON with images and files for an import, or as Markdown."""
    media_type, suffix = _EXPORT_TYPES[format]
    disposition = f'attachment; filename="{session_id}.{suffix}"'
    headers = {"Content-Type": media_type, "Content-Disposition": disposition}
    file = await services.transfers.export(session_id, format, includes_versions=versions)
    return Response(file, headers=headers)


@router.get("/{session_id}/messages", responses=responses(*_READ_ERRORS))
async def list_messages(session_id: str, services: ServicesDep) -> schemas.MessageList:
    """Get the messages of a session."""
    session = await services.store.load(session_id)
    return schemas.MessageList(
        session_id=session.session_id, messages=[dict(message) for message in session.history]
    )


@router.get("/{session_id}/blobs/{sha256}", response_class=Response, responses=_IMAGE_RESPONSES)
async def get_blob(session_id: str, sha256: str, services: ServicesDep) -> Response:
    """Get an image of a message by its SHA-256."""
    image = await services.sessions.image(session_id, sha256)
    suffix = image.media_type.removeprefix("image/")
    disposition = f'inline; filename="{image.sha256}.{suffix}"'
    headers = _BLOB_HEADERS | {"Content-Disposition": disposition}
    return Response(image.data, media_type=image.media_type, headers=headers)


@router.get("/{session_id}/files/{sha256}", response_class=Response, responses=_FILE_RESPONSES)
async def get_file(session_id: str, sha256: str, services: ServicesDep) -> Response:
    """Get a file of a message by its SHA-256, as it was sent."""
    attachment, data = await services.sessions.file(session_id, sha256)
    name = quote(attachment["name"], safe="", errors="replace")
    headers = _BLOB_HEADERS | {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
    is_valid = MEDIA_TYPE.fullmatch(attachment["media_type"])
    media_type = attachment["media_type"] if is_valid else "application/octet-stream"
    return Response(data, headers=headers | {"Content-Type": media_type})


@router.put(
    "/{session_id}/messages/{message_index}",
    responses=responses(*_HISTORY_CHANGE_ERRORS, InvalidMessageIndex),
)
async def edit_message(
    session_id: str, message_index: int, body: schemas.MessageEdit, services: ServicesDep
) -> HistoryChanged:
    """Edit a user message. All later messages are removed. What is replaced becomes a version."""
    images = await body.new_images()
    changed = await services.sessions.edit_message(session_id, message_index, body.content, images)
    return HistoryChanged.of_change(changed)


@router.put(
    "/{session_id}/system-prompt", responses=responses(*_HISTORY_CHANGE_ERRORS, PromptNotFound)
)
async def set_system_prompt(
    session_id: str, body: schemas.SystemPromptUpdate, services: ServicesDep
) -> SessionDetail:
    """Set or replace the system prompt."""
    session = await services.sessions.set_system_prompt(session_id, body.content, body.source_file)
    return SessionDetail.of(session)


@router.delete(
    "/{session_id}/system-prompt",
    status_code=204,
    responses=responses(*_HISTORY_CHANGE_ERRORS, PromptNotFound),
)
async def remove_system_prompt(session_id: str, services: ServicesDep) -> None:
    """Remove the system prompt. If there is none, return 404."""
    await services.sessions.remove_system_prompt(session_id)


@router.post(
    "/{session_id}/summarize",
    responses=responses(
        *_CHANGE_ERRORS, errors.NothingToSummarize, *MODEL_ERRORS, errors.RateLimited
    ),
)
async def summarize_session(
    session_id: str,
    request: Request,
    services: ServicesDep,
    body: schemas.SummarizeRequest | None = None,
) -> schemas.SummaryOut:
    """Summarize a session now. A given model becomes the session's `summary_model`."""
    summarizing = services.summaries.summarize(session_id, body.model if body else None)
    return schemas.SummaryOut.of(await until_disconnect(request, summarizing))


@router.get("/{session_id}/summary", responses=responses(*_READ_ERRORS))
async def get_summary(session_id: str, services: ServicesDep) -> schemas.SummaryOut:
    """Get the summary of a session. If the session has no summary, the fields are null."""
    return schemas.SummaryOut.of(await services.store.load(session_id))


@router.get("/{session_id}/status", responses=responses(*_READ_ERRORS))
async def get_status(session_id: str, services: ServicesDep) -> schemas.SessionStatus:
    """Get the state of a session, including its context window."""
    return schemas.SessionStatus.of(await services.sessions.state(session_id))
