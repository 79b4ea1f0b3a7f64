"""Request payloads for Ollama, and parsers of its responses."""

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
    """Address of Ollama. ``url`` has no trailing slash, and no credentials because error messages show the URL."""

    url: str
    headers: dict[str, str]
    use_proxy: bool
    """Whether to use the proxies from environment variables. False if Ollama is on this machine."""


def parse_endpoint(host: str) -> Endpoint:
    """Parse an address in the format of ``OLLAMA_HOST``. Only the host is required.

    The environment variable ``OLLAMA_API_KEY`` is sent as a bearer token unless the URL has credentials.
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
    logprobs: int | None = None,
) -> dict[str, Any]:
    """Return a request body for ``/api/chat``. The body does not contain parameters that are None.

    ``context_window`` is sent as the option ``num_ctx``, in tokens. If ``logprobs`` is a number, the answer contains
    the log probability of each token, and of this number of alternatives to each token.

    The body contains ``truncate: false``, because Ollama would otherwise truncate a long prompt silently.
    """
    options = dict(options or {})
    if context_window is not None:
        options["num_ctx"] = context_window
    optional = {"tools": tools or None, "think": think, "format": format, "keep_alive": keep_alive}
    payload: dict[str, Any] = {"model": model, "messages": messages, "stream": True, "truncate": False}
    payload |= {name: value for name, value in optional.items() if value is not None}
    if options:
        payload["options"] = options
    if logprobs is not None:
        payload |= {"logprobs": True, "top_logprobs": logprobs}
    return payload


def read_response(line: Mapping[str, Any]) -> ChatResponse:
    """Convert a parsed line of a chat answer to a ``ChatResponse``."""
    message = line.get("message")
    counters = {name: line.get(name) for name in _COUNTERS}
    return ChatResponse(
        model=str(line.get("model", "")),
        message=ReceivedMessage(message if isinstance(message, dict) else {"role": "assistant", "content": ""}),
        done=bool(line.get("done")),
        done_reason=line.get("done_reason"),
        **counters,
    )


def merge_chunks(chunks: Sequence[ChatResponse]) -> ChatResponse:
    """Merge the chunks of a stream: texts and tool calls are joined. Other fields come from the last chunk."""
    content = "".join(chunk.message.get("content") or "" for chunk in chunks)
    message = ReceivedMessage(role="assistant", content=content)
    if thinking := "".join(chunk.message.get("thinking") or "" for chunk in chunks):
        message["thinking"] = thinking
    if calls := [call for chunk in chunks for call in chunk.message.get("tool_calls") or ()]:
        message["tool_calls"] = calls
    return replace(chunks[-1], message=message)


def qualified_name(name: str) -> str:
    """Return a model name in lower case with its tag (by default ``:latest``), so that names can be compared."""
    name = name.lower()
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"
