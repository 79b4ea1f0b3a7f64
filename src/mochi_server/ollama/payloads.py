"""Payloads for Ollama, and the values that its responses become. Sends nothing."""

import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from mochi_server.ollama.types import ChatMessage, ChatResponse, Encoded, ReceivedMessage
from mochi_server.util.net import full_url, is_loopback

_COUNTERS = [field.name for field in fields(ChatResponse) if field.name.endswith(("_count", "_duration"))]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where Ollama is. ``url`` has no credentials and no trailing slash and may be shown to anyone."""

    url: str
    headers: dict[str, str]
    use_proxy: bool
    """Whether the environment's proxies apply; never for this machine."""


def parse_endpoint(host: str) -> Endpoint:
    """Read ``OLLAMA_HOST``-style values: scheme and port optional, credentials and a path prefix allowed.

    ``OLLAMA_API_KEY`` of the environment is sent as a bearer token unless the URL has credentials.
    """
    parts = urlsplit(full_url(host))
    headers = {}
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + b64encode(credentials.encode()).decode()
    elif key := os.environ.get("OLLAMA_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    address = parts.netloc.rpartition("@")[2]
    url = urlunsplit((parts.scheme, address, parts.path.rstrip("/"), "", ""))
    return Endpoint(url, headers, use_proxy=not is_loopback(parts.hostname or ""))


def chat_payload(
    model: str,
    messages: Sequence[ChatMessage] | Sequence[ChatMessage | Encoded],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    think: bool | str | None = None,
    context_window: int | None = None,
    options: Mapping[str, Any] | None = None,
    format: str | Mapping[str, Any] | None = None,
    keep_alive: str | float | None = None,
    stream: bool = True,
) -> dict[str, Any]:
    """The body of ``/api/chat``. ``context_window`` (tokens) becomes ``num_ctx``; what is None is not sent.

    ``truncate: false`` makes Ollama refuse a prompt that is too long, where it would cut it silently.
    """
    options = dict(options or {})
    if context_window is not None:
        options["num_ctx"] = context_window
    optional = {"tools": tools or None, "think": think, "format": format, "keep_alive": keep_alive}
    payload: dict[str, Any] = {"model": model, "messages": messages, "stream": stream, "truncate": False}
    payload |= {name: value for name, value in optional.items() if value is not None}
    if options:
        payload["options"] = options
    return payload


def read_response(line: Mapping[str, Any]) -> ChatResponse:
    """A parsed line of a chat answer as a value."""
    message = line.get("message")
    counters = {name: line.get(name) for name in _COUNTERS}
    return ChatResponse(
        model=str(line.get("model", "")),
        message=ReceivedMessage(message if isinstance(message, dict) else {"role": "assistant", "content": ""}),
        done=bool(line.get("done")),
        done_reason=line.get("done_reason"),
        **counters,
    )


def merge_chunks(pieces: Sequence[ChatResponse]) -> ChatResponse:
    """The pieces of a stream as one answer: texts joined, tool calls gathered, the rest from the last piece."""
    content = "".join(p.message.get("content") or "" for p in pieces)
    message = ReceivedMessage(role="assistant", content=content)
    if thinking := "".join(p.message.get("thinking") or "" for p in pieces):
        message["thinking"] = thinking
    if calls := [call for p in pieces for call in p.message.get("tool_calls") or ()]:
        message["tool_calls"] = calls
    return replace(pieces[-1], message=message)


def qualified_name(name: str) -> str:
    """A model's name with its tag, in lower case: the form in which two names can be compared."""
    name = name.strip().lower()
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"
