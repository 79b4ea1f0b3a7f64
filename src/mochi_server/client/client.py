"""Asynchronous and synchronous clients of mochi-server."""

import inspect
import os
import uuid
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, cast
from urllib.parse import quote

import anyio
import httpx
from typing_extensions import ParamSpec, Required, Self, TypedDict, Unpack

from mochi_server.client import streams
from mochi_server.client.streams import DELAYS, READ_SECONDS, ApiError, AsyncStream, Backoff, Stream
from mochi_server.constants import API_PREFIX
from mochi_server.errors import (
    ConfirmationNotFound,
    ConfirmationResolved,
    ConfirmationStale,
    ConfirmationTimeout,
    ServerLost,
    SessionNotFound,
    ShuttingDown,
)
from mochi_server.events import ToolConfirmationRequired, TurnError
from mochi_server.util.net import is_loopback
from mochi_server.util.tasks import BlockingClient, blocking

_LOST = (ServerLost.code, ShuttingDown.code)
"""Codes of turns that a request with the same key continues."""
Json = dict[str, Any]
Picture = bytes | str | os.PathLike[str]
"""An image: its bytes, its base64 text or data URL, or the path of its file."""


class AttachedFile(TypedDict, total=False):
    """A file that is not on the disk: its name, its bytes or base64 text, and its media type."""

    name: Required[str]
    data: Required[bytes | str]
    media_type: str


class ImportedSessions(list[Json]):
    """Imported sessions, in the order of the file, and the ``warnings`` of the import.

    A warning has the keys ``code`` and ``message``.
    """

    def __init__(self, sessions: Iterable[Json], warnings: Sequence[Json]) -> None:
        super().__init__(sessions)
        self.warnings = warnings


class GenerationOptions(TypedDict, total=False):
    """Options of answers. None means the default."""

    options: Json | None
    keep_alive: str | float | None
    think: bool | Literal["low", "medium", "high", "max"] | None
    format: Literal["json"] | Json | None


class TurnOptions(GenerationOptions, total=False):
    """Options of a turn.

    The default of ``on_disconnect`` is ``continue``. ``images`` and ``attachments`` are sent with
    the message. An attachment is the path of a file, or an ``AttachedFile``.

    With ``background``, ``chat`` returns the state of the run at once. Streams do not accept it.
    """

    images: Sequence[Picture]
    attachments: Sequence[os.PathLike[str] | AttachedFile]
    if_busy: Literal["reject", "wait"]
    if_waiting: Literal["reject", "deny"]
    on_disconnect: Literal["cancel", "continue"]
    background: bool


class SessionDefaults(GenerationOptions, total=False):
    """Settings that new sessions and changes of sessions share."""

    title: str | None
    tool_settings: Json | None
    agent_settings: Json | None
    tags: list[str] | None
    pinned: bool | None
    archived: bool | None
    temporary: bool | None
    expires_at: str | None


class SessionOptions(SessionDefaults, total=False):
    """Settings of a new session besides its model."""

    system_prompt: str | None
    system_prompt_source_file: str | None


class SessionChanges(SessionDefaults, total=False):
    """Changes of a session. The value None clears a setting. Only ``model`` cannot be None."""

    model: str
    summary_model: str | None
    context_window: Json | None


class Decision(TypedDict, total=False):
    """Decision about a tool call.

    ``approved`` is required. ``MochiClient.confirm`` describes the fields.
    """

    approved: Required[bool]
    arguments: Json
    reason: str
    remember: Literal["once", "session"]


OnConfirm = Callable[[ToolConfirmationRequired], "bool | Decision | Awaitable[bool | Decision]"]
"""Callback that approves or denies a tool call."""

_TOO_LATE = (
    SessionNotFound.code,
    ConfirmationNotFound.code,
    ConfirmationResolved.code,
    ConfirmationTimeout.code,
    ConfirmationStale.code,
)
"""Error codes of decisions on requests that no longer wait for a decision."""
_COMPARED_FIELDS = {
    "model": "modelId",
    "response": "response",
    "error": "error",
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "first_token_ms": "firstTokenMs",
    "total_ms": "totalMs",
    "tokens_per_second": "tokensPerSecond",
}
"""Keys of a compared answer, and their names in the event stream."""
_ANSWERS = ("done", "error")
P = ParamSpec("P")


