"""/sessions"""

from fastapi import APIRouter, Response

from mochi_server.dependencies import RunsDep, SessionsDep, StoreDep, SummariesDep
from mochi_server.errors import (
    BlobNotFound,
    InvalidMessageIndex,
    ModelNotFound,
    OllamaError,
    OllamaUnreachable,
    PromptNotFound,
    SessionBusy,
    SessionNotFound,
    StorageFailed,
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
from mochi_server.routers.errors import responses
from mochi_server.routers.images import IMAGE, image_response
from mochi_server.sessions.types import SessionQuery

router = APIRouter(prefix="/sessions", tags=["sessions"])

_CHANGES = (SessionNotFound, SessionBusy, ValidationFailed, StorageFailed)
_ASKS_OLLAMA = (ModelNotFound, OllamaUnreachable, OllamaError)


@router.get("")
async def list_sessions(store: StoreDep) -> SessionList:
    """List sessions, the last changed first."""
    return SessionList.of(await store.list(SessionQuery()))


@router.post("", status_code=201, responses=responses(*_ASKS_OLLAMA, PromptNotFound, ValidationFailed, StorageFailed))
async def create_session(body: SessionCreate, sessions: SessionsDep) -> Session:
    """Create a session."""
    return Session.of(await sessions.create(body.options_of_session()))


@router.get("/{session_id}", responses=responses(SessionNotFound))
async def get_session(session_id: str, store: StoreDep) -> SessionDetail:
    """Get a session with its messages."""
    return SessionDetail.of(await store.load(session_id))


@router.patch("/{session_id}", responses=responses(SessionNotFound, *_ASKS_OLLAMA, ValidationFailed, StorageFailed))
async def patch_session(session_id: str, body: SessionPatch, sessions: SessionsDep) -> Session:
    """Change a session's settings; also while it is answering."""
    return Session.of(await sessions.patch(session_id, body.changes()))


@router.delete("/{session_id}", status_code=204, responses=responses(SessionNotFound))
async def delete_session(session_id: str, sessions: SessionsDep, runs: RunsDep) -> None:
    """Delete a session; a running turn is stopped first."""
    await runs.abandon(session_id)
    await sessions.delete(session_id)


@router.get("/{session_id}/messages", responses=responses(SessionNotFound))
async def list_messages(session_id: str, store: StoreDep) -> MessageList:
    """Get the messages of a session."""
    return MessageList.of(await store.load(session_id))


@router.get(
    "/{session_id}/blobs/{sha256}",
    response_class=Response,
    responses=IMAGE | responses(SessionNotFound, BlobNotFound, StorageFailed),
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


@router.post("/{session_id}/summarize", responses=responses(SessionNotFound, *_ASKS_OLLAMA, ValidationFailed))
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
