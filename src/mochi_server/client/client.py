"""The asynchronous client, and the synchronous one, which runs it."""

import os
import uuid
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, TypeVar, cast
from urllib.parse import quote, urlsplit

import anyio
import httpx
from typing_extensions import ParamSpec, Self, Unpack

from mochi_server.client import types
from mochi_server.client.errors import error_of
from mochi_server.client.streams import DELAYS, LOST, READ_SECONDS, AsyncStream, Backoff, Stream
from mochi_server.constants import API_PREFIX
from mochi_server.events import ToolConfirmationRequired
from mochi_server.util.blocking import BlockingClient, blocking

P = ParamSpec("P")
T = TypeVar("T")


class AsyncMochiClient:
    """Asynchronous client of one server; close it, or use it as a context manager.

    ``delays`` are the seconds before each attempt to resume after a lost connection. ``http`` is an ``httpx`` client
    of your own with the ``base_url`` of the API (``http://127.0.0.1:8000/api/v1``); you close it. Raises
    ``ValueError`` for an invalid ``url``.

    Every method raises ``ApiError`` when the server refuses the request and ``ConnectionFailed`` when it cannot be
    reached.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        delays: Sequence[float] = DELAYS,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{url!r} is not an http:// or https:// URL")
        self._http = http or httpx.AsyncClient(
            base_url=url.rstrip("/") + API_PREFIX,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            trust_env=urlsplit(url).hostname not in ("localhost", "127.0.0.1", "::1"),  # no proxy for this machine
            limits=httpx.Limits(),  # each stream uses a connection until it ends
        )
        self._owned = http is None
        self._delays = delays

    async def create_session(self, model: str, **options: Unpack[types.SessionOptions]) -> types.Session:
        """Create a session. ``MODEL_NOT_FOUND`` when Ollama does not have the model."""
        return await self._send(types.Session, "POST", "/sessions", json={"model": model, **options})

    async def list_sessions(
        self, q: str | None = None, *, limit: int | None = None, offset: int = 0
    ) -> list[types.Session]:
        """List sessions, the last changed first: all, or those whose title and messages contain every word of ``q``."""
        params = _given(q=q, limit=limit, offset=offset or None)
        return (await self._send(dict[str, list[types.Session]], "GET", "/sessions", params=params))["sessions"]

    async def get_session(self, session_id: str) -> types.SessionDetail:
        """Get a session with its messages."""
        return await self._send(types.SessionDetail, "GET", _session(session_id))

    async def set_title(self, session_id: str, title: str | None) -> types.Session:
        """Set the title of a session; None returns to the generated one."""
        return await self._send(types.Session, "PATCH", _session(session_id), json={"title": title})

    async def fork_session(
        self, session_id: str, message_index: int | None = None, *, message_id: str | None = None
    ) -> types.SessionDetail:
        """Create a session with the messages up to one of this session, by default the last.

        ``INVALID_MESSAGE_INDEX`` when there is no such message, or when it is inside a round of tool calls.
        """
        body = _given(message_index=message_index, message_id=message_id)
        return await self._send(types.SessionDetail, "POST", f"{_session(session_id)}/fork", json=body)

    async def export_session(self, session_id: str, format: Literal["json", "markdown"] = "json") -> bytes:
        """Export a session as a file: JSON, which can be imported, or Markdown."""
        return await self._send(bytes, "GET", f"{_session(session_id)}/export", params={"format": format})

    async def import_sessions(self, data: bytes) -> list[types.Session]:
        """Store the sessions of an exported file, of this server or of Open WebUI, under new IDs: all or none."""
        headers = {"Content-Type": "application/json"}
        kind, path = dict[str, list[types.Session]], "/sessions/import"
        return (await self._send(kind, "POST", path, content=data, headers=headers, read_seconds=None))["sessions"]

    async def delete_session(self, session_id: str) -> None:
        """Delete a session; a running turn is stopped first."""
        await self._send(object, "DELETE", _session(session_id))

    async def chat(
        self,
        session_id: str,
        message: str | None = None,
        *,
        wait_for_confirmation: bool = False,
        idempotency_key: str | None = None,
        **options: Unpack[types.TurnOptions],
    ) -> types.ChatAnswer:
        """Send a message and return the complete answer. Without a message, regenerate the last answer.

        Tool calls that need approval are denied, unless ``wait_for_confirmation`` is set and a client approves them.
        """
        body = {**_turn(message, options), "wait_for_confirmation": wait_for_confirmation}
        headers = _key(idempotency_key)
        return await self._send(
            types.ChatAnswer, "POST", _chat(session_id), json=body, headers=headers, read_seconds=None
        )

    def stream(
        self,
        session_id: str,
        message: str | None = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[types.TurnOptions],
    ) -> AsyncStream:
        """Send a message and iterate over the events of the answer, ``Done`` the last.

        The message is sent when the iteration begins. A stream resumes after a lost connection: no event is lost or
        repeated.
        """
        first = {"method": "POST", "json": _turn(message, options), "headers": _key(idempotency_key)}
        return AsyncStream(self._http, f"{_chat(session_id)}/stream", self._delays, first=first)

    def listen(self, session_id: str, after: str | None = None) -> AsyncStream:
        """Iterate over the events of the running or latest turn, from its beginning or after an event.

        ``after`` is the ``last_event_id`` of a stream. A ``Snapshot`` replaces events that the server no longer has.
        There are no events if there is no turn.
        """
        return AsyncStream(self._http, f"{_chat(session_id)}/stream", self._delays, after=after)

    async def confirm(
        self,
        session_id: str,
        call: str | ToolConfirmationRequired,
        approved: bool,
        *,
        arguments: dict[str, Any] | None = None,
        reason: str | None = None,
        remember: Literal["once", "session"] = "once",
    ) -> types.Decided:
        """Approve or deny a call. ``call`` is the event that requires approval, or its ``confirmation_id``.

        ``arguments`` replace those of the model, the model receives the ``reason``, ``remember="session"`` decides for
        all later calls of the tool in the session. ``CONFIRMATION_RESOLVED`` when the call was already decided.
        """
        confirmation_id = call if isinstance(call, str) else call.confirmation_id
        body = {"confirmation_id": confirmation_id, "approved": approved, "remember": remember}
        body |= _given(arguments=arguments, reason=reason)
        return await self._send(types.Decided, "POST", f"{_chat(session_id)}/confirm-tool", json=body)

    async def list_confirmations(self, session_id: str) -> list[types.Confirmation]:
        """List the calls that wait for approval, oldest first."""
        path = f"{_chat(session_id)}/confirmations"
        return (await self._send(dict[str, list[types.Confirmation]], "GET", path))["confirmations"]

    async def stop(self, session_id: str) -> types.RunStatus:
        """Stop the running turn, if there is one, and keep its text."""
        return await self._send(types.RunStatus, "POST", f"{_chat(session_id)}/stop")

    async def get_run(self, session_id: str) -> types.RunStatus:
        """Get the state of the running or latest turn."""
        return await self._send(types.RunStatus, "GET", f"{_chat(session_id)}/run")

    async def aclose(self) -> None:
        """Close the connections."""
        if self._owned:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _send(
        self, kind: type[T], method: str, path: str, *, read_seconds: float | None = READ_SECONDS, **request: Any
    ) -> T:
        """Send a request, and again after a lost connection if that has no further effect."""
        is_repeatable = method == "GET" or "Idempotency-Key" in request.get("headers", {})
        backoff, timeout = (
            Backoff(self._delays if is_repeatable else ()),
            httpx.Timeout(READ_SECONDS, read=read_seconds),
        )
        while True:
            try:
                return _result(kind, await self._http.request(method, path, timeout=timeout, **request))
            except LOST as error:
                await anyio.sleep(backoff.delay_after(error))


def _streaming(
    method: Callable[Concatenate[AsyncMochiClient, P], AsyncStream],
) -> Callable[Concatenate["MochiClient", P], Stream]:
    @wraps(method)
    def stream(self: "MochiClient", /, *args: P.args, **kwargs: P.kwargs) -> Stream:
        return Stream(method(self._client, *args, **kwargs), self._loop)

    return stream


class MochiClient(BlockingClient[AsyncMochiClient]):
    """``AsyncMochiClient`` without ``await``; streams are for ``for``. Threads may share a client."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        delays: Sequence[float] = DELAYS,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        super().__init__(AsyncMochiClient(url, api_key=api_key, delays=delays, http=http))

    create_session = blocking(AsyncMochiClient.create_session)
    list_sessions = blocking(AsyncMochiClient.list_sessions)
    get_session = blocking(AsyncMochiClient.get_session)
    set_title = blocking(AsyncMochiClient.set_title)
    fork_session = blocking(AsyncMochiClient.fork_session)
    export_session = blocking(AsyncMochiClient.export_session)
    import_sessions = blocking(AsyncMochiClient.import_sessions)
    delete_session = blocking(AsyncMochiClient.delete_session)
    chat = blocking(AsyncMochiClient.chat)
    stream = _streaming(AsyncMochiClient.stream)
    listen = _streaming(AsyncMochiClient.listen)
    confirm = blocking(AsyncMochiClient.confirm)
    list_confirmations = blocking(AsyncMochiClient.list_confirmations)
    stop = blocking(AsyncMochiClient.stop)
    get_run = blocking(AsyncMochiClient.get_run)


