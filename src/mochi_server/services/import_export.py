"""Fork, export and import of sessions, including their images and files.

Exports of other programs can be imported, too.
"""

import asyncio
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, TypeVar

import anyio
from pydantic import BaseModel, Field, Strict, ValidationError

from mochi_server.constants import FORMAT_VERSION
from mochi_server.errors import (
    BlobNotFound,
    MochiError,
    SessionNotFound,
    SessionTooNew,
    ShuttingDown,
    ValidationFailed,
)
from mochi_server.events import TurnWarning
from mochi_server.inference.hosts import Fleet
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.importers import Conversation, Files, archive, importer_of
from mochi_server.services.importers.conversation import FILES, IMAGES, OpenModel
from mochi_server.services.importers.imported import left_out_warnings, new_session
from mochi_server.sessions.caller import CALLER, current_owner
from mochi_server.sessions.serialization import (
    MAX_LEVELS,
    as_markdown,
    encode,
    encode_file,
    is_nested_deeper,
)
from mochi_server.sessions.session import (
    ChatSession,
    forked,
    index_of,
)
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.turn import StoredTurn
from mochi_server.sessions.types import (
    AttachmentReference,
    Blob,
    Format,
    Image,
    KeepAlive,
    Message,
    ModelName,
    Names,
    Role,
    StoredOptions,
    Tags,
    Think,
    Title,
    ToolExecutionPolicy,
    attachments_of,
    blobs_in,
    blobs_of_file,
    image_references_of,
    images_of,
)
from mochi_server.sessions.versions import (
    KEY,
    Versions,
    blobs_in_versions,
    excess_versions,
    read_versions,
    versions_removed,
    with_versions,
    within,
)
from mochi_server.util.clock import new_id
from mochi_server.util.validation import (
    Entries,
    Items,
    StorableText,
    describe,
    to_entries,
)


class FileCallFunction(OpenModel):
    name: str
    arguments: dict[str, Any]


class FileCall(OpenModel):
    id: str | None = None
    function: FileCallFunction


class FileMessage(OpenModel):
    role: Role
    content: str | None
    message_id: StorableText | None = None
    timestamp: str | None = None
    tool_calls: Items[FileCall] | None = None
    attachments: Items[AttachmentReference] | None = None


class FileVersion(OpenModel):
    version_id: Annotated[StorableText, Field(min_length=1, max_length=200)]
    message_id: StorableText
    messages: Annotated[list[FileMessage], Field(min_length=1)]
    replaced_at: StorableText | None = None
    inside: StorableText | None = None


class FileToolSettings(OpenModel):
    """Tool settings of a file. Nulls become defaults. The approvals are not checked: invalid ones
    reset the settings.
    """

    tools: Names | None = None
    tool_group: str | None = None
    execution_policy: Annotated[ToolExecutionPolicy | None, Strict(False)] = None


class FileAgentSettings(OpenModel):
    """Agent settings of a file. Nulls become defaults."""

    enabled_agents: Names | None = None
    selection_metadata: dict[str, Any] | None = None


class FileMetadata(OpenModel):
    model: ModelName
    summary_model: ModelName | None = None
    options: StoredOptions | None = None
    keep_alive: KeepAlive = None
    think: Think = None
    format: Format | None = None
    title: Title | None = None
    tags: Tags | None = None
    pinned: bool | None = None
    archived: bool | None = None
    tool_settings: FileToolSettings | None = None
    agent_settings: FileAgentSettings | None = None

    def texts(self) -> dict[str, Any]:
        """Return the texts that are set, without blanks at their ends."""
        names = {"model", "summary_model", "title", "tags"}
        return self.model_dump(include=names, exclude_none=True)


class SessionFile(OpenModel):
    """Exported session.

    `blobs` maps the SHA-256 of each image or file, in hex, to its bytes in base64. `message_id` of
    a version is the message that is shown at its place.
    """

    metadata: FileMetadata
    messages: Items[FileMessage]
    blobs: Entries[str] | None = None
    versions: Items[FileVersion] | None = None


