"""New sessions with imported conversations, and warnings about what is not imported."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from mochi_server.events import TurnWarning
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.importers.conversation import Conversation
from mochi_server.sessions.caller import current_owner
from mochi_server.sessions.session import ChatSession, SessionMetadata
from mochi_server.sessions.store import NewSession
from mochi_server.sessions.types import Message
from mochi_server.sessions.versions import Version, Versions, with_versions
from mochi_server.util.clock import new_id, timestamp

_UNKNOWN = "unknown"


@dataclass(frozen=True)
class _Place:
    """Place of a version: the message at it, and the version that has this message, if any."""

    message_id: str
    inside: str | None
    follows_answer: bool


def new_session(conversation: Conversation, models: Sequence[ModelInfo]) -> NewSession:
    """Build the session of a conversation, and return it with its images.

    If ``models`` does not have the conversation's model, the default model answers. If ``models``
    is empty, the session has the conversation's model.
    """
    model = conversation.model or _UNKNOWN
    if not _has_model(models, model):
        model = _default_model(models) or model
    metadata = SessionMetadata(
        session_id=new_id(),
        model=model,
        created_at=conversation.created_at,
        updated_at=conversation.updated_at,
        message_count=len(conversation.messages),
        title=conversation.title,
        owner=current_owner(),
        tags=[*conversation.order.tags],
        pinned=conversation.order.pinned,
        archived=conversation.order.archived,
    )
    session = ChatSession(metadata, conversation.messages)
    return with_versions(session, placed_versions(conversation)), conversation.images


def placed_versions(conversation: Conversation) -> Versions:
    """Return the versions of a conversation, except those without a message at their place, those
    that continue an answer, and those inside them.

    The ones that began first are the first.
    """
    places = _places_in(conversation.messages, None)
    versions: list[Version] = []
    for branch in conversation.versions:  # each comes after the branch that it leaves
        place = places.get(branch.after)
        if place is None:
            continue
        begins_with_answer = branch.messages[0]["role"] == "assistant"
        continues_answer = place.follows_answer and begins_with_answer
        if continues_answer:  # as a version, it would be a second answer in a row
            continue
        version = Version(
            version_id=new_id(),
            message_id=place.message_id,
            replaced_at=conversation.updated_at,
            messages=tuple(branch.messages),
            inside=place.inside,
        )
        versions.append(version)
        in_version = _places_in(branch.messages, version.version_id)
        in_version.pop(None, None)
        places.update(in_version)
    return tuple(sorted(versions, key=lambda version: timestamp(version.started_at)))


def _places_in(messages: Sequence[Message], version_id: str | None) -> dict[str | None, _Place]:
    """Return the place after each message of a version, or of the history, by the message ID.

    None is the key of the first place, which is after the system message.
    """
    places: dict[str | None, _Place] = {}
    for before, message in pairwise(messages):
        follows_answer = before["role"] == "assistant"
        place = _Place(message["message_id"], version_id, follows_answer)
        places[before["message_id"]] = place
    first = next((message for message in messages if message["role"] != "system"), None)
    if first is not None:
        places[None] = _Place(first["message_id"], version_id, follows_answer=False)
    return places


def left_out_warnings(
    conversations: Sequence[Conversation], models: Sequence[ModelInfo], left_out: Counter[str]
) -> list[TurnWarning]:
    """Return a warning for each kind of content that is left out, and for each missing model.

    ``left_out`` counts contents that are left out besides those of ``conversations``.
    """
    left_out = left_out.copy()
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
    default = _default_model(models)
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


def _default_model(models: Sequence[ModelInfo]) -> str | None:
    """Return the first model, by preference one that is not in the cloud.

    Return None if there are no models.
    """
    if not models:
        return None
    first = min(models, key=lambda model: model.is_cloud)
    return first.name
