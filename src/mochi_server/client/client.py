"""Asynchronous and synchronous clients of mochi-server."""

import asyncio
import inspect
import os
import re
import uuid
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, TypeVar, cast
from urllib.parse import quote

import anyio
import httpx
from typing_extensions import ParamSpec, Self, Unpack

from mochi_server import errors
from mochi_server.client import types
from mochi_server.client.streams import (
    DELAYS,
    READ_SECONDS,
    RETRYABLE_ERRORS,
    ApiError,
    AsyncStream,
    Backoff,
    Parser,
    Stream,
    UnknownEvent,
    parse_error,
)
from mochi_server.constants import API_PREFIX
from mochi_server.events import ToolConfirmationRequired
from mochi_server.util.blocking import BlockingClient, blocking
from mochi_server.util.net import is_loopback
from mochi_server.util.tasks import cancel_and_wait

OnConfirm = Callable[[ToolConfirmationRequired], "bool | types.Decision | Awaitable[bool | types.Decision]"]
"""Callback that approves or denies a tool call."""

_POLL_SECONDS = 0.25
_COMPARED_FIELDS = {
    name: re.sub("_(.)", lambda match: match[1].upper(), name) for name in types.ComparedAnswer.__annotations__
} | {"model": "modelId"}
"""Fields of a ``ComparedAnswer``, and their names in the event stream."""
_NOT_WAITING = (errors.ConfirmationInterrupted, errors.ConfirmationNotFound, errors.ConfirmationResolved)
_TOO_LATE = {error.code for error in (*_NOT_WAITING, errors.ConfirmationTimeout, errors.SessionNotFound)}
"""Error codes of decisions for calls that no longer wait for a decision."""
_DECISION_FIELDS = types.Decision.__annotations__.keys()
_CONFIRMATION_FIELDS = [field.name for field in fields(ToolConfirmationRequired)]
P = ParamSpec("P")
T = TypeVar("T")