class AsyncMochiClient:
    """Asynchronous client of one server. Close it, or use it as a context manager.

    ``delays`` are the seconds before each attempt to resume after a lost connection. Every method
    raises ``ApiError`` for an error response and ``ConnectionFailed`` if the server cannot be
    reached. An invalid ``url`` raises ``ValueError``.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        delays: Sequence[float] = DELAYS,
    ) -> None:
        try:
            base_url = httpx.URL(url.rstrip("/") + API_PREFIX)
        except httpx.InvalidURL as error:
            raise ValueError(f"{url!r} is not a valid URL: {error}") from error
        if base_url.scheme not in ("http", "https"):
            raise ValueError(f"{url!r} is not an http:// or https:// URL")
        trust_env = not is_loopback(base_url.host)  # no proxy for this machine
        self._http = httpx.AsyncClient(
            base_url=base_url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            trust_env=trust_env,
            # reading the trusted certificates takes 30 ms
            verify=trust_env or base_url.scheme == "https",
            limits=httpx.Limits(),  # each stream uses a connection until it ends
        )
        self._delays = delays

    async def list_models(self) -> list[Json]:
        """List the models of Ollama that can chat."""
        return await self._list("models", "GET", "/models")

    async def get_model(self, name: str) -> Json:
        """Get the details of a model.

        The error is ``MODEL_NOT_FOUND`` if Ollama does not have the model.
        """
        return await self._send("GET", f"/models/{quote(name, safe='/:')}")

    async def list_tools(self) -> Json:
        """Get the tools and tool groups of the server, and the problems of files that it cannot
        use.
        """
        return await self._send("GET", "/tools")

    async def list_mcp_servers(self) -> list[Json]:
        """List the MCP servers of the server with their states."""
        return await self._list("servers", "GET", "/mcp/servers")

    async def authorize_mcp_server(self, name: str, callback_url: str | None = None) -> Json:
        """Begin to authorize the server at an MCP server.

        A user opens the ``authorization_url`` of the result in a browser, which then returns to
        ``callback_url``. The default is the URL of the server. The error is
        ``MCP_AUTHORIZATION_FAILED`` if the MCP server refuses.
        """
        body = _without_none(callback_url=callback_url)
        return await self._send("POST", _path("mcp/servers", name, "authorize"), json=body)

    async def forget_mcp_authorization(self, name: str) -> None:
        """Remove the OAuth tokens of an MCP server, and end its connection."""
        await self._request("DELETE", _path("mcp/servers", name, "authorize"))

    async def get_tool(self, name: str) -> Json:
        """Get a tool with its JSON schema. The error is ``TOOL_NOT_FOUND`` if it does not exist."""
        return await self._send("GET", _path("tools", name))

    async def reload_tools(self) -> Json:
        """Read the tools directory of the server again, and return the same as ``list_tools``."""
        return await self._send("POST", "/tools/reload")

    async def list_executions(self) -> Json:
        """Get the latest tool calls of the server, with statistics."""
        return await self._send("GET", "/tools/executions")

    async def list_agents(self) -> dict[str, Json]:
        """Get the agents by name. An invalid agent has an error message."""
        body = await self._send("GET", "/agents")
        return cast("dict[str, Json]", body["agents"])

    async def get_agent(self, name: str) -> Json:
        """Get an agent with its prompt and its tools.

        The error is ``AGENT_NOT_FOUND`` if it does not exist.
        """
        return await self._send("GET", _path("agents", name))

    async def reload_agents(self) -> dict[str, Json]:
        """Read the agents directory of the server again, and return the agents by name."""
        body = await self._send("POST", "/agents/reload")
        return cast("dict[str, Json]", body["agents"])

    async def list_agent_chats(self) -> list[Json]:
        """List the sessions of agents, most recently changed first."""
        return await self._list("sessions", "GET", "/agents/chats")

    async def get_agent_chat(self, session_id: str) -> Json:
        """Get a session of an agent with its messages."""
        return await self._send("GET", _path("agents/chats", session_id))

    async def list_prompts(self) -> list[Json]:
        """List the prompt files, with the beginning of each."""
        return await self._list("prompts", "GET", "/system-prompts")

    async def get_prompt(self, filename: str) -> str:
        """Get the text of a prompt file. The error is ``PROMPT_NOT_FOUND`` if it does not exist."""
        prompt = await self._send("GET", _path("system-prompts", filename))
        return str(prompt["content"])

    async def create_prompt(self, filename: str, content: str) -> None:
        """Create a prompt file. The error is ``PROMPT_EXISTS`` if the file exists."""
        await self._request(
            "POST", "/system-prompts", json={"filename": filename, "content": content}
        )

    async def update_prompt(self, filename: str, content: str) -> None:
        """Replace the text of a prompt file."""
        await self._request("PUT", _path("system-prompts", filename), json={"content": content})

    async def delete_prompt(self, filename: str) -> None:
        """Delete a prompt file."""
        await self._request("DELETE", _path("system-prompts", filename))

    async def list_hosts(self) -> list[Json]:
        """List the Ollama hosts with their states and their numbers of requests."""
        return await self._list("hosts", "GET", "/hosts")

    async def get_health(self) -> Json:
        """Get the state of the server and of Ollama."""
        return await self._send("GET", "/health")

    async def get_usage(self, *, days: int = 30) -> Json:
        """Get the tokens that the API key has used in the last ``days``, by day and model, and its
        limits.
        """
        return await self._send("GET", "/usage", params={"days": days})

    async def create_session(self, model: str, **options: Unpack[SessionOptions]) -> Json:
        """Create a session. The error is ``MODEL_NOT_FOUND`` if Ollama does not have the model."""
        return await self._send("POST", "/sessions", json={"model": model, **options})

    async def list_sessions(
        self,
        q: str | None = None,
        *,
        limit: int | None = None,
        offset: int = 0,
        tag: str | Sequence[str] | None = None,
        archived: bool | None = None,
        temporary: bool = False,
        pinned_first: bool = False,
    ) -> list[Json]:
        """List sessions, most recently changed first.

        If ``q`` is not None, list only sessions that contain every word of ``q`` in the title or
        the messages. ``tag`` is a tag, or several tags that sessions must all have. If ``archived``
        is not None, list only archived sessions or only others. If ``temporary`` is true, list only
        temporary sessions, which are omitted otherwise.
        """
        params = _without_none(
            q=q,
            limit=limit,
            offset=offset or None,
            tag=tag,
            archived=archived,
            temporary=temporary or None,
            pinned="first" if pinned_first else None,
        )
        return await self._list("sessions", "GET", "/sessions", params=params)

    async def list_tags(self, *, archived: bool | None = None) -> list[Json]:
        """List the tags of sessions that are not temporary, the most frequent first.

        An item has the keys ``tag`` and ``count``. ``archived`` is as in ``list_sessions``.
        """
        params = _without_none(archived=archived)
        return await self._list("tags", "GET", "/sessions/tags", params=params)

    async def get_session(self, session_id: str) -> Json:
        """Get a session with its messages."""
        return await self._send("GET", _path("sessions", session_id))

    async def get_status(self, session_id: str) -> Json:
        """Get the state of a session, including its context window."""
        return await self._send("GET", _path("sessions", session_id, "status"))

    async def list_messages(self, session_id: str) -> list[Json]:
        """Get the messages of a session."""
        return await self._list("messages", "GET", _path("sessions", session_id, "messages"))

    async def get_image(self, session_id: str, sha256: str) -> bytes:
        """Get an image of a message by its SHA-256, which the message contains."""
        path = _path("sessions", session_id, "blobs", sha256)
        response = await self._request("GET", path)
        return response.content

    async def get_file(self, session_id: str, sha256: str) -> bytes:
        """Get a file of a message by its SHA-256, which the message contains."""
        path = _path("sessions", session_id, "files", sha256)
        response = await self._request("GET", path)
        return response.content

    async def set_system_prompt(
        self, session_id: str, content: str | None = None, *, source_file: str | None = None
    ) -> Json:
        """Set the system prompt of a session: ``content``, or else the text of a prompt file."""
        path = _path("sessions", session_id, "system-prompt")
        body = _without_none(content=content, source_file=source_file)
        return await self._send("PUT", path, json=body)

    async def remove_system_prompt(self, session_id: str) -> None:
        """Remove the system prompt of a session."""
        await self._request("DELETE", _path("sessions", session_id, "system-prompt"))

    async def summarize_session(self, session_id: str, model: str | None = None) -> Json:
        """Summarize a session now, with ``model`` if it is not None, and return the summary."""
        path = _path("sessions", session_id, "summarize")
        body = _without_none(model=model)
        return await self._send("POST", path, json=body, read_seconds=None)

    async def get_summary(self, session_id: str) -> Json:
        """Get the summary of a session. Without a summary, its fields are None."""
        return await self._send("GET", _path("sessions", session_id, "summary"))

    async def update_session(self, session_id: str, **changes: Unpack[SessionChanges]) -> Json:
        """Change settings of a session.

        None clears a setting. Nested objects are replaced completely.
        """
        return await self._send("PATCH", _path("sessions", session_id), json=changes)

    async def edit_message(self, session_id: str, index: int, content: str) -> Json:
        """Replace the text of a user message and remove all later messages.

        What is replaced becomes a version. To let the model answer the changed message, call
        ``chat`` without a message. The error is ``INVALID_MESSAGE_INDEX`` if the message at
        ``index`` does not exist or is not from the user.
        """
        path = _path("sessions", session_id, "messages", str(index))
        return await self._send("PUT", path, json={"content": content})

    async def set_title(self, session_id: str, title: str | None) -> Json:
        """Set the title of a session; None restores the generated title."""
        return await self.update_session(session_id, title=title)

    async def fork_session(
        self,
        session_id: str,
        message_index: int | None = None,
        *,
        message_id: str | None = None,
        versions: bool = False,
    ) -> Json:
        """Copy a session up to and including a message, by default its last message.

        With ``versions``, the copy has the versions of the messages.

        The error is ``INVALID_MESSAGE_INDEX`` if the message does not exist or is inside a round of
        tool calls.
        """
        body = _without_none(message_index=message_index, message_id=message_id)
        path = _path("sessions", session_id, "fork")
        params = {"versions": "true"} if versions else {}
        return await self._send("POST", path, json=body, params=params)

    async def list_versions(self, session_id: str, message_id: str) -> list[Json]:
        """List the versions of a message with the shown one, the oldest first.

        The error is ``INVALID_MESSAGE_INDEX`` if the session does not have the message.
        """
        path = _path("sessions", session_id, "versions")
        return await self._list("versions", "GET", path, params={"message_id": message_id})

    async def select_version(self, session_id: str, version_id: str) -> Json:
        """Show a version, and return the session.

        The error is ``VERSION_NOT_FOUND`` if no message of the history has the version.
        """
        path = _path("sessions", session_id, "versions", version_id, "select")
        return await self._send("POST", path)

    async def delete_versions(self, session_id: str, message_id: str) -> None:
        """Delete the versions of a message. The history stays as it is."""
        path = _path("sessions", session_id, "versions")
        await self._request("DELETE", path, params={"message_id": message_id})

    async def export_session(
        self,
        session_id: str,
        format: Literal["json", "markdown"] = "json",
        *,
        versions: bool = False,
    ) -> bytes:
        """Export a session as a file. Only JSON can be imported again, and can have versions."""
        path = _path("sessions", session_id, "export")
        params: dict[str, str] = {"format": format}
        if versions:
            params["versions"] = "true"
        response = await self._request("GET", path, params=params)
        return response.content

    async def import_sessions(self, data: bytes) -> ImportedSessions:
        """Import a file from this server, ChatGPT, Claude, LibreChat or Open WebUI.

        ``data`` is JSON or a ZIP file. Stores all sessions under new IDs, or none. The
        ``warnings`` of the result describe what was left out.
        """
        media_type = "application/zip" if data.startswith(b"PK") else "application/json"
        headers = {"Content-Type": media_type}
        request = {"content": data, "headers": headers, "read_seconds": None}
        body = await self._send("POST", "/sessions/import", **request)
        return ImportedSessions(body["sessions"], body["warnings"])

    async def delete_session(self, session_id: str) -> None:
        """Stop the running turn of a session, if any, and delete the session."""
        await self._request("DELETE", _path("sessions", session_id))

    async def chat(
        self,
        session_id: str,
        message: str | None = None,
        *,
        wait_for_confirmation: bool = False,
        on_confirm: OnConfirm | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[TurnOptions],
    ) -> Json:
        """Send a message and return the complete answer.

        Without a message, regenerate the last answer.

        Tool calls that need approval are denied, unless ``on_confirm`` approves them, or
        ``wait_for_confirmation`` is set and a client approves them. ``on_confirm`` is described at
        ``stream``.
        """
        key = idempotency_key or uuid.uuid4().hex
        # The stream shows which calls to decide; the request below returns its answer.
        if on_confirm is not None:
            open_stream = partial(
                self.stream,
                session_id,
                message,
                on_confirm=on_confirm,
                idempotency_key=key,
                **options,
            )
            failure = await _failure_of(open_stream())
            if failure is not None and failure.code in _LOST:
                failure = await _failure_of(open_stream())
            if failure is not None:  # the request below would start the turn again
                raise streams.error_of(failure)
        waits = wait_for_confirmation or on_confirm is not None
        body = {**_turn_body(message, options), "wait_for_confirmation": waits}
        headers = {"Idempotency-Key": key}
        return await self._send(
            "POST", _path("chat", session_id), json=body, headers=headers, read_seconds=None
        )

    def stream(
        self,
        session_id: str,
        message: str | None = None,
        *,
        on_confirm: OnConfirm | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[TurnOptions],
    ) -> AsyncStream:
        """Send a message and iterate over the events of the answer. The last event is ``Done``.

        The message is sent when the iteration begins. After a lost connection, the client resumes
        the stream without losing or repeating events.

        ``on_confirm`` is a function or coroutine function that approves or denies tool calls. It
        receives each event that requires approval, and returns True, False or a ``Decision``. A
        plain function runs in a thread. A decision after the approval timeout or the end of the
        turn has no effect.
        """
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        request = {"method": "POST", "json": _turn_body(message, options), "headers": headers}
        return self._open_stream(session_id, on_confirm, first_request=request)

    def listen(
        self, session_id: str, after: str | None = None, *, on_confirm: OnConfirm | None = None
    ) -> AsyncStream:
        """Iterate over the events of the running or latest turn, from its first event or after the
        event ``after``.

        ``after`` is the ``last_event_id`` of a stream. A ``Snapshot`` replaces events that the
        server no longer has. If the session has no recent turn, there are no events. ``on_confirm``
        is described at ``stream``.
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
    ) -> Json:
        """Approve or deny a tool call.

        ``call`` is the event that requires approval, or its ``confirmation_id``.

        If ``arguments`` is not None, they replace the arguments that the model has chosen. The
        model receives ``reason`` in the result of the call. ``remember="session"`` also approves
        later calls of the tool in the session. The error is ``CONFIRMATION_RESOLVED`` if the call
        was already decided.
        """
        confirmation_id = call if isinstance(call, str) else call.confirmation_id
        body = {"confirmation_id": confirmation_id, "approved": approved, "remember": remember}
        body |= _without_none(arguments=arguments, reason=reason)
        return await self._send("POST", _path("chat", session_id, "confirm-tool"), json=body)

    async def list_confirmations(self, session_id: str) -> list[Json]:
        """List the tool calls that wait for approval, oldest first."""
        return await self._list("confirmations", "GET", _path("chat", session_id, "confirmations"))

    async def compare(
        self,
        models: Sequence[str],
        message: str,
        *,
        system_prompt: str | None = None,
        history: Sequence[dict[str, str]] | None = None,
        think: bool | str | None = None,
        options: dict[str, Any] | None = None,
    ) -> list[Json]:
        """Send one message to one to three models, and return their answers in the order of
        ``models``.

        ``history`` contains earlier messages with the keys ``role`` and ``content``. The server
        stores nothing. An answer has the keys ``model``, ``response``, ``error``, ``input_tokens``,
        ``output_tokens``, ``first_token_ms``, ``total_ms`` and ``tokens_per_second``. If the model
        failed, ``response`` is None, and ``error`` is the reason.
        """
        body = {"modelIds": list(models), "message": message}
        body |= _without_none(
            systemPrompt=system_prompt, chatHistory=history, think=think, options=options
        )
        response = await self._request("POST", "/models/test", json=body, read_seconds=None)
        answers = []
        for _, event in streams.Parser().feed(response.content):
            if isinstance(event, streams.UnknownEvent) and event.type in _ANSWERS:
                data = event.data
                answers.append({name: data.get(key) for name, key in _COMPARED_FIELDS.items()})
        return answers

    async def stop(self, session_id: str) -> Json:
        """Stop the turn and store its partial answer, or deny its call that waits for approval.

        If the turn has ended, do nothing.
        """
        return await self._send("POST", _path("chat", session_id, "stop"))

    async def get_run(self, session_id: str) -> Json:
        """Get the state of the running or latest turn."""
        return await self._send("GET", _path("chat", session_id, "run"))

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _open_stream(
        self, session_id: str, on_confirm: OnConfirm | None, **start: Any
    ) -> AsyncStream:
        decide = partial(self._decide, session_id, on_confirm) if on_confirm else None
        url = _path("chat", session_id, "stream")
        return AsyncStream(self._http, url, self._delays, on_confirmation=decide, **start)

    async def _decide(
        self, session_id: str, on_confirm: OnConfirm, event: ToolConfirmationRequired
    ) -> None:
        decision = await anyio.to_thread.run_sync(on_confirm, event)
        if inspect.isawaitable(decision):
            decision = await decision
        try:
            await self.confirm(session_id, event, **_decision(decision))
        except ApiError as error:
            if error.code not in _TOO_LATE:
                raise

    async def _list(self, name: str, method: str, path: str, **request: Any) -> list[Json]:
        body = await self._send(method, path, **request)
        return cast("list[Json]", body[name])

    async def _send(self, method: str, path: str, **request: Any) -> Json:
        response = await self._request(method, path, **request)
        try:
            return cast("Json", response.json())
        except ValueError:  # for example an HTML page of another server
            raise streams.parse_error(response.status_code, response.content) from None

    async def _request(
        self, method: str, path: str, *, read_seconds: float | None = READ_SECONDS, **request: Any
    ) -> httpx.Response:
        # only the first decision about a call has an effect
        is_decision = path.endswith("/confirm-tool")
        has_key = "Idempotency-Key" in request.get("headers", {})
        is_repeatable = method == "GET" or is_decision or has_key
        backoff = Backoff(self._delays if is_repeatable else ())
        timeout = httpx.Timeout(READ_SECONDS, read=read_seconds)
        while True:
            try:
                response = await self._http.request(method, path, timeout=timeout, **request)
                if response.is_success:
                    return response
                raise streams.parse_error(response.status_code, response.content)
            except streams.RETRYABLE_ERRORS as error:
                await anyio.sleep(backoff.delay_after(error))


