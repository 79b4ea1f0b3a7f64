"""What is sent to Ollama and how its answers are read: pure functions, shared by both clients."""

import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from mochi_server.addresses import full_url
from mochi_server.ollama.types import ChatMessage, ChatResponse, Encoded, ModelDetails, ModelInfo, ReceivedMessage

MEBIBYTE = 1024 * 1024
_COUNTERS = (
    "total_duration",
    "load_duration",
    "prompt_eval_count",
    "prompt_eval_duration",
    "eval_count",
    "eval_duration",
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where Ollama is. ``url`` has no credentials and no trailing slash and may be shown to anyone."""

    url: str
    headers: dict[str, str]
    use_proxy: bool
    """Whether the environment's proxies apply; never for this machine."""


def endpoint(host: str) -> Endpoint:
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


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost" or host.lower().endswith(".localhost")


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


def merge(pieces: Sequence[ChatResponse]) -> ChatResponse:
    """The pieces of a stream as one answer: texts joined, tool calls gathered, the rest from the last piece."""
    content = "".join(p.message.get("content") or "" for p in pieces)
    message = ReceivedMessage(role="assistant", content=content)
    if thinking := "".join(p.message.get("thinking") or "" for p in pieces):
        message["thinking"] = thinking
    if calls := [call for p in pieces for call in p.message.get("tool_calls") or ()]:
        message["tool_calls"] = calls
    return replace(pieces[-1], message=message)


def qualified(name: str) -> str:
    """A model's name with its tag, in lower case: the form in which two names can be compared."""
    name = name.strip().lower()
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def name_of(entry: Mapping[str, Any]) -> str:
    """The name of a model in one of Ollama's lists."""
    return str(entry.get("name") or entry.get("model") or "")


def read_tag(entry: Mapping[str, Any]) -> tuple[ModelInfo, bool]:
    """A model of ``/api/tags``, and whether the entry says all about it.

    Older servers name no capabilities there; newer ones name just "completion" for models whose other
    capabilities only their own template shows, and for embedders.
    """
    details = _mapping(entry.get("details"))
    info = ModelInfo(
        name=name_of(entry),
        size_mb=round(_number(entry.get("size")) / MEBIBYTE, 1),
        format=str(details.get("format") or ""),
        family=str(details.get("family") or ""),
        parameter_size=str(details.get("parameter_size") or ""),
        quantization_level=str(details.get("quantization_level") or ""),
        capabilities=_strings(entry.get("capabilities")),
        context_length=_positive(details.get("context_length")),
        remote_host=entry.get("remote_host") or None,
    )
    return info, set(info.capabilities) > {"completion"} and info.context_length is not None


def read_show(body: Mapping[str, Any]) -> ModelDetails:
    """The answer of ``/api/show``."""
    info = _mapping(body.get("model_info"))
    family = info.get("general.architecture")
    length = _positive(info.get(f"{family}.context_length"))
    if length is None:
        length = next(
            (n for key, value in info.items() if key.endswith(".context_length") and (n := _positive(value))), None
        )
    return ModelDetails(
        _strings(body.get("capabilities")), length, _modelfile_window(body.get("parameters")), dict(body)
    )


def read_loaded(body: object) -> dict[str, int]:
    """``/api/ps``: qualified name → context length; older servers do not tell it."""
    entries = _mapping(body).get("models")
    return {
        qualified(name_of(entry)): length
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, Mapping) and (length := _positive(entry.get("context_length"))) is not None
    }


def with_details(info: ModelInfo, details: ModelDetails) -> ModelInfo:
    """A listed model with what ``/api/show`` knows better."""
    return replace(
        info,
        capabilities=details.capabilities or info.capabilities,
        context_length=details.context_length or info.context_length,
        num_ctx=details.num_ctx,
    )


def _modelfile_window(parameters: object) -> int | None:
    """``num_ctx`` of the Modelfile; ``parameters`` are lines of a name, blanks and a value."""
    for line in str(parameters or "").splitlines():
        name, _, value = line.partition(" ")
        if name == "num_ctx" and value.strip().isdigit():
            return int(value)
    return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _strings(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0


def _positive(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and value > 0 else None
