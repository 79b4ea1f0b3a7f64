"""Fork, export and import of sessions, including their images.

Exports of Open WebUI can be imported too.
"""

import asyncio
import html
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Annotated, Any, Literal, TypeVar

import anyio
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mochi_server.constants import FORMAT_VERSION, MAX_TITLE_CHARS
from mochi_server.errors import BlobNotFound, SessionTooNew, ShuttingDown, ValidationFailed
from mochi_server.events import TurnWarning
from mochi_server.sessions.caller import CALLER, current_owner
from mochi_server.sessions.serialization import (
    MAX_LEVELS,
    as_markdown,
    encode,
    encode_file,
    is_nested_deeper,
    parse,
)
from mochi_server.sessions.session import (
    ChatSession,
    SessionMetadata,
    collapse_whitespace,
    forked,
    index_of,
)
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import (
    Format,
    Image,
    KeepAlive,
    Message,
    Role,
    StoredOptions,
    Think,
    images_in,
)
from mochi_server.util.clock import new_id, now
from mochi_server.util.validation import (
    MAX_REPORTED,
    Entries,
    Items,
    describe,
    field_path,
    to_entry,
)

_REASONING = re.compile(r'<details type="reasoning"[^<>]*>(.*?)</details>\s*', re.DOTALL)
_SUMMARY = re.compile(r"\A\s*<summary>.*?</summary>", re.DOTALL)
_QUOTED = re.compile(r"^> ?", re.MULTILINE)
_MIN_MILLISECONDS = 1e11
"""Larger timestamps are in milliseconds, others in seconds. Exports contain both."""


class OpenModel(BaseModel):
    """Base class of the Pydantic models for imported files.

    Known fields are validated. Others are allowed.
    """

    model_config = ConfigDict(extra="allow", strict=True)


class FileCallFunction(OpenModel):
    name: str
    arguments: dict[str, Any]


class FileCall(OpenModel):
    id: str
    function: FileCallFunction


class FileMessage(OpenModel):
    role: Role
    content: str | None
    message_id: str | None = None
    timestamp: str | None = None
    tool_calls: Items[FileCall] | None = None


class FileMetadata(OpenModel):
    model: Annotated[str, Field(min_length=1, max_length=500)]
    options: StoredOptions | None = None
    keep_alive: KeepAlive = None
    think: Think = None
    format: Format | None = None


class SessionFile(OpenModel):
    """Exported session. `blobs` maps the SHA-256 of each image, in hex, to the image in base64."""

    metadata: FileMetadata
    messages: Items[FileMessage]
    blobs: Entries[str] | None = None


class OpenWebUIMessage(OpenModel):
    """Message with the ID of its parent.

    ``timestamp`` is in Unix seconds. Messages without a role are ignored.
    """

    role: Literal["system", "user", "assistant"] | None = None
    content: str | Items[dict[str, Any]] | None = None
    parentId: str | None = None
    timestamp: float | None = None
    model: str | None = None
    output: Any = None
    """Output items in the format of OpenAI's Responses API.

    In newer exports, the text may be only here.
    """


class OpenWebUIHistory(OpenModel):
    """Tree of messages. ``currentId`` is the last message of the current branch."""

    messages: Entries[OpenWebUIMessage | None]
    currentId: str | None = None


class OpenWebUIParams(OpenModel):
    system: str | None = None


class OpenWebUIContent(OpenModel):
    """Content of a chat. ``timestamp`` is in Unix milliseconds."""

    title: str | None = None
    models: Items[str | None] | None = None
    system: str | None = None
    params: OpenWebUIParams | None = None
    timestamp: float | None = None
    history: OpenWebUIHistory


class OpenWebUIChat(OpenModel):
    """Chat of an Open WebUI export. Times are in Unix seconds."""

    chat: OpenWebUIContent
    title: str | None = None
    created_at: float | None = None
    updated_at: float | None = None


