"""The operations of the API as requests, and how their responses are read. Nothing here sends anything."""

import os
import uuid
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote, urlsplit

import httpx
from typing_extensions import Unpack

from mochi_server.client.errors import error_of
from mochi_server.client.types import (
    ChatAnswer,
    Confirmation,
    Decided,
    Picture,
    RunStatus,
    Session,
    SessionDetail,
    SessionOptions,
    TurnOptions,
)
from mochi_server.constants import API_PREFIX
from mochi_server.events import ToolConfirmationRequired

T = TypeVar("T")
READ_SECONDS = 30
"""Timeout for the next byte. The server sends at least a comment every ten seconds."""


@dataclass(frozen=True)
class Request(Generic[T]):
    """An HTTP request. ``read`` turns the JSON of the response into the result."""

    method: str
    path: str
    read: Callable[[Any], T] = lambda body: body
    json: Mapping[str, Any] | None = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    read_seconds: float | None = READ_SECONDS
    is_file: bool = False
    """Whether the response is bytes instead of JSON."""

    @property
    def repeatable(self) -> bool:
        """Whether a repeated request after a lost connection has no further effect."""
        return self.method == "GET" or "Idempotency-Key" in self.headers

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for ``httpx``."""
        return {
            "method": self.method,
            "url": self.path,
            "json": self.json,
            "content": self.content,
            "headers": self.headers,
            "params": {name: value for name, value in self.params.items() if value is not None},
            "timeout": httpx.Timeout(READ_SECONDS, read=self.read_seconds),
        }

    def result(self, response: httpx.Response) -> T:
        """Read a complete response. Raises ``ClientError``."""
        if not response.is_success:
            raise error_of(response.status_code, response.content)
        if self.is_file:
            return self.read(response.content)
        try:
            return self.read(response.json() if response.content else None)
        except (ValueError, LookupError, TypeError) as error:  # perhaps an HTML page of another server
            raise error_of(response.status_code, response.content) from error


@dataclass(frozen=True)
class Subscription:
    """Events of a turn: the request that begins them, and the ID of the event after which they continue."""

    session_id: str
    request: Request[None]
    after: str | None = None


class Operations:
    """All operations of both clients, under the names of the methods that send them."""

    def create_session(self, model: str, **options: Unpack[SessionOptions]) -> Request[Session]:
        """Create a session. ``MODEL_NOT_FOUND`` when Ollama does not have the model."""
        return Request("POST", "/sessions", json={"model": model, **options})

    def list_sessions(
        self, q: str | None = None, *, limit: int | None = None, offset: int = 0
    ) -> Request[list[Session]]:
        """List sessions, the last changed first: all, or those whose title and messages contain every word of ``q``."""
        params = {"q": q, "limit": limit, "offset": offset or None}
        return Request("GET", "/sessions", lambda body: body["sessions"], params=params)

    def get_session(self, session_id: str) -> Request[SessionDetail]:
        """Get a session with its messages."""
        return Request("GET", _session(session_id))

    def set_title(self, session_id: str, title: str | None) -> Request[Session]:
        """Set the title of a session; None returns to the generated one."""
        return Request("PATCH", _session(session_id), json={"title": title})

    def fork_session(
        self, session_id: str, message_index: int | None = None, *, message_id: str | None = None
    ) -> Request[SessionDetail]:
        """Create a session with the messages up to one of this session, by default the last.

        ``INVALID_MESSAGE_INDEX`` when there is no such message, or when it is inside a round of tool calls.
        """
        body = _given(message_index=message_index, message_id=message_id)
        return Request("POST", f"{_session(session_id)}/fork", json=body)

    def export_session(self, session_id: str, format: Literal["json", "markdown"] = "json") -> Request[bytes]:
        """Export a session as a file: JSON, which can be imported, or Markdown."""
        return Request("GET", f"{_session(session_id)}/export", params={"format": format}, is_file=True)

    def import_sessions(self, data: bytes) -> Request[list[Session]]:
        """Store the sessions of an exported file, of this server or of Open WebUI, under new IDs: all or none."""
        return Request(
            "POST",
            "/sessions/import",
            lambda body: body["sessions"],
            content=data,
            headers={"Content-Type": "application/json"},
            read_seconds=None,
        )

    def delete_session(self, session_id: str) -> Request[None]:
        """Delete a session; a running turn is stopped first."""
        return Request("DELETE", _session(session_id))

    def chat(
        self,
        session_id: str,
        message: str | None = None,
        *,
        wait_for_confirmation: bool = False,
        idempotency_key: str | None = None,
        **options: Unpack[TurnOptions],
    ) -> Request[ChatAnswer]:
        """Send a message and return the complete answer. Without a message, regenerate the last answer.

        Tool calls that need approval are denied, unless ``wait_for_confirmation`` is set and a client approves them.
        """
        body = {**_turn(message, options), "wait_for_confirmation": wait_for_confirmation}
        return Request("POST", _chat(session_id), json=body, headers=_key(idempotency_key), read_seconds=None)

    def stream(
        self,
        session_id: str,
        message: str | None = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[TurnOptions],
    ) -> Subscription:
        """Send a message and iterate over the events of the answer, ``Done`` the last.

        The message is sent when the iteration begins. A stream resumes after a lost connection: no event is lost or
        repeated.
        """
        body, headers = _turn(message, options), _key(idempotency_key)
        return Subscription(session_id, Request("POST", f"{_chat(session_id)}/stream", json=body, headers=headers))

    def listen(self, session_id: str, after: str | None = None) -> Subscription:
        """Iterate over the events of the running or latest turn, from its beginning or after an event.

        ``after`` is the ``last_event_id`` of a stream. A ``Snapshot`` replaces events that the server no longer has.
        There are no events if there is no turn.
        """
        request: Request[None] = Request(
            "GET", f"{_chat(session_id)}/stream", headers=_given(**{"Last-Event-ID": after})
        )
        return Subscription(session_id, request, after)

    def confirm(
        self,
        session_id: str,
        call: str | ToolConfirmationRequired,
        approved: bool,
        *,
        arguments: dict[str, Any] | None = None,
        reason: str | None = None,
        remember: Literal["once", "session"] = "once",
    ) -> Request[Decided]:
        """Approve or deny a call. ``call`` is the event that requires approval, or its ``confirmation_id``.

        ``arguments`` replace those of the model, the model receives the ``reason``, ``remember="session"`` decides for
        all later calls of the tool in the session. ``CONFIRMATION_RESOLVED`` when the call was already decided.
        """
        confirmation_id = call if isinstance(call, str) else call.confirmation_id
        body = {"confirmation_id": confirmation_id, "approved": approved, "remember": remember}
        body |= _given(arguments=arguments, reason=reason)
        return Request("POST", f"{_chat(session_id)}/confirm-tool", json=body)

    def list_confirmations(self, session_id: str) -> Request[list[Confirmation]]:
        """List the calls that wait for approval, oldest first."""
        return Request("GET", f"{_chat(session_id)}/confirmations", lambda body: body["confirmations"])

    def stop(self, session_id: str) -> Request[RunStatus]:
        """Stop the running turn, if there is one, and keep its text."""
        return Request("POST", f"{_chat(session_id)}/stop")

    def get_run(self, session_id: str) -> Request[RunStatus]:
        """Get the state of the running or latest turn."""
        return Request("GET", f"{_chat(session_id)}/run")


OPERATIONS = Operations()


def settings(url: str, api_key: str | None) -> dict[str, Any]:
    """Return the arguments of an ``httpx`` client of a server. Raises ``ValueError`` for an invalid URL."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r} is not an http:// or https:// URL")
    return {
        "base_url": url.rstrip("/") + API_PREFIX,
        "headers": {"Authorization": f"Bearer {api_key}"} if api_key else {},
        "trust_env": urlsplit(url).hostname not in ("localhost", "127.0.0.1", "::1"),  # no proxy for this machine
        "limits": httpx.Limits(),  # each stream uses a connection until it ends
    }


def _turn(message: str | None, options: TurnOptions) -> dict[str, Any]:
    body = {"on_disconnect": "continue", **options, **_given(message=message)}
    if images := options.get("images"):
        body["images"] = [_encoded(image) for image in images]
    return body


def _encoded(image: Picture) -> str:
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