@dataclass
class ImportExportService:
    """Service for forks, exports and imports.

    After ``shutdown`` is set, it refuses imports that are not stored yet. ``max_bytes`` is the
    limit of the unpacked contents of a ZIP file.
    """

    store: SessionStore
    fleet: Fleet
    max_sessions: int
    max_bytes: int
    shutdown: anyio.Event

    async def fork(
        self,
        session_id: str,
        index: int | None = None,
        message_id: str | None = None,
        *,
        includes_versions: bool = False,
    ) -> ChatSession:
        """Copy a session up to and including a message, as ``forked`` does.

        ``message_id`` overrides ``index``. ``includes_versions`` also copies the versions of the
        copied messages.

        A turn may be running in the original session.
        """
        self._refuse_at_shutdown()
        original = await self.store.load(session_id)
        if message_id is not None:
            index = index_of(original, message_id)
        fork = forked(original, index)
        versions: Versions = ()
        if includes_versions:
            versions = within(await self.store.load_versions(session_id), fork.history)
            fork = with_versions(fork, versions)
        stored = await self.store.create(fork)
        names = blobs_in(fork.history) | blobs_in_versions(versions)
        if names and not names <= await self._blobs_of(session_id):
            # The original changed before its fork was stored, and the blobs may be deleted.
            await self.store.delete(stored.session_id)
            return await self.fork(
                session_id, index, message_id, includes_versions=includes_versions
            )
        return stored

    async def _blobs_of(self, session_id: str) -> set[str]:
        """Return the hashes of the blobs that a session references: none if it was deleted."""
        try:
            session = await self.store.load(session_id)
            versions = await self.store.load_versions(session_id)
        except SessionNotFound:
            return set()
        return blobs_in(session.history) | blobs_in_versions(versions)

    async def export(
        self,
        session_id: str,
        form: Literal["json", "markdown"],
        *,
        includes_versions: bool = False,
    ) -> bytes:
        """Return a JSON or Markdown file with the session.

        ``includes_versions`` adds its versions.

        JSON files include the images and files that are stored. Markdown files have no versions.

        Raises ``ValidationFailed``.
        """
        if includes_versions and form == "markdown":
            problem = "Markdown files have no versions. Export JSON, or omit `versions`"
            raise ValidationFailed.at("versions", problem)
        session = await self.store.load(session_id)
        if form == "markdown":
            text = await asyncio.to_thread(as_markdown, session)
            return text.encode()
        versions: Versions = ()
        if includes_versions:
            versions = await self.store.load_versions(session_id)
        session = with_versions(session, versions)
        names = sorted(blobs_in(session.history) | blobs_in_versions(versions))
        blobs = {}
        for name in names:
            with suppress(BlobNotFound):
                blobs[name] = await self.store.load_image(name)
        return await asyncio.to_thread(_encode_session, session, blobs if names else None)

    async def import_sessions(self, data: bytes) -> bytes:
        """Store all sessions of a file under new IDs, or none.

        The caller owns them. Their turns do not continue, and they do not expire.

        Return the sessions and the warnings as JSON.

        Raises ``ValidationFailed``, ``UnpackedTooLarge`` or ``ShuttingDown``.
        """
        self._refuse_at_shutdown()
        items = await asyncio.to_thread(_parse_items, data, self.max_sessions, self.max_bytes)
        conversations = [item for item in items if isinstance(item, Conversation)]
        models = await self._installed_models() if conversations else []
        sessions = [
            new_session(item, models) if isinstance(item, Conversation) else item for item in items
        ]
        turns = [session.metadata.turn for session, _ in sessions]  # before some are removed
        for session, _ in sessions:
            session.metadata.owner = current_owner()
            session.metadata.notices = None
            session.metadata.temporary = False  # else the server might delete it at once
            session.metadata.expires_at = None
            turn = session.metadata.turn
            if turn is not None and not turn.has_ended:  # a forged turn could run calls
                session.metadata.turn = None
        missing: Counter[str] = Counter()
        if not CALLER.get().sees_all:
            missing = _remove_missing_blobs(sessions)
        stored = await self.store.create_all(sessions, check=self._refuse_at_shutdown)
        warnings = _left_out_turns(stored, turns)
        warnings += left_out_warnings(conversations, models, missing)
        removed = sum(excess_versions(session.extra) for session, _ in sessions)
        if removed:
            warnings.append(versions_removed(removed))
        return await asyncio.to_thread(_as_json, stored, warnings)

    async def _installed_models(self) -> list[ModelInfo]:
        """Return the chat models, or no models if Ollama does not list them."""
        try:
            return await self.fleet.list_models()
        except MochiError:
            return []

    def _refuse_at_shutdown(self) -> None:
        if self.shutdown.is_set():
            raise ShuttingDown