@dataclass
class ImportExportService:
    """Service for forks, exports and imports.

    After ``shutdown`` is set, it refuses imports that are not stored yet.
    """

    store: SessionStore
    max_sessions: int
    shutdown: anyio.Event

    async def fork(
        self, session_id: str, index: int | None = None, message_id: str | None = None
    ) -> ChatSession:
        """Copy a session up to and including a message.

        A turn may be running in the original session.
        """
        self._refuse_at_shutdown()
        original = await self.store.load(session_id)
        if message_id is not None:
            index = index_of(original, message_id)
        return await self.store.create(forked(original, index))

    async def export(self, session_id: str, form: Literal["json", "markdown"]) -> bytes:
        """Return a JSON or Markdown file with the session.

        JSON files include the images that are stored.
        """
        session = await self.store.load(session_id)
        if form == "markdown":
            text = await asyncio.to_thread(as_markdown, session)
            return text.encode()
        names = sorted(images_in(session.history))
        images = {}
        for name in names:
            with suppress(BlobNotFound):
                images[name] = await self.store.load_image(name)
        return await asyncio.to_thread(_encode_session, session, images if names else None)

    async def import_sessions(self, data: bytes) -> bytes:
        """Store all sessions of a file under new IDs, or none.

        Return the sessions and the warnings as JSON.

        Raises ``ValidationFailed`` or ``ShuttingDown``.
        """
        self._refuse_at_shutdown()
        sessions = await asyncio.to_thread(_read_sessions, data, self.max_sessions)
        turns = [session.metadata.turn for session, _ in sessions]
        goes_on = [turn is not None and turn.survives for turn in turns]
        for session, _ in sessions:
            session.metadata.owner = current_owner()
            session.metadata.notices = None
            turn = session.metadata.turn
            if turn is not None and not turn.has_ended:  # a forged turn could run calls
                session.metadata.turn = None
        if not CALLER.get().sees_all:
            _remove_missing_images(sessions)
        stored = await self.store.create_all(sessions, check=self._refuse_at_shutdown)
        return await asyncio.to_thread(_as_json, stored, goes_on)

    def _refuse_at_shutdown(self) -> None:
        if self.shutdown.is_set():
            raise ShuttingDown


def _remove_missing_images(sessions: Sequence[tuple[ChatSession, list[Image]]]) -> None:
    """Remove images that the file only names: a hash gives no access to images of other owners."""
    sent: set[str] = set()
    for _, images in sessions:
        sent.update(image.sha256 for image in images)
    for session, _ in sessions:
        for message in session.messages:
            if not sent.issuperset(images_in([message])):
                del message["images"]


def _encode_session(session: ChatSession, images: Mapping[str, bytes] | None) -> bytes:
    extra = session.extra
    if images is not None:
        blobs = dict(extra.get("blobs") or {})  # of a copied export
        for name, data in images.items():
            blobs[name] = b64encode(data).decode()
        extra = {**extra, "blobs": blobs}
    return encode_file(session.metadata, [encode(message) for message in session.history], extra)


def _as_json(stored: Sequence[ChatSession], waiting: Sequence[bool]) -> bytes:
    warnings = []
    for session, waits in zip(stored, waiting, strict=True):
        if waits:
            text = (
                f"In session {session.session_id!r}, a turn waited for approval. It does not "
                "continue."
            )
            warnings.append(asdict(TurnWarning("TURN_LEFT_OUT", text)))
    summaries = [session.summary_object() for session in stored]
    return encode({"sessions": summaries, "warnings": warnings})


def _read_sessions(data: bytes, max_sessions: int) -> list[tuple[ChatSession, list[Image]]]:
    try:
        content = parse(data)
    except ValueError as error:
        raise ValidationFailed(f"The file is not valid JSON: {error}", errors=[]) from error
    if is_nested_deeper(content, MAX_LEVELS):
        raise ValidationFailed(
            f"The file nests values deeper than {MAX_LEVELS} levels. Flatten them.", errors=[]
        )
    items = content if isinstance(content, list) else [content]
    if not items:
        raise ValidationFailed("The file has no sessions.", errors=[])
    if len(items) > max_sessions:
        text = (
            f"The file has {len(items)} sessions; at most {max_sessions} are allowed. Split the "
            "file, or raise MOCHI_MAX_IMPORT_SESSIONS."
        )
        raise ValidationFailed(text, sessions=len(items), limit=max_sessions, errors=[])
    return [_read(number, item) for number, item in enumerate(items)]


def _read(number: int, item: object) -> tuple[ChatSession, list[Image]]:
    fields = item if isinstance(item, dict) else {}
    if "metadata" in fields:
        return _read_session(number, fields)
    if "chat" in fields:
        return _to_session(_validate(number, fields, OpenWebUIChat)), []
    raise _invalid_item(
        number, "is neither a session nor an Open WebUI chat. Add `metadata` or `chat`."
    )


def _read_session(number: int, item: dict[str, Any]) -> tuple[ChatSession, list[Image]]:
    _validate(number, item, SessionFile)
    item["metadata"]["session_id"] = new_id()
    blobs = item.pop("blobs", None) or {}
    try:
        session = ChatSession.from_dict(item)
        named = images_in(session.history)
        return session, [_image(name, encoded) for name, encoded in blobs.items() if name in named]
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
        problems = error.errors(include_url=False, include_context=False)[:MAX_REPORTED]
        entries = [
            to_entry(problem, field_path(problem, problem["loc"], item)) for problem in problems
        ]
        raise _invalid_item(number, f"cannot be imported: {describe(entries)}", entries) from error


