"""Fork, export and import of sessions, including their images."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

import anyio
import orjson
from pydantic import BaseModel, Field, ValidationError

from mochi_server.constants import FORMAT_VERSION
from mochi_server.errors import BlobNotFound, SessionTooNew, ShuttingDown, ValidationFailed
from mochi_server.services.open_webui import OpenModel, OpenWebUIBareChat, OpenWebUIChat, to_session
from mochi_server.sessions.generation_settings import Format, KeepAlive, StoredOptions, Think
from mochi_server.sessions.history_edits import forked, index_of
from mochi_server.sessions.images import Image, images_in
from mochi_server.sessions.markdown import as_markdown
from mochi_server.sessions.serialization import MAX_LEVELS, encode, encode_file, is_nested_deeper, parse
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import SessionPage, SessionStore
from mochi_server.sessions.types import Role
from mochi_server.util.clock import new_id
from mochi_server.util.validation import MAX_REPORTED, Entries, Items, describe, field_path, to_entry

_FILE_END = b"\n}\n"


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


@dataclass
class ImportExportService:
    """Service for forks, exports and imports. After ``shutdown`` is set, it refuses imports that are not stored yet."""

    store: SessionStore
    max_sessions: int
    shutdown: anyio.Event
    _importing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Lock that allows one import at a time, because large files need much memory."""

    async def fork(self, session_id: str, index: int | None = None, message_id: str | None = None) -> ChatSession:
        """Copy a session up to and including a message. A turn may be running in the original session."""
        original = await self.store.load(session_id)
        if message_id is not None:
            index = index_of(original, message_id)
        return await self.store.create(forked(original, index))

    async def export(self, session_id: str, form: Literal["json", "markdown"]) -> AsyncIterator[bytes]:
        """Return the chunks of a JSON or Markdown file with the session. JSON files include the images."""
        session = await self.store.load(session_id)
        file = await asyncio.to_thread(_encode_session, session, form)
        # A user may have copied an exported file, which contains its images, into the directory of the sessions.
        embedded = session.extra.get("blobs")
        return self._with_images(
            file,
            sorted(images_in(session.history)) if form == "json" else (),
            embedded if isinstance(embedded, dict) else {},
        )

    async def _with_images(
        self, file: bytes, names: Collection[str], embedded: Mapping[str, object]
    ) -> AsyncIterator[bytes]:
        """Yield a session file with its images. Images that are neither stored nor ``embedded`` are omitted."""
        if not names:
            yield file
            return
        yield file.removesuffix(_FILE_END) + b',\n  "blobs": {'
        separator = b"\n    "
        for name in names:
            try:
                data = await self.store.load_image(name)
                encoded = b"".join([b'"', await asyncio.to_thread(b64encode, data), b'"'])
            except BlobNotFound:
                if embedded.get(name) is None:
                    continue
                encoded = encode(embedded[name])
            yield b"".join([separator, b'"', name.encode(), b'": ', encoded])
            separator = b",\n    "
        yield b"\n  }" + _FILE_END

    async def import_sessions(self, data: bytes) -> SessionPage:
        """Store all sessions of a file under new IDs. After an error, store none. Return the sessions in file order.

        Raise ``ValidationFailed`` for an invalid file, and ``ShuttingDown`` during a shutdown.
        """
        async with self._importing:
            self._refuse_at_shutdown()
            sessions = await asyncio.to_thread(_read_sessions, data, self.max_sessions)
            stored = await self.store.create_all(sessions, check=self._refuse_at_shutdown)
        return await asyncio.to_thread(
            lambda: SessionPage.of([encode(s.summary_object()) for s in stored], len(stored))
        )

    def _refuse_at_shutdown(self) -> None:
        if self.shutdown.is_set():
            raise ShuttingDown


def _encode_session(session: ChatSession, form: Literal["json", "markdown"]) -> bytes:
    if form == "markdown":
        return as_markdown(session).encode()
    extra = {name: value for name, value in session.extra.items() if name != "blobs"}
    return encode_file(session.metadata, [encode(message) for message in session.history], extra)


def _read_sessions(data: bytes, max_sessions: int) -> list[tuple[ChatSession, list[Image]]]:
    """Parse the sessions and images in a file from this server or from Open WebUI. Assign new session IDs."""
    try:
        content = parse(data)
    except ValueError as error:
        raise ValidationFailed(f"The file is not valid JSON: {error}", errors=[]) from error
    if is_nested_deeper(content, MAX_LEVELS):
        raise ValidationFailed(f"The file nests values deeper than {MAX_LEVELS} levels. Flatten them.", errors=[])
    items = content if isinstance(content, list) else [content]
    if not items:
        raise ValidationFailed("The file has no sessions.", errors=[])
    if len(items) > max_sessions:
        raise ValidationFailed(
            f"The file has {len(items)} sessions; at most {max_sessions} are allowed. Split the file, or raise "
            "MOCHI_MAX_IMPORT_SESSIONS.",
            sessions=len(items),
            limit=max_sessions,
            errors=[],
        )
    return [_read(number, item) for number, item in enumerate(items)]


def _read(number: int, item: object) -> tuple[ChatSession, list[Image]]:
    fields = item if isinstance(item, dict) else {}
    if "metadata" in fields:
        return _read_session(number, fields)
    if "chat" in fields:
        return to_session(_validate(number, fields, OpenWebUIChat)), []
    if "history" in fields:
        return to_session(OpenWebUIChat(chat=_validate(number, fields, OpenWebUIBareChat))), []
    raise _invalid_item(number, "is neither a session nor an Open WebUI chat. Add `metadata`, `chat` or `history`.")


def _read_session(number: int, item: dict[str, Any]) -> tuple[ChatSession, list[Image]]:
    _validate(number, item, SessionFile)
    item["metadata"]["session_id"] = new_id()
    blobs = item.pop("blobs", None) or {}
    try:
        session = ChatSession.from_dict(item)
        session.metadata.pending_approval = None
        named = images_in(session.history)
        return session, [_image(name, encoded) for name, encoded in blobs.items() if name in named]
    except SessionTooNew as error:
        problem = f"has format version {error.details['version']}, and this server reads versions up to "
        raise _invalid_item(number, f"{problem}{FORMAT_VERSION}. Update mochi-server.") from error
    except ValueError as error:
        raise _invalid_item(number, f"cannot be imported: {error}") from error


_Model = TypeVar("_Model", bound=BaseModel)


def _validate(number: int, item: dict[str, Any], kind: type[_Model]) -> _Model:
    try:
        orjson.dumps(item)
        return kind.model_validate(item)
    except TypeError as error:
        raise _invalid_item(number, f"has a value that cannot be stored: {error}") from error
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)[:MAX_REPORTED]
        entries = [to_entry(problem, field_path(problem, problem["loc"], item)) for problem in problems]
        raise _invalid_item(number, f"cannot be imported: {describe(entries)}", entries) from error


def _invalid_item(number: int, problem: str, errors: Sequence[object] = ()) -> ValidationFailed:
    return ValidationFailed(f"Item {number} of the file {problem}", item=number, errors=list(errors))


def _image(name: str, encoded: str) -> Image:
    try:
        image = Image.of(b64decode(encoded, validate=True))
    except ValueError as error:
        raise ValueError(f"blobs.{name}: {error}") from error
    if image.sha256 != name:
        raise ValueError(f"blobs.{name}: the image has another SHA-256. Name it {image.sha256}.")
    return image