def _remove_missing_blobs(sessions: Sequence[tuple[ChatSession, Sequence[Blob]]]) -> Counter[str]:
    """Remove images and files that the export only names: a hash gives no access to those of other
    owners.

    Return how many are removed of each kind.
    """
    removed: Counter[str] = Counter()
    sent: set[str] = set()
    for _, blobs in sessions:
        sent.update(blob.sha256 for blob in blobs)
    for session, _ in sessions:
        for message in session.messages:  # not `history`, which must not change
            removed += _remove_unsent(message, sent)
        for version in session.extra.get(KEY) or ():
            for message in version["messages"]:
                removed += _remove_unsent(message, sent)
    return removed


def _remove_unsent(message: Message, sent: set[str]) -> Counter[str]:
    """Remove the references of a message to images and files that are not ``sent`` completely.

    Return how many are removed of each kind.
    """
    removed: Counter[str] = Counter()
    if message["role"] == "system" or sent.issuperset(blobs_in([message])):
        return removed
    references = image_references_of(message)
    images = [image for image in references if image["sha256"] in sent]
    removed[IMAGES] = len(references) - len(images)
    message.pop("images", None)
    if images:
        message["images"] = images
    if message["role"] != "user":
        return removed
    attachments = attachments_of(message)
    files = [file for file in attachments if sent.issuperset(blobs_of_file(file))]
    removed[FILES] = len(attachments) - len(files)
    message.pop("attachments", None)
    if files:
        message["attachments"] = files
    return removed


def _encode_session(session: ChatSession, blobs: Mapping[str, bytes] | None) -> bytes:
    """Return a session file with ``blobs``, or without this field if it is None."""
    extra = session.extra
    if blobs is not None:
        encoded = dict(extra.get("blobs") or {})  # of a copied export
        for name, data in blobs.items():
            encoded[name] = b64encode(data).decode()
        extra = {**extra, "blobs": encoded}
    return encode_file(session.metadata, [encode(message) for message in session.history], extra)


def _left_out_turns(
    stored: Sequence[ChatSession], turns: Sequence[StoredTurn | None]
) -> list[TurnWarning]:
    """Return a warning for each turn of a file that would have continued in its session."""
    warnings = []
    for session, turn in zip(stored, turns, strict=True):
        if turn is not None and turn.survives:
            waited = turn.state == "waiting_for_approval"
            did = "waited for approval" if waited else "was running"
            text = f"In session {session.session_id!r}, a turn {did}. It does not continue."
            warnings.append(TurnWarning("TURN_LEFT_OUT", text))
    return warnings


def _as_json(stored: Sequence[ChatSession], warnings: Sequence[TurnWarning]) -> bytes:
    return encode(
        {
            "sessions": [session.summary_object() for session in stored],
            "warnings": [asdict(warning) for warning in warnings],
        }
    )


def _parse_items(
    data: bytes, max_sessions: int, max_bytes: int
) -> list[tuple[ChatSession, list[Blob]] | Conversation]:
    """Parse all items of a file. Raises ``ValidationFailed``, ``UnpackedTooLarge``."""
    items, files = archive.read(data, max_bytes)
    if not items:
        raise ValidationFailed("The file has no sessions.", errors=[])
    if len(items) > max_sessions:
        text = (
            f"The file has {len(items)} sessions; at most {max_sessions} are allowed. Split the "
            "file, or raise MOCHI_MAX_IMPORT_SESSIONS."
        )
        raise ValidationFailed(text, sessions=len(items), limit=max_sessions, errors=[])
    return [_parse_item(number, item, files) for number, item in enumerate(items)]


