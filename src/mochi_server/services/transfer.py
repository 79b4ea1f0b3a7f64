"""Sessions that go their own ways: forked from another, written out as files, read in from files."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, TypeVar

import anyio
import orjson
from pydantic import BaseModel, ValidationError

from mochi_server.errors import ShuttingDown, ValidationFailed
from mochi_server.services.file_images import read_images, with_images
from mochi_server.services.open_webui import OpenWebUIBareChat, OpenWebUIChat, session_of
from mochi_server.services.session_file import SessionFile
from mochi_server.sessions.encoding import MAX_LEVELS, encode, encode_file, is_nested_deeper, parse
from mochi_server.sessions.forks import forked, index_of
from mochi_server.sessions.images import Image, images_in
from mochi_server.sessions.markdown import as_markdown
from mochi_server.sessions.session import ChatSession, new_id
from mochi_server.sessions.store import SessionPage, SessionStore


class TransferService:
    """Forks, exports and imports, over any store."""

    def __init__(self, store: SessionStore, *, max_sessions: int, shutdown: anyio.Event) -> None:
        """``shutdown`` ends imports that are not stored yet."""
        self._store = store
        self._max_sessions = max_sessions
        self._shutdown = shutdown
        self._importing = asyncio.Lock()
        """A large file takes much memory while it is read: one at a time."""

    async def fork(self, session_id: str, index: int | None = None, message_id: str | None = None) -> ChatSession:
        """A new session with the history up to a message; the origin stays as it is, and may be running."""
        origin = await self._store.load(session_id)
        if message_id is not None:
            index = index_of(origin, message_id)
        return await self._store.create(forked(origin, index))

    async def export(self, session_id: str, form: Literal["json", "markdown"]) -> AsyncIterator[bytes]:
        """A session as a file, in parts; as JSON, with the bytes of its images."""
        session = await self._store.load(session_id)
        file = await asyncio.to_thread(_written, session, form)
        return with_images(file, sorted(images_in(session.history)) if form == "json" else (), self._store)

    async def import_sessions(self, data: bytes) -> SessionPage:
        """Store the sessions of a file under new ids, all or none. They are listed in its order.

        Raises ValidationFailed, and ShuttingDown once the server drains.
        """
        async with self._importing:
            self._refuse_at_shutdown()
            sessions = await asyncio.to_thread(read_sessions, data, self._max_sessions)
            stored = await self._store.create_all(sessions, check=self._refuse_at_shutdown)
            return await asyncio.to_thread(_page, stored)

    def _refuse_at_shutdown(self) -> None:
        if self._shutdown.is_set():
            raise ShuttingDown


def _page(sessions: Sequence[ChatSession]) -> SessionPage:
    return SessionPage.of([session.summary_object() for session in sessions], len(sessions))


def read_sessions(data: bytes, max_sessions: int) -> list[tuple[ChatSession, list[Image]]]:
    """The sessions of a file, with new ids, and their images: one or a list, of this server or of Open WebUI.

    Raises ValidationFailed.
    """
    try:
        content = parse(data)
    except ValueError as error:
        raise ValidationFailed(f"The file is no JSON, or is cut short: {error}", errors=[]) from error
    if is_nested_deeper(content, MAX_LEVELS):
        raise ValidationFailed(f"The file nests values deeper than {MAX_LEVELS} levels. Flatten them.", errors=[])
    items = content if isinstance(content, list) else [content]
    if not items:
        raise ValidationFailed("The file holds no session.", errors=[])
    if len(items) > max_sessions:
        raise ValidationFailed(
            f"The file holds {len(items)} sessions; at most {max_sessions} can be imported at once. Split the file, or "
            "raise MOCHI_MAX_IMPORT_SESSIONS.",
            sessions=len(items),
            limit=max_sessions,
            errors=[],
        )
    return [_read(number, item) for number, item in enumerate(items)]


def _read(number: int, item: object) -> tuple[ChatSession, list[Image]]:
    if isinstance(item, dict) and "metadata" in item:
        return _session_of_file(number, item)
    if isinstance(item, dict) and "chat" in item:
        return session_of(_checked(number, item, OpenWebUIChat)), []
    if isinstance(item, dict) and "history" in item:
        return session_of(OpenWebUIChat(chat=_checked(number, item, OpenWebUIBareChat))), []
    problem = "is neither a session of this server nor a chat of Open WebUI"
    raise ValidationFailed(f"Item {number} of the file {problem}.", item=number, errors=[])


def _session_of_file(number: int, item: dict[str, Any]) -> tuple[ChatSession, list[Image]]:
    _checked(number, item, SessionFile)
    item["metadata"]["session_id"] = new_id()
    blobs = item.pop("blobs", None) or {}
    session = ChatSession.from_dict(item)
    try:
        return session, read_images(blobs, images_in(session.history))
    except ValueError as error:
        raise ValidationFailed(
            f"Item {number} of the file cannot be imported: {error}", item=number, errors=[]
        ) from error


_Checked = TypeVar("_Checked", bound=BaseModel)


def _checked(number: int, item: dict[str, Any], kind: type[_Checked]) -> _Checked:
    try:
        orjson.dumps(item)
        return kind.model_validate(item)
    except TypeError as error:
        raise ValidationFailed(
            f"Item {number} of the file holds something that cannot be stored: {error}", item=number, errors=[]
        ) from error
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        first = problems[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValidationFailed(
            f"Item {number} of the file cannot be imported: {where}: {first['msg'].removeprefix('Value error, ')}",
            item=number,
            errors=[{"loc": list(each["loc"]), "msg": each["msg"], "type": each["type"]} for each in problems[:20]],
        ) from error


def _written(session: ChatSession, form: Literal["json", "markdown"]) -> bytes:
    if form == "markdown":
        return as_markdown(session).encode()
    return encode_file(session.metadata, [encode(message) for message in session.messages], session.extra)
