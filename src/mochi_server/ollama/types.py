"""Types of messages, models and responses of Ollama."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import orjson

_CLOUD_NAME = re.compile(r":([^:/]*-)?cloud$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """An installed model. ``size_mb`` is in MiB; ``context_length`` is in tokens."""

    name: str
    size_mb: float
    format: str = ""
    family: str = ""
    parameter_size: str = ""
    quantization_level: str = ""
    capabilities: Sequence[str] = field(default_factory=list)
    context_length: int | None = None
    num_ctx: int | None = None  # context window that the model's Modelfile sets, in tokens
    remote_host: str | None = None
    modified: int = 0  # time of the last change, in seconds since 1970, or 0 if it is unknown
    hosts: Sequence[str] = ()  # names of the hosts that have the model, in a list of several hosts

    def has_capability(self, capability: str) -> bool:
        """Return whether the model has a capability, such as "tools", "thinking" or "vision"."""
        return capability in self.capabilities

    @property
    def is_cloud(self) -> bool:
        """Whether Ollama forwards the requests to another host, and never loads the model into its
        own memory.
        """
        return self.remote_host is not None or _CLOUD_NAME.search(self.name) is not None


Encoded = orjson.Fragment
"""Messages that are already encoded as JSON, separated by commas. orjson inserts them unchanged."""


class ChatMessage(TypedDict, total=False):
    """A message for ``/api/chat``. ``role`` and ``content`` are required; ``images`` are base64."""

    role: str
    content: str
    thinking: str
    images: list[str]
    attachments: list[Any]  # of the server, which sends the text of these files instead
    tool_calls: list[dict[str, Any]]
    tool_name: str
    tool_call_id: str


class ReceivedMessage(dict[str, Any]):
    """A message of a model: a ``ChatMessage`` whose fields are also attributes.

    Missing fields are None.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in ChatMessage.__annotations__:
            raise AttributeError(f"messages have no field {name!r}")
        return self.get(name)


@dataclass(frozen=True, slots=True)
class ChatResponse:
    """One chunk of an answer, or a whole answer.

    The last chunk and a whole answer have token counts, and durations in nanoseconds.

    Fields are also items, as in Ollama's own library: ``response["message"]`` is
    ``response.message``.
    """

    message: ReceivedMessage
    model: str = ""
    done: bool = False
    done_reason: str | None = None
    total_duration: int | None = None
    load_duration: int | None = None
    prompt_eval_count: int | None = None
    prompt_eval_cached_count: int | None = None
    prompt_eval_duration: int | None = None
    eval_count: int | None = None
    eval_duration: int | None = None

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None
