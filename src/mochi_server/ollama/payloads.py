"""Request payloads for Ollama, and parsers of its responses: answers, and the lists of models."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mochi_server.errors import OllamaError
from mochi_server.ollama.types import (
    ChatMessage,
    ChatResponse,
    Encoded,
    ModelInfo,
    ReceivedMessage,
)

if TYPE_CHECKING:
    from ollama import ProcessResponse

    from mochi_server.ollama.library import ListedModel, ModelDetails, ModelList

_COUNTERS = [
    field.name for field in fields(ChatResponse) if field.name.endswith(("_count", "_duration"))
]

_DEFAULT_HOST = "registry.ollama.ai"
_DEFAULT_NAMESPACE = "library"

ModelKey = tuple[str, str]
"""Name and digest of a model. Some servers send the same digest for all models, or none."""


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
    if not isinstance(message, dict):
        message = {"role": "assistant", "content": ""}
    counters = {name: line.get(name) for name in _COUNTERS}
    return ChatResponse(
        model=str(line.get("model", "")),
        message=ReceivedMessage(message),
        done=bool(line.get("done")),
        done_reason=line.get("done_reason"),
        **counters,
    )


def merge_chunks(chunks: Sequence[ChatResponse]) -> ChatResponse:
    """Merge the chunks of a stream, at least one: texts and tool calls are joined.

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
    """Return a model name in lower case with its tag (by default ``:latest``) and without the
    default host and namespace, so that names can be compared.
    """
    parts = name.lower().split("/")
    if parts[:-2] == [_DEFAULT_HOST]:
        del parts[0]
    if parts[:-1] == [_DEFAULT_NAMESPACE]:
        del parts[0]
    short = "/".join(parts)
    return short if ":" in parts[-1] else f"{short}:latest"


def read_tags(listed: "ModelList") -> dict[ModelKey, ModelInfo]:
    """Return the models in a response of ``/api/tags``, in the same order."""
    models = {}
    for entry in listed.models:
        model = _read_tag(entry)
        models[model.name, str(entry.digest)] = model
    return models


def lacks_details(model: ModelInfo) -> bool:
    """Return whether ``/api/tags`` may have listed a model's capabilities or context length
    incompletely.

    It lists neither ``tools`` nor ``thinking`` if it has not read the template.
    """
    of_template = {"tools", "thinking"}.intersection(model.capabilities)
    return not (of_template and model.context_length)


def with_details(model: ModelInfo, details: "ModelDetails | None") -> ModelInfo:
    """Return a model with its details from ``/api/show``, or unchanged without details."""
    if details is None:
        return model
    return replace(
        model,
        capabilities=details.capabilities or model.capabilities,
        context_length=details.context_length or model.context_length,
        num_ctx=details.num_ctx,
    )


def read_loaded(loaded: "ProcessResponse") -> dict[str, int]:
    """Return the context lengths in a response of ``/api/ps``, keyed by ``qualified_name``.

    Unknown lengths are 0.
    """
    windows = {}
    for entry in loaded.models:
        name = qualified_name(entry.name or entry.model or "")
        windows[name] = entry.context_length or 0
    return windows


def find_by_name(
    models: Mapping[ModelKey, ModelInfo], name: str
) -> tuple[ModelKey, ModelInfo] | None:
    """Return the key and the model with a name, or None. A name without a tag is ``:latest``."""
    wanted = qualified_name(name)
    for key, model in models.items():
        if qualified_name(model.name) == wanted:
            return key, model
    return None


def _read_tag(entry: "ListedModel") -> ModelInfo:
    details = entry.details
    return ModelInfo(
        name=entry.name or entry.model or "",
        size_mb=round((entry.size or 0) / 1024**2, 1),
        format=(details and details.format) or "",
        family=(details and details.family) or "",
        parameter_size=(details and details.parameter_size) or "",
        quantization_level=(details and details.quantization_level) or "",
        capabilities=entry.capabilities or [],
        context_length=(details and details.context_length) or None,
        remote_host=entry.remote_host or None,
        modified=int(entry.modified_at.timestamp()) if entry.modified_at else 0,
    )
