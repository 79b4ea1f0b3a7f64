"""The requests of both clients, and how their answers are read. Pure: nothing here sends anything."""

import os
import uuid
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote, urlsplit

import httpx

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
"""Without a byte; the server sends at least a comment every ten seconds."""


@dataclass(frozen=True)
class Request(Generic[T]):
    """What to send; ``read`` makes of the answer's JSON what the caller gets."""

    method: str
    path: str
    read: Callable[[Any], T]
    json: dict[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    patient: bool = False
    """Whether the answer may take minutes."""
    file: bytes | None = None
    """A body that is JSON already."""
    is_file: bool = False
    """Whether the answer is read as it is, and not as JSON."""

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again after a lost connection, without being done twice."""
        return self.method == "GET" or bool(self.headers)

    def arguments(self) -> dict[str, Any]:
        """For ``httpx``."""
        given: dict[str, Any] = {"headers": self.headers, "params": self.params}
        if self.json is not None:
            given["json"] = self.json
        if self.file is not None:
            given |= {"content": self.file, "headers": {**self.headers, "Content-Type": "application/json"}}
        if self.patient:
            given["timeout"] = httpx.Timeout(READ_SECONDS, read=None)
        return given

    def result(self, response: httpx.Response) -> T:
        """What a whole answer says. Raises ``ClientError``."""
        if not response.is_success:
            raise error_of(response.status_code, response.content)
        if self.is_file:
            return self.read(response.content)
        try:
            return self.read(response.json() if response.content else None)
        except (ValueError, LookupError, TypeError) as error:  # a page perhaps, from something else
            raise error_of(response.status_code, response.content) from error


def settings(url: str, api_key: str | None) -> dict[str, Any]:
    """What an ``httpx`` client of a server is made with. This machine is reached without a proxy.

    Raises ``ValueError`` for what is no URL.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r} is not an http:// or https:// URL")
    local = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    base = url.rstrip("/") + API_PREFIX
    return {
        "base_url": base,
        "headers": headers,
        "timeout": READ_SECONDS,
        "trust_env": not local,
        "limits": httpx.Limits(),  # a stream has its connection until it ends, and every one more is wanted too
    }


def create_session(model: str, options: SessionOptions) -> Request[Session]:
    return Request("POST", "/sessions", _as_it_is, {"model": model, **options})


def list_sessions(q: str | None, limit: int | None, offset: int) -> Request[list[Session]]:
    given = {"q": q, "limit": limit, "offset": offset or None}
    params = {name: str(value) for name, value in given.items() if value is not None}
    return Request("GET", "/sessions", _sessions, params=params)


def get_session(session_id: str) -> Request[SessionDetail]:
    return Request("GET", f"/sessions/{_part(session_id)}", _as_it_is)


def set_title(session_id: str, title: str | None) -> Request[Session]:
    return Request("PATCH", f"/sessions/{_part(session_id)}", _as_it_is, {"title": title})


def fork_session(session_id: str, index: int | None, message_id: str | None) -> Request[SessionDetail]:
    given = {"message_index": index, "message_id": message_id}
    body = {name: value for name, value in given.items() if value is not None}
    return Request("POST", f"/sessions/{_part(session_id)}/fork", _as_it_is, body)


def export_session(session_id: str, form: Literal["json", "markdown"]) -> Request[bytes]:
    path = f"/sessions/{_part(session_id)}/export"
    return Request("GET", path, _as_it_is, params={"format": form}, is_file=True)


def import_sessions(data: bytes) -> Request[list[Session]]:
    return Request("POST", "/sessions/import", _sessions, file=data, patient=True)


def delete_session(session_id: str) -> Request[None]:
    return Request("DELETE", f"/sessions/{_part(session_id)}", _nothing)


def chat(
    session_id: str, message: str | None, wait: bool, key: str | None, options: TurnOptions
) -> Request[ChatAnswer]:
    body = _turn(message, options) | {"wait_for_confirmation": wait}
    return Request("POST", _chat(session_id), _as_it_is, body, _key(key), patient=True)


def stream(session_id: str, message: str | None, key: str | None, options: TurnOptions) -> Request[None]:
    return Request("POST", f"{_chat(session_id)}/stream", _nothing, _turn(message, options), _key(key))


def listen(session_id: str, after: str | None) -> Request[None]:
    headers = {} if after is None else {"Last-Event-ID": after}
    return Request("GET", f"{_chat(session_id)}/stream", _nothing, headers=headers)


def stop(session_id: str) -> Request[RunStatus]:
    return Request("POST", f"{_chat(session_id)}/stop", _as_it_is)


def get_run(session_id: str) -> Request[RunStatus]:
    return Request("GET", f"{_chat(session_id)}/run", _as_it_is)


def list_confirmations(session_id: str) -> Request[list[Confirmation]]:
    return Request("GET", f"{_chat(session_id)}/confirmations", lambda body: body["confirmations"])


def confirm(
    session_id: str,
    call: str | ToolConfirmationRequired,
    approved: bool,
    *,
    arguments: dict[str, Any] | None,
    reason: str | None,
    remember: Literal["once", "session"],
) -> Request[Decided]:
    confirmation_id = call if isinstance(call, str) else call.confirmation_id
    body = {"confirmation_id": confirmation_id, "approved": approved, "remember": remember}
    body |= {} if arguments is None else {"arguments": arguments}
    body |= {} if reason is None else {"reason": reason}
    return Request("POST", f"{_chat(session_id)}/confirm-tool", _as_it_is, body)


def _turn(message: str | None, options: TurnOptions) -> dict[str, Any]:
    said: dict[str, Any] = {} if message is None else {"message": message}
    if images := options.get("images"):
        said["images"] = [_encoded(image) for image in images]
    return {"on_disconnect": "continue", **options, **said}


def _encoded(image: Picture) -> str:
    """Base64. Raises OSError for a file that cannot be read."""
    data = Path(image).read_bytes() if isinstance(image, os.PathLike) else image
    return data if isinstance(data, str) else b64encode(data).decode()


def _key(key: str | None) -> dict[str, str]:
    """One for each message: sent again after a lost connection, it is not said twice."""
    return {"Idempotency-Key": key or uuid.uuid4().hex}


def _chat(session_id: str) -> str:
    return f"/chat/{_part(session_id)}"


def _part(text: str) -> str:
    return quote(text, safe="")


def _sessions(body: Any) -> Any:
    return body["sessions"]


def _as_it_is(body: Any) -> Any:
    return body


def _nothing(_: Any) -> None:
    return None