def _parse_item(
    number: int, item: object, files: Files
) -> tuple[ChatSession, list[Blob]] | Conversation:
    """Parse one session of the own format, or one conversation of another program.

    Raises ``ValidationFailed``.
    """
    fields = item if isinstance(item, dict) else {}
    importer = None if "metadata" in fields else importer_of(fields)
    if importer is not None:
        fields = importer.flatten(fields)
    if is_nested_deeper(fields or item, MAX_LEVELS):
        raise _invalid_item(number, f"nests values deeper than {MAX_LEVELS} levels. Flatten them.")
    if "metadata" in fields:
        return _parse_session(number, fields)
    if importer is None:
        raise _invalid_item(
            number,
            "is no conversation: a session has the field `metadata`, a chat of Open WebUI `chat`, "
            "of ChatGPT `mapping`, of Claude `chat_messages`, and of LibreChat `conversationId`.",
        )
    try:
        return importer.parse(_validate(number, fields, importer.model), files)
    except ValueError as error:
        raise _invalid_item(number, f"cannot be imported: {error}") from error


def _parse_session(number: int, item: dict[str, Any]) -> tuple[ChatSession, list[Blob]]:
    """Return the session of an item with a new ID, and its blobs. Changes ``item``.

    Raises ``ValidationFailed``.
    """
    file = _validate(number, item, SessionFile)
    item["metadata"] |= {**file.metadata.texts(), "session_id": new_id()}
    blobs = item.pop("blobs", None) or {}
    try:
        session = ChatSession.from_dict(item)
        session = with_versions(session, read_versions(session.extra.get(KEY)))
        return session, _referenced_blobs(session, blobs)
    except SessionTooNew as error:
        problem = (
            f"has format version {error.details['version']}, and this server reads versions up to "
            f"{FORMAT_VERSION}. Update mochi-server."
        )
        raise _invalid_item(number, problem) from error
    except ValueError as error:
        raise _invalid_item(number, f"cannot be imported: {error}") from error


_Model = TypeVar("_Model", bound=BaseModel)


def _validate(number: int, item: dict[str, Any], kind: type[_Model]) -> _Model:
    try:
        return kind.model_validate(item)
    except ValidationError as error:
        entries = to_entries(error, item)
        raise _invalid_item(number, f"cannot be imported: {describe(entries)}", entries) from error


def _invalid_item(number: int, problem: str, errors: Sequence[object] = ()) -> ValidationFailed:
    return ValidationFailed(
        f"Item {number} of the file {problem}", item=number, errors=list(errors)
    )


def _referenced_blobs(session: ChatSession, encoded: Mapping[str, str]) -> list[Blob]:
    """Decode those of the ``encoded`` images, files and texts that messages or versions reference.

    Raises ``ValueError``.
    """
    images: set[str] = set()
    characters: dict[str, int] = {}
    messages = list(session.history)
    for version in session.extra.get(KEY) or ():
        messages += version["messages"]
    for message in messages:
        images.update(images_of(message))
        for attachment in attachments_of(message):
            characters[attachment["text_sha256"]] = attachment["characters"]
    named = blobs_in(messages)
    blobs = []
    for name, data in encoded.items():
        if name in named:
            blobs.append(_decode_blob(name, data, name in images, characters.get(name)))
    return blobs


def _decode_blob(name: str, encoded: str, is_image: bool, characters: int | None) -> Blob:
    """Return a blob. ``characters`` is the length that it must have if it is the text of a file.

    Raises ``ValueError`` if the data is not valid, or not what ``name`` and ``characters`` say.
    """
    try:
        data = b64decode(encoded, validate=True)
        if is_image:
            blob: Blob = Image.of(data)
        else:
            blob = Blob.hashed(data, "application/octet-stream")
        text = None if characters is None else data.decode()
    except ValueError as error:
        raise ValueError(f"blobs.{name}: {error}") from error
    if blob.sha256 != name:
        raise ValueError(f"blobs.{name}: the data has another SHA-256. Name it {blob.sha256}.")
    if text is not None and len(text) != characters:
        raise ValueError(
            f"blobs.{name}: the text has {len(text)} characters, not {characters}. Correct the "
            "attachment."
        )
    return blob