class AsyncMochiClient:
    """Asynchronous client of one server. Close it, or use it as a context manager.

    ``delays`` are the seconds before each attempt to resume after a lost connection. ``http`` is your own ``httpx``
    client with the ``base_url`` of the API (``http://127.0.0.1:8000/api/v1``); close it yourself. Every method raises
    ``ApiError`` for an error response and ``ConnectionFailed`` if the server cannot be reached. An invalid ``url``
    raises ``ValueError``.
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
        try:
            base_url = httpx.URL(url.rstrip("/") + API_PREFIX)
        except httpx.InvalidURL as error:
            raise ValueError(f"{url!r} is not a valid URL: {error}") from error
        self._http = http or httpx.AsyncClient(
            base_url=base_url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            trust_env=not is_loopback(base_url.host),  # no proxy for this machine
            limits=httpx.Limits(),  # each stream uses a connection until it ends
        )
        self._owns_http = http is None
        self._delays = delays

    async def list_models(self) -> list[types.Model]:
        """List the models of Ollama that can chat."""
        return (await self._send(dict[str, list[types.Model]], "GET", "/models"))["models"]

    async def get_model(self, name: str) -> types.Model:
        """Get the details of a model. The error is ``MODEL_NOT_FOUND`` if Ollama does not have the model."""
        return await self._send(types.Model, "GET", f"/models/{quote(name, safe='/:')}")

    async def list_tools(self) -> types.Tools:
        """Get the tools and tool groups of the server, and the problems of files that it cannot use."""
        return await self._send(types.Tools, "GET", "/tools")

    async def create_session(self, model: str, **options: Unpack[types.SessionOptions]) -> types.ChangedSession:
        """Create a session. The error is ``MODEL_NOT_FOUND`` if Ollama does not have the model."""
        return await self._send(types.ChangedSession, "POST", "/sessions", json={"model": model, **options})

    async def list_sessions(
        self, q: str | None = None, *, limit: int | None = None, offset: int = 0
    ) -> list[types.Session]:
        """List sessions, most recently changed first.

        If ``q`` is not None, list only sessions that contain every word of ``q`` in the title or the messages.
        """
        params = _without_none(q=q, limit=limit, offset=offset or None)
        return (await self._send(dict[str, list[types.Session]], "GET", "/sessions", params=params))["sessions"]

    async def get_session(self, session_id: str) -> types.SessionDetail:
        """Get a session with its messages."""
        return await self._send(types.SessionDetail, "GET", _session_path(session_id))

    async def update_session(self, session_id: str, **changes: Unpack[types.SessionChanges]) -> types.ChangedSession:
        """Change settings of a session. None clears a setting. Nested objects are replaced completely."""
        return await self._send(types.ChangedSession, "PATCH", _session_path(session_id), json=changes)

    async def edit_message(self, session_id: str, index: int, content: str) -> types.SessionDetail:
        """Replace the text of a user message and remove all later messages.

        To let the model answer the changed message, call ``chat`` without a message. The error is
        ``INVALID_MESSAGE_INDEX`` if the message at ``index`` does not exist or is not from the user.
        """
        path = f"{_session_path(session_id)}/messages/{index}"
        return await self._send(types.SessionDetail, "PUT", path, json={"content": content})

    async def set_title(self, session_id: str, title: str | None) -> types.ChangedSession:
        """Set the title of a session; None restores the generated title."""
        return await self.update_session(session_id, title=title)

    async def fork_session(
        self, session_id: str, message_index: int | None = None, *, message_id: str | None = None
    ) -> types.SessionDetail:
        """Copy a session up to and including a message, by default its last message.

        The error is ``INVALID_MESSAGE_INDEX`` if the message does not exist or is inside a round of tool calls.
        """
        body = _without_none(message_index=message_index, message_id=message_id)
        return await self._send(types.SessionDetail, "POST", f"{_session_path(session_id)}/fork", json=body)

    async def export_session(self, session_id: str, format: Literal["json", "markdown"] = "json") -> bytes:
        """Export a session as a file. Only JSON can be imported again."""
        return await self._send(bytes, "GET", f"{_session_path(session_id)}/export", params={"format": format})

    async def import_sessions(self, data: bytes) -> list[types.Session]:
        """Import the sessions of a file from this server or Open WebUI, under new IDs. Stores all sessions or none."""
        headers = {"Content-Type": "application/json"}
        kind, path = dict[str, list[types.Session]], "/sessions/import"
        return (await self._send(kind, "POST", path, content=data, headers=headers, read_seconds=None))["sessions"]

    async def delete_session(self, session_id: str) -> None:
        """Stop the running turn of a session, if any, and delete the session."""
        await self._send(object, "DELETE", _session_path(session_id))

    async def chat(
        self,
        session_id: str,
        message: str | None = None,
        *,
        wait_for_confirmation: bool = False,
        on_confirm: OnConfirm | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[types.TurnOptions],
    ) -> types.ChatAnswer:
        """Send a message and return the complete answer. Without a message, regenerate the last answer.

        Tool calls that need approval are denied, unless ``on_confirm`` approves them, or ``wait_for_confirmation`` is
        set and a client approves them. ``on_confirm`` is described at ``stream``.
        """
        waits = wait_for_confirmation or on_confirm is not None
        body = {**_turn_body(message, options), "wait_for_confirmation": waits}
        headers, path = _key_header(idempotency_key), _chat_path(session_id)
        sending = self._send(types.ChatAnswer, "POST", path, json=body, headers=headers, read_seconds=None)
        if on_confirm is None:
            return await sending
        deciding = asyncio.ensure_future(self._decide_pending(session_id, on_confirm))
        answering = asyncio.ensure_future(sending)
        try:
            await asyncio.wait([answering, deciding], return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                await deciding  # the callback has failed
            return await answering
        finally:
            await cancel_and_wait([answering, deciding])

    def stream(
        self,
        session_id: str,
        message: str | None = None,
        *,
        on_confirm: OnConfirm | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[types.TurnOptions],
    ) -> AsyncStream:
        """Send a message and iterate over the events of the answer. The last event is ``Done``.

        The message is sent when the iteration begins. After a lost connection, the client resumes the stream without
        losing or repeating events.

        ``on_confirm`` is a function or coroutine function that approves or denies tool calls. It receives each event
        that requires approval, and returns True, False or a ``types.Decision``. A plain function runs in a thread. A
        decision after the approval timeout or the end of the turn has no effect.
        """
        request = {"method": "POST", "json": _turn_body(message, options), "headers": _key_header(idempotency_key)}
        return self._open_stream(session_id, on_confirm, first_request=request)

    def listen(self, session_id: str, after: str | None = None, *, on_confirm: OnConfirm | None = None) -> AsyncStream:
        """Iterate over the events of the running or latest turn, from its first event or after the event ``after``.

        ``after`` is the ``last_event_id`` of a stream. A ``Snapshot`` replaces events that the server no longer has.
        If the session has no recent turn, there are no events. ``on_confirm`` is described at ``stream``.
        """
        return self._open_stream(session_id, on_confirm, after=after)

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
        """Approve or deny a tool call. ``call`` is the event that requires approval, or its ``confirmation_id``.

        If ``arguments`` is not None, they replace the arguments that the model has chosen. The model receives
        ``reason`` in the result of the call. ``remember="session"`` also approves later calls of the tool in the
        session. The error is ``CONFIRMATION_RESOLVED`` if the call was already decided.
        """
        confirmation_id = call if isinstance(call, str) else call.confirmation_id
        body = {"confirmation_id": confirmation_id, "approved": approved, "remember": remember}
        body |= _without_none(arguments=arguments, reason=reason)
        return await self._send(types.Decided, "POST", f"{_chat_path(session_id)}/confirm-tool", json=body)

    async def list_confirmations(self, session_id: str) -> list[types.Confirmation]:
        """List the tool calls that wait for approval, oldest first."""
        path = f"{_chat_path(session_id)}/confirmations"
        return (await self._send(dict[str, list[types.Confirmation]], "GET", path))["confirmations"]

    async def compare(
        self,
        models: Sequence[str],
        message: str,
        *,
        system_prompt: str | None = None,
        history: Sequence[dict[str, str]] | None = None,
        think: types.Think | None = None,
        options: dict[str, Any] | None = None,
    ) -> list[types.ComparedAnswer]:
        """Send one message to one to three models, and return their answers in the order of ``models``.

        ``history`` contains earlier messages with the keys ``role`` and ``content``. The server stores nothing. A model
        that fails has an ``error`` in place of an answer.
        """
        body = {"modelIds": list(models), "message": message}
        body |= _without_none(systemPrompt=system_prompt, chatHistory=history, think=think, options=options)
        content = await self._send(bytes, "POST", "/models/test", json=body, read_seconds=None)
        return _compared_answers(content)

    async def stop(self, session_id: str) -> types.RunStatus:
        """Stop the running turn, if any, and store its partial answer."""
        return await self._send(types.RunStatus, "POST", f"{_chat_path(session_id)}/stop")

    async def get_run(self, session_id: str) -> types.RunStatus:
        """Get the state of the running or latest turn."""
        return await self._send(types.RunStatus, "GET", f"{_chat_path(session_id)}/run")

    async def aclose(self) -> None:
        if self._owns_http:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _open_stream(self, session_id: str, on_confirm: OnConfirm | None, **start: Any) -> AsyncStream:
        decide = partial(self._decide, session_id, on_confirm) if on_confirm else None
        url = f"{_chat_path(session_id)}/stream"
        return AsyncStream(self._http, url, self._delays, on_confirmation=decide, **start)

    async def _decide(self, session_id: str, on_confirm: OnConfirm, event: ToolConfirmationRequired) -> None:
        """Call ``on_confirm`` and send its decision to the server. A decision that is too late has no effect."""
        decision = await anyio.to_thread.run_sync(on_confirm, event)
        if inspect.isawaitable(decision):
            decision = await decision
        try:
            await self.confirm(session_id, event, **_decision(decision))
        except ApiError as error:
            if error.code not in _TOO_LATE:
                raise

    async def _decide_pending(self, session_id: str, on_confirm: OnConfirm) -> None:
        """Poll the session's approval requests and pass each one to ``on_confirm``. ``chat`` receives no events."""
        decided: set[str] = set()
        while True:
            for call in await self.list_confirmations(session_id):
                if call["state"] == "waiting" and call["confirmation_id"] not in decided:
                    decided.add(call["confirmation_id"])
                    event = ToolConfirmationRequired(**{name: call[name] for name in _CONFIRMATION_FIELDS})  # type: ignore[literal-required]  # a TypedDict by names
                    await self._decide(session_id, on_confirm, event)
            await anyio.sleep(_POLL_SECONDS)

    async def _send(
        self, kind: type[T], method: str, path: str, *, read_seconds: float | None = READ_SECONDS, **request: Any
    ) -> T:
        """Send a request and return the response body. After a lost connection, repeat requests that are idempotent."""
        is_repeatable = method == "GET" or "Idempotency-Key" in request.get("headers", {})
        backoff = Backoff(self._delays if is_repeatable else ())
        timeout = httpx.Timeout(READ_SECONDS, read=read_seconds)
        while True:
            try:
                return _result(kind, await self._http.request(method, path, timeout=timeout, **request))
            except RETRYABLE_ERRORS as error:
                await anyio.sleep(backoff.delay_after(error))