def _result(kind: type[T], response: httpx.Response) -> T:
    """Return the body of a response: bytes, or what the JSON is. Raises ``ClientError``."""
    if not response.is_success:
        raise error_of(response.status_code, response.content)
    try:
        return cast("T", response.content if kind is bytes or not response.content else response.json())
    except ValueError as error:  # perhaps an HTML page of another server
        raise error_of(response.status_code, response.content) from error


def _turn(message: str | None, options: types.TurnOptions) -> dict[str, Any]:
    body = {"on_disconnect": "continue", **options, **_given(message=message)}
    if images := options.get("images"):
        body["images"] = [_encoded(image) for image in images]
    return body


def _encoded(image: types.Picture) -> str:
    """Encode an image as base64. Raises OSError for a file that cannot be read."""
    data = Path(image).read_bytes() if isinstance(image, os.PathLike) else image
    return data if isinstance(data, str) else b64encode(data).decode()


def _key(key: str | None) -> dict[str, str]:
    """Return the header with which a repeated request does not add the message again."""
    return {"Idempotency-Key": key or uuid.uuid4().hex}


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _session(session_id: str) -> str:
    return f"/sessions/{quote(session_id, safe='')}"


def _chat(session_id: str) -> str:
    return f"/chat/{quote(session_id, safe='')}"
