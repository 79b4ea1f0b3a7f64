"""Request payloads for Ollama, and parsers of its responses: answers, and the lists of models."""

import os
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import AwareDatetime, TypeAdapter, ValidationError

from mochi_server.errors import OllamaError
from mochi_server.ollama.types import (
    ChatMessage,
    ChatResponse,
    Encoded,
    ModelDetails,
    ModelInfo,
    ReceivedMessage,
)
from mochi_server.util.net import full_url, is_loopback

_COUNTERS = [
    field.name for field in fields(ChatResponse) if field.name.endswith(("_count", "_duration"))
]
_TIME = TypeAdapter(AwareDatetime)

ModelKey = tuple[
    str, str
]  # name and digest of a model. Some servers send the same digest for all models, or none


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of Ollama.

    ``url`` has no trailing slash, and no credentials because error messages show the URL.
    """

    url: str
    headers: dict[str, str]
    # whether to use the proxies from environment variables. False if Ollama is on this machine
    use_proxy: bool


def parse_endpoint(host: str) -> Endpoint:
    """Parse an address in the format of ``OLLAMA_HOST``.

    Without credentials, it gets the key ``OLLAMA_API_KEY``.
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
    """Return a request body for ``/api/chat``, without the parameters that are None.

    ``context_window`` is the option ``num_ctx``, in tokens. ``logprobs`` is the number of
    alternatives to each token.
    """
    options = dict(options or {})
    if context_window is not None:
        options["num_ctx"] = context_window
    optional = {"tools": tools or None, "think": think, "format": format, "keep_alive": keep_alive}
    # Without ``truncate: false``, Ollama would truncate a long prompt silently.
    payload: dict[str, Any] = {
        "model": model,
        "messages": messages,
        "stream": True,
        "truncate": False,
    }
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
        message=ReceivedMessage(
            message if isinstance(message, dict) else {"role": "assistant", "content": ""}
        ),
        done=bool(line.get("done")),
        done_reason=line.get("done_reason"),
        **counters,
    )


def merge_chunks(chunks: Sequence[ChatResponse]) -> ChatResponse:
    """Merge the chunks of a stream: texts and tool calls are joined.

    Other fields come from the last chunk.

    Raises ``OllamaError`` if a field has another type.
    """
    try:
        content = "".join(chunk.message.get("content") or "" for chunk in chunks)
        thinking = "".join(chunk.message.get("thinking") or "" for chunk in chunks)
        calls = [call for chunk in chunks for call in chunk.message.get("tool_calls") or ()]
    except TypeError as error:
        raise OllamaError(
            "Ollama sent a message whose text or tool calls have the wrong type."
        ) from error
    message = ReceivedMessage(role="assistant", content=content)
    if thinking:
        message["thinking"] = thinking
    if calls:
        message["tool_calls"] = calls
    return replace(chunks[-1], message=message)


@lru_cache(maxsize=1024)
def qualified_name(name: str) -> str:
    """Return a model name in lower case with its tag (by default ``:latest``), so that names can be
    compared.
    """
    name = name.lower()
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def read_tags(body: object) -> dict[ModelKey, ModelInfo]:
    """Return the models in a response of ``/api/tags``, in the same order."""
    entries = _mapping(body).get("models")
    if not isinstance(entries, list):
        raise OllamaError("Ollama returned a model list that is not a JSON array.")
    return {(_name(entry), str(entry.get("digest"))): _read_tag(entry) for entry in entries}


def lacks_details(model: ModelInfo) -> bool:
    """Return whether ``/api/tags`` may have listed a model's capabilities or context length
    incompletely.
    """
    return not (set(model.capabilities) > {"completion"} and model.context_length)


def with_details(model: ModelInfo, details: ModelDetails | None) -> ModelInfo:
    """Return a model with its details from ``/api/show``."""
    if details is None:
        return model
    return replace(
        model,
        capabilities=details.capabilities or model.capabilities,
        context_length=details.context_length or model.context_length,
        num_ctx=details.num_ctx,
    )


def read_show(body: object) -> ModelDetails:
    """Parse a response of ``/api/show``.

    If Ollama is too old to list capabilities, assume that the model can chat.
    """
    if not isinstance(body, Mapping):
        raise OllamaError("Ollama returned model details that are not a JSON object.")
    info = _mapping(body.get("model_info"))
    lengths = [info.get(f"{info.get('general.architecture')}.context_length")]
    lengths += [value for key, value in info.items() if key.endswith(".context_length")]
    window = re.search(r"^num_ctx +(\d+)\s*$", str(body.get("parameters") or ""), re.MULTILINE)
    return ModelDetails(
        capabilities=list(body.get("capabilities", ["completion"])),
        context_length=next(filter(None, lengths), None),
        num_ctx=int(window[1]) if window else None,
        raw=dict(body),
    )


def read_loaded(body: object) -> dict[str, int]:
    """Return the context lengths in a response of ``/api/ps``, keyed by model name with tag.

    Unknown lengths are 0.
    """
    entries = _mapping(body).get("models") or ()
    return {qualified_name(_name(entry)): entry.get("context_length") or 0 for entry in entries}


def _read_tag(entry: Mapping[str, Any]) -> ModelInfo:
    details = _mapping(entry.get("details"))
    names = ("format", "family", "parameter_size", "quantization_level")
    texts: dict[str, Any] = {name: str(details.get(name) or "") for name in names}
    return ModelInfo(
        name=_name(entry),
        size_mb=round((entry.get("size") or 0) / 1024**2, 1),
        **texts,
        capabilities=list(entry.get("capabilities") or ()),
        context_length=details.get("context_length") or None,
        remote_host=entry.get("remote_host") or None,
        modified=_timestamp(entry.get("modified_at")),
    )


def _timestamp(value: object) -> int:
    try:
        return int(_TIME.validate_python(value).timestamp())
    except ValidationError:
        return 0


def _name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("name") or entry.get("model") or "")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