def _blocking_stream(
    method: Callable[Concatenate[AsyncMochiClient, P], AsyncStream],
) -> Callable[Concatenate["MochiClient", P], Stream]:
    @wraps(method)
    def stream(self: "MochiClient", /, *args: P.args, **kwargs: P.kwargs) -> Stream:
        return Stream(method(self._client, *args, **kwargs), owner=self)

    return stream


class MochiClient(BlockingClient[AsyncMochiClient]):
    """Synchronous version of ``AsyncMochiClient``, with the same arguments.

    Threads can share a client.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        delays: Sequence[float] = DELAYS,
    ) -> None:
        super().__init__(AsyncMochiClient(url, api_key=api_key, delays=delays))

    list_models = blocking(AsyncMochiClient.list_models)
    get_usage = blocking(AsyncMochiClient.get_usage)
    get_model = blocking(AsyncMochiClient.get_model)
    list_tools = blocking(AsyncMochiClient.list_tools)
    list_mcp_servers = blocking(AsyncMochiClient.list_mcp_servers)
    authorize_mcp_server = blocking(AsyncMochiClient.authorize_mcp_server)
    forget_mcp_authorization = blocking(AsyncMochiClient.forget_mcp_authorization)
    get_tool = blocking(AsyncMochiClient.get_tool)
    reload_tools = blocking(AsyncMochiClient.reload_tools)
    list_executions = blocking(AsyncMochiClient.list_executions)
    list_agents = blocking(AsyncMochiClient.list_agents)
    get_agent = blocking(AsyncMochiClient.get_agent)
    reload_agents = blocking(AsyncMochiClient.reload_agents)
    list_agent_chats = blocking(AsyncMochiClient.list_agent_chats)
    get_agent_chat = blocking(AsyncMochiClient.get_agent_chat)
    list_prompts = blocking(AsyncMochiClient.list_prompts)
    get_prompt = blocking(AsyncMochiClient.get_prompt)
    create_prompt = blocking(AsyncMochiClient.create_prompt)
    update_prompt = blocking(AsyncMochiClient.update_prompt)
    delete_prompt = blocking(AsyncMochiClient.delete_prompt)
    list_hosts = blocking(AsyncMochiClient.list_hosts)
    get_health = blocking(AsyncMochiClient.get_health)
    create_session = blocking(AsyncMochiClient.create_session)
    list_sessions = blocking(AsyncMochiClient.list_sessions)
    list_tags = blocking(AsyncMochiClient.list_tags)
    get_session = blocking(AsyncMochiClient.get_session)
    get_status = blocking(AsyncMochiClient.get_status)
    list_messages = blocking(AsyncMochiClient.list_messages)
    get_image = blocking(AsyncMochiClient.get_image)
    get_file = blocking(AsyncMochiClient.get_file)
    set_system_prompt = blocking(AsyncMochiClient.set_system_prompt)
    remove_system_prompt = blocking(AsyncMochiClient.remove_system_prompt)
    summarize_session = blocking(AsyncMochiClient.summarize_session)
    get_summary = blocking(AsyncMochiClient.get_summary)
    update_session = blocking(AsyncMochiClient.update_session)
    edit_message = blocking(AsyncMochiClient.edit_message)
    set_title = blocking(AsyncMochiClient.set_title)
    fork_session = blocking(AsyncMochiClient.fork_session)
    list_versions = blocking(AsyncMochiClient.list_versions)
    select_version = blocking(AsyncMochiClient.select_version)
    delete_versions = blocking(AsyncMochiClient.delete_versions)
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


async def _failure_of(stream: AsyncStream) -> TurnError | None:
    """Read a stream to its end. Return the error of its turn, if any."""
    failure: TurnError | None = None
    async with stream:
        async for event in stream:
            if isinstance(event, TurnError):
                failure = event
    return failure


def _decision(value: object) -> Decision:
    """Return the decision that a callback returned.

    Raises ``TypeError`` if the value is invalid.
    """
    decision = {"approved": value} if isinstance(value, bool) else value
    known = Decision.__annotations__.keys()
    if isinstance(decision, dict) and "approved" in decision and decision.keys() <= known:
        return cast(Decision, decision)
    text = (
        "on_confirm must return True, False or a dictionary such as {'approved': False, "
        "'reason': 'Not now.'}"
    )
    raise TypeError(f"{text}. It returned {value!r}.")


def _turn_body(message: str | None, options: TurnOptions) -> dict[str, Any]:
    body = {"on_disconnect": "continue", **options, **_without_none(message=message)}
    images = options.get("images")
    if images:
        body["images"] = [_encoded_image(image) for image in images]
    attachments = options.get("attachments")
    if attachments:
        body["attachments"] = [_encoded_file(attachment) for attachment in attachments]
    return body


def _encoded_file(attachment: os.PathLike[str] | AttachedFile) -> Json:
    if isinstance(attachment, os.PathLike):
        path = Path(attachment)
        return {"name": path.name, "data": b64encode(path.read_bytes()).decode()}
    data = attachment["data"]
    encoded = data if isinstance(data, str) else b64encode(data).decode()
    return {**attachment, "data": encoded}


def _encoded_image(image: Picture) -> str:
    if isinstance(image, str):
        return image
    data = image if isinstance(image, bytes) else Path(image).read_bytes()
    return b64encode(data).decode()


def _without_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _path(resource: str, *steps: str) -> str:
    quoted = [quote(step, safe="") for step in steps]
    return "/".join(["", resource, *quoted])
