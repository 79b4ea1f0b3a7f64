"""New sessions with imported conversations, and warnings about what is not imported."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from mochi_server.events import TurnWarning
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.importers.conversation import Branch, Conversation
from mochi_server.sessions.caller import current_owner
from mochi_server.sessions.session import ChatSession, SessionMetadata
from mochi_server.sessions.store import NewSession
from mochi_server.sessions.types import Message
from mochi_server.sessions.versions import Version, Versions, with_versions
from mochi_server.util.clock import new_id, timestamp

_UNKNOWN = "unknown"


def new_session(conversation: Conversation, models: Sequence[ModelInfo]) -> NewSession:
    """Build the session of a conversation, and return it with its images.

    If ``models`` does not have the conversation's model, the default model answers.
    """
    model = conversation.model or _UNKNOWN
    if not _has_model(models, model):
        model = _default(models) or model
    metadata = SessionMetadata(
        session_id=new_id(),
        model=model,
        created_at=conversation.created_at,
        updated_at=conversation.updated_at,
        message_count=len(conversation.messages),
        title=conversation.title,
        owner=current_owner(),
    )
    session = ChatSession(metadata, conversation.messages)
    return with_versions(session, placed_versions(conversation)), conversation.images


def placed_versions(conversation: Conversation) -> Versions:
    """Return the versions of a conversation, except those without a message at their place.

    The ones that began first are the first.
    """
    containers: list[tuple[str | None, Sequence[Message]]] = [(None, conversation.messages)]
    versions: list[Version] = []
    for branch in conversation.versions:
        place = _place_of(branch, containers)
        if place is None:
            continue
        inside, message_id = place
        version = Version(
            version_id=new_id(),
            message_id=message_id,
            replaced_at=conversation.updated_at,
            messages=tuple(branch.messages),
            inside=inside,
        )
        versions.append(version)
        containers.append((version.version_id, version.messages))
    return tuple(sorted(versions, key=lambda version: timestamp(version.started_at)))


def _place_of(
    branch: Branch, containers: Sequence[tuple[str | None, Sequence[Message]]]
) -> tuple[str | None, str] | None:
    """Return the version that a branch leaves, and the ID of the message at its place.

    The version is None for the shown branch.
    """
    for inside, messages in containers:
        first = 1 if messages and messages[0]["role"] == "system" else 0
        if branch.after is None:
            return (inside, messages[first]["message_id"]) if len(messages) > first else None
        for before, message in pairwise(messages):
            if before["message_id"] == branch.after:
                return inside, message["message_id"]
    return None


def left_out_warnings(
    conversations: Sequence[Conversation], models: Sequence[ModelInfo]
) -> list[TurnWarning]:
    """Return a warning for each kind of content that is left out, and for each missing model."""
    left_out: Counter[str] = Counter()
    for conversation in conversations:
        left_out.update(conversation.left_out)
        left_out["versions"] += len(conversation.versions) - len(placed_versions(conversation))
    warnings = [
        TurnWarning("CONTENT_LEFT_OUT", f"The import left out {kind}: {count}.")
        for kind, count in left_out.items()
        if count
    ]
    missing = Counter(
        conversation.model
        for conversation in conversations
        if conversation.model and not _has_model(models, conversation.model)
    )
    default = _default(models)
    for model, count in missing.items():
        if default is None:
            text = (
                "Ollama lists no models. Set another model in the sessions if it is not installed."
            )
        else:
            text = f"Ollama does not have it, so {default!r} answers instead."
        warnings.append(
            TurnWarning("MODEL_NOT_FOUND", f"Sessions with the model {model!r}: {count}. {text}")
        )
    return warnings


def _has_model(models: Sequence[ModelInfo], name: str) -> bool:
    return qualified_name(name) in {qualified_name(model.name) for model in models}


def _default(models: Sequence[ModelInfo]) -> str | None:
    """Return the first model, by preference one that is not in the cloud."""
    first = min(models, key=lambda model: model.is_cloud, default=None)
    return first.name if first is not None else None