def _blocking_stream(
    method: Callable[Concatenate[AsyncMochiClient, P], AsyncStream],
) -> Callable[Concatenate["MochiClient", P], Stream]:
    @wraps(method)
    def stream(self: "MochiClient", /, *args: P.args, **kwargs: P.kwargs) -> Stream:
        return Stream(method(self._client, *args, **kwargs), owner=self)

    return stream


class MochiClient(BlockingClient[AsyncMochiClient]):
    """Synchronous version of ``AsyncMochiClient``. Threads can share a client."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        delays: Sequence[float] = DELAYS,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        super().__init__(AsyncMochiClient(url, api_key=api_key, delays=delays, http=http))

    list_models = blocking(AsyncMochiClient.list_models)
    get_model = blocking(AsyncMochiClient.get_model)
    list_tools = blocking(AsyncMochiClient.list_tools)
    create_session = blocking(AsyncMochiClient.create_session)
    list_sessions = blocking(AsyncMochiClient.list_sessions)
    get_session = blocking(AsyncMochiClient.get_session)
    update_session = blocking(AsyncMochiClient.update_session)
    edit_message = blocking(AsyncMochiClient.edit_message)
    set_title = blocking(AsyncMochiClient.set_title)
    fork_session = blocking(AsyncMochiClient.fork_session)
    export_session = blocking(AsyncMochiClient.export_session)
    import_sessions = blocking(AsyncMochiClient.import_sessions)
    delete_session = blocking(AsyncMochiClient.delete_session)
    chat = blocking(AsyncMochiClient.chat)
    stream = _blocking_stream(AsyncMochiClient.stream)
    listen = _blocking_stream(AsyncMochiClient.listen)
    confirm = blocking(AsyncMochiClient.confirm)
    list_confirmations = blocking(AsyncMochiClient.list_confirmations)
    compare = blocking(AsyncMochiClient.compare)
    stop = blocking(AsyncMochiClient.stop)
    get_run = blocking(AsyncMochiClient.get_run)


def _result(kind: type[T], response: httpx.Response) -> T:
    if response.is_success:
        with suppress(ValueError):  # for example an HTML page of another server
            return cast("T", response.content if kind is bytes or not response.content else response.json())
    raise parse_error(response.status_code, response.content)


def _compared_answers(content: bytes) -> list[types.ComparedAnswer]:
    """Return the answers in the event stream of a comparison."""
    answers: list[types.ComparedAnswer] = []
    for _, event in Parser().feed(content):
        if isinstance(event, UnknownEvent) and event.type in ("done", "error"):
            values = {name: event.data.get(key) for name, key in _COMPARED_FIELDS.items()}
            answers.append(cast("types.ComparedAnswer", values))
    return answers


def _decision(value: object) -> types.Decision:
    """Return the decision that a callback returned. Raises ``TypeError`` if the value is invalid."""
    if isinstance(value, bool):
        return {"approved": value}
    if isinstance(value, dict) and "approved" in value and value.keys() <= _DECISION_FIELDS:
        return cast(types.Decision, value)
    text = "on_confirm must return True, False or a dictionary such as {'approved': False, 'reason': 'Not now.'}"
    raise TypeError(f"{text}. It returned {value!r}.")


def _turn_body(message: str | None, options: types.TurnOptions) -> dict[str, Any]:
    body = {"on_disconnect": "continue", **options, **_without_none(message=message)}
    if images := options.get("images"):
        body["images"] = [_encode_image(image) for image in images]
    return body


def _encode_image(image: types.Picture) -> str:
    data = Path(image).read_bytes() if isinstance(image, os.PathLike) else image
    return data if isinstance(data, str) else b64encode(data).decode()


def _key_header(key: str | None) -> dict[str, str]:
    return {"Idempotency-Key": key or uuid.uuid4().hex}


def _without_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _session_path(session_id: str) -> str:
    return f"/sessions/{quote(session_id, safe='')}"


def _chat_path(session_id: str) -> str:
    return f"/chat/{quote(session_id, safe='')}"
