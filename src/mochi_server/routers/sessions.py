"""/sessions"""

from typing import Annotated

from fastapi import Query, Request, Response

from mochi_server.constants import TOTAL_HEADER
from mochi_server.dependencies import Router, RunsDep, SessionsDep, StoreDep, SummariesDep, TransfersDep
from mochi_server.errors import (
    BlobNotFound,
    InvalidMessageIndex,
    NothingToSummarize,
    PromptNotFound,
    SessionBusy,
    SessionNotFound,
    ShuttingDown,
    StorageBusy,
    ValidationFailed,
)
from mochi_server.models.sessions import (
    MessageEdit,
    MessageList,
    Session,
    SessionCreate,
    SessionDetail,
    SessionList,
    SessionPatch,
    SessionStatus,
    SummarizeRequest,
    SummaryOut,
    SystemPromptUpdate,
)
from mochi_server.models.transfer import ExportFormat, SessionFork, SessionImport, SessionsImported
from mochi_server.routers.connection import whole_body
from mochi_server.routers.errors import MODEL_ERRORS, STORAGE_ERRORS, Responses, responses
from mochi_server.routers.files import EXPORTED, IMAGE, exported, image_response
from mochi_server.sessions.types import SessionQuery

router = Router(prefix="/sessions", tags=["sessions"])

SearchQuery = Annotated[str | None, Query(max_length=1000, description="Words that all occur in what is found.")]
LimitQuery = Annotated[int | None, Query(ge=1, le=10_000, description="How many at most; without it, all.")]
FormatQuery = Annotated[ExportFormat, Query(description="JSON can be imported; Markdown is to be read.")]
OffsetQuery = Annotated[int, Query(ge=0, le=2**31 - 1, description="How many to leave out at the beginning.")]

_CHANGES = (SessionNotFound, SessionBusy, ValidationFailed, *STORAGE_ERRORS)
_PAGE: Responses = {
    200: {"headers": {TOTAL_HEADER: {"description": "Sessions on all pages.", "schema": {"type": "integer"}}}}
}


@router.get("", response_model=SessionList, responses=_PAGE | responses(ValidationFailed))
async def list_sessions(
    store: StoreDep, q: SearchQuery = None, limit: LimitQuery = None, offset: OffsetQuery = 0
) -> Response:
    """List sessions, the last changed first: all, or those whose title and messages hold every word of `q`."""
    page = await store.list(SessionQuery(limit, offset, q))
    return Response(page.encoded, headers={TOTAL_HEADER: str(page.total)}, media_type="application/json")


@router.post("", status_code=201, responses=responses(*MODEL_ERRORS, PromptNotFound, ValidationFailed, *STORAGE_ERRORS))
async def create_session(body: SessionCreate, sessions: SessionsDep) -> Session:
    """Create a session."""
    return Session.of(await sessions.create(body.options_of_session()))


@router.post(
    "/import",
    status_code=201,
    response_model=SessionsImported,
    openapi_extra=SessionImport.body(),
    responses=responses(ValidationFailed, *STORAGE_ERRORS, ShuttingDown),
)
async def import_sessions(request: Request, transfers: TransfersDep) -> Response:
    """Store the sessions of an exported file, of this server or of Open WebUI, under new ids: all of them or none."""
    imported = await transfers.import_sessions(await whole_body(request))
    return Response(imported.encoded, 201, media_type="application/json")


@router.get("/{session_id}", responses=responses(SessionNotFound, StorageBusy))
async def get_session(session_id: str, store: StoreDep) -> SessionDetail:
    """Get a session with its messages."""
    return SessionDetail.of(await store.load(session_id))


@router.patch("/{session_id}", responses=responses(SessionNotFound, *MODEL_ERRORS, ValidationFailed, *STORAGE_ERRORS))
async def patch_session(session_id: str, body: SessionPatch, sessions: SessionsDep) -> Session:
    """Change a session's settings; also while it is answering."""
    return Session.of(await sessions.patch(session_id, body.changes()))