def _invalid_item(number: int, problem: str, errors: Sequence[object] = ()) -> ValidationFailed:
    return ValidationFailed(
        f"Item {number} of the file {problem}", item=number, errors=list(errors)
    )


def _image(name: str, encoded: str) -> Image:
    try:
        image = Image.of(b64decode(encoded, validate=True))
    except ValueError as error:
        raise ValueError(f"blobs.{name}: {error}") from error
    if image.sha256 != name:
        raise ValueError(f"blobs.{name}: the image has another SHA-256. Name it {image.sha256}.")
    return image


def _to_session(exported: OpenWebUIChat) -> ChatSession:
    chat = exported.chat
    branch = [message for message in _branch(chat.history) if message.role is not None]
    times = [message.timestamp for message in branch] or [None]
    created = _first_time(exported.created_at, times[0], chat.timestamp) or now()
    updated = _first_time(exported.updated_at, times[-1]) or created
    messages = [_convert_message(message, created) for message in branch]
    system = chat.system
    if not system and chat.params:
        system = chat.params.system
    has_system_prompt = any(message["role"] == "system" for message in messages)
    if system and system.strip() and not has_system_prompt:
        messages.insert(0, _new_message("system", system, created))
    title = collapse_whitespace(exported.title or chat.title)[:MAX_TITLE_CHARS].strip()
    models = [message.model for message in reversed(branch) if message.role == "assistant"]
    models += chat.models or ()
    named = [name for name in models if name and name.strip()]
    metadata = SessionMetadata(
        session_id=new_id(),
        model=named[0] if named else "unknown",
        created_at=created,
        updated_at=updated,
        message_count=len(messages),
        title=None if title in ("", "New Chat") else title,
    )
    return ChatSession(metadata, messages)


def _branch(history: OpenWebUIHistory) -> list[OpenWebUIMessage]:
    """Return the messages from the first to the current one, or to the latest one if there is no
    current message.
    """
    messages = {
        name: message
        for name, message in history.messages.items()
        if message is not None and message.role
    }
    name = history.currentId
    if name not in messages:
        name = max(messages, key=lambda name: messages[name].timestamp or 0, default=None)
    branch: dict[str, OpenWebUIMessage] = {}
    while name is not None and name not in branch:
        message = history.messages.get(name)
        if message is None:
            break
        branch[name] = message
        name = message.parentId
    return list(reversed(branch.values()))


def _convert_message(message: OpenWebUIMessage, created: str) -> Message:
    content = _text(message.content)
    assert message.role is not None  # noqa: S101 - branches have only messages with a role
    stored = _new_message(message.role, content, _to_iso(message.timestamp) or created)
    if message.role == "assistant":
        # The text after the last end tag is handled separately: for each start tag, the pattern
        # would read all of it.
        rest = content.rpartition("</details>")[2].lstrip()
        reasoned = content.removesuffix(rest)
        blocks = [
            _QUOTED.sub("", html.unescape(_SUMMARY.sub("", block))).strip()
            for block in _REASONING.findall(reasoned)
        ]
        thinking = "\n\n".join(blocks) or _output_text(message.output, "reasoning")
        visible = _REASONING.sub("", reasoned) + rest
        if not visible.strip():
            visible = _output_text(message.output, "message")
        stored["content"] = visible
        if thinking:
            stored["thinking"] = thinking
        if message.model:
            stored["model"] = message.model
    return stored


def _output_text(output: Any, kind: str) -> str:
    """Return the texts of the output items of a ``kind``."""
    if not isinstance(output, list):
        return ""
    texts = []
    for item in output:
        if isinstance(item, dict) and item.get("type") == kind:
            texts.append(_text(item.get("summary") or item.get("content")))
    return "\n\n".join(filter(None, texts))


def _new_message(role: Role, content: str, time: str) -> Message:
    return {"role": role, "content": content, "message_id": new_id(), "timestamp": time}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part.get("text") for part in content if isinstance(part, dict)]
    return "\n".join(part for part in parts if isinstance(part, str))


def _first_time(*times: float | None) -> str | None:
    """Return the first valid time."""
    for time in times:
        text = _to_iso(time)
        if text:
            return text
    return None


def _to_iso(time: float | None) -> str | None:
    if not time:
        return None
    seconds = time / 1000 if time > _MIN_MILLISECONDS else time
    try:
        moment = datetime.fromtimestamp(seconds, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return None
    return moment.isoformat(timespec="microseconds")