@router.delete("/{session_id}", status_code=204, responses=responses(SessionNotFound, *STORAGE_ERRORS))
async def delete_session(session_id: str, sessions: SessionsDep, runs: RunsDep) -> None:
    """Delete a session; a running turn is stopped first."""
    await runs.abandon(session_id)
    await sessions.delete(session_id)
    await runs.abandon(session_id)  # one that had waited for the first


@router.post(
    "/{session_id}/fork",
    status_code=201,
    responses=responses(SessionNotFound, InvalidMessageIndex, ValidationFailed, *STORAGE_ERRORS),
)
async def fork_session(session_id: str, transfers: TransfersDep, body: SessionFork | None = None) -> SessionDetail:
    """Begin a new session with the messages up to one of this session, which stays as it is."""
    where = body or SessionFork()
    return SessionDetail.of(await transfers.fork(session_id, where.message_index, where.message_id))


@router.get(
    "/{session_id}/export", response_class=Response, responses=EXPORTED | responses(SessionNotFound, ValidationFailed)
)
async def export_session(session_id: str, transfers: TransfersDep, format: FormatQuery = "json") -> Response:
    """Get a session as a file: JSON, which can be imported, its images with it, or Markdown, to be read."""
    return exported(session_id, format, await transfers.export(session_id, format))


@router.get("/{session_id}/messages", responses=responses(SessionNotFound, StorageBusy))
async def list_messages(session_id: str, store: StoreDep) -> MessageList:
    """Get the messages of a session."""
    return MessageList.of(await store.load(session_id))


@router.get(
    "/{session_id}/blobs/{sha256}",
    response_class=Response,
    responses=IMAGE | responses(SessionNotFound, BlobNotFound, *STORAGE_ERRORS),
)
async def get_blob(session_id: str, sha256: str, sessions: SessionsDep) -> Response:
    """Get an image that a message of the session names."""
    return image_response(await sessions.image(session_id, sha256))


@router.put("/{session_id}/messages/{message_index}", responses=responses(*_CHANGES, InvalidMessageIndex))
async def edit_message(session_id: str, message_index: int, body: MessageEdit, sessions: SessionsDep) -> SessionDetail:
    """Edit a user message; the messages after it are removed."""
    return SessionDetail.of(await sessions.edit_message(session_id, message_index, body.content))


@router.put("/{session_id}/system-prompt", responses=responses(*_CHANGES, PromptNotFound))
async def set_system_prompt(session_id: str, body: SystemPromptUpdate, sessions: SessionsDep) -> SessionDetail:
    """Set or replace the system prompt."""
    return SessionDetail.of(await sessions.set_system_prompt(session_id, body.content, body.source_file))


@router.delete("/{session_id}/system-prompt", status_code=204, responses=responses(*_CHANGES, PromptNotFound))
async def remove_system_prompt(session_id: str, sessions: SessionsDep) -> None:
    """Remove the system prompt."""
    await sessions.remove_system_prompt(session_id)


@router.post(
    "/{session_id}/summarize",
    responses=responses(SessionNotFound, NothingToSummarize, *MODEL_ERRORS, ValidationFailed, *STORAGE_ERRORS),
)
async def summarize_session(
    session_id: str, summaries: SummariesDep, body: SummarizeRequest | None = None
) -> SummaryOut:
    """Summarize a session now."""
    return SummaryOut.of(await summaries.summarize(session_id, body.model if body else None))


@router.get("/{session_id}/summary", responses=responses(SessionNotFound))
async def get_summary(session_id: str, store: StoreDep) -> SummaryOut:
    """Get the summary of a session; nulls while there is none."""
    return SummaryOut.stored(await store.load(session_id))


@router.get("/{session_id}/status", responses=responses(SessionNotFound))
async def get_status(session_id: str, sessions: SessionsDep) -> SessionStatus:
    """Get where a session stands, its context window included."""
    return SessionStatus.of(await sessions.state(session_id))
