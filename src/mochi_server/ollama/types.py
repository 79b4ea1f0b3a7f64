"""What Ollama's answers become: plain values, without behaviour."""

from dataclasses import dataclass, field
from typing import Any, TypedDict

import orjson


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """An installed model that can chat. ``size_mb`` is in units of 1024 * 1024 bytes, lengths are tokens."""

    name: str
    size_mb: float
    format: str = ""
    family: str = ""
    parameter_size: str = ""
    quantization_level: str = ""
    capabilities: tuple[str, ...] = ()
    context_length: int | None = None
    num_ctx: int | None = None
    """The window the model's own Modelfile asks for."""
    remote_host: str | None = None

    def can(self, capability: str) -> bool:
        """Whether the model has a capability ("tools", "thinking", "vision" ...)."""
        return capability in self.capabilities


Encoded = orjson.Fragment
"""Messages that are JSON already, with commas between them, and go as they are into what orjson makes of the rest."""


class ChatMessage(TypedDict, total=False):
    """A message as ``/api/chat`` takes it; ``role`` and ``content`` are required, ``images`` are base64."""

    role: str
    content: str
    thinking: str
    images: list[str]
    tool_calls: list[dict[str, Any]]
    tool_name: str
    tool_call_id: str


class ReceivedMessage(dict[str, Any]):
    """A message of a model: a ``ChatMessage`` whose fields are attributes as well, None where there are none."""

    def __getattr__(self, name: str) -> Any:
        if name not in ChatMessage.__annotations__:
            raise AttributeError(f"messages have no {name!r}")
        return self.get(name)


@dataclass(frozen=True, slots=True)
class ChatResponse:
    """One line of an answer, or a whole answer. Counters are tokens, durations nanoseconds, last line only.

    As with Ollama's own library, ``response["message"]`` is ``response.message``.
    """

    message: ReceivedMessage
    model: str = ""
    done: bool = False
    done_reason: str | None = None
    total_duration: int | None = None
    load_duration: int | None = None
    prompt_eval_count: int | None = None
    prompt_eval_duration: int | None = None
    eval_count: int | None = None
    eval_duration: int | None = None

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None


@dataclass(frozen=True, slots=True)
class ModelDetails:
    """What ``/api/show`` says, as far as we need it; ``raw`` is all of it."""

    capabilities: tuple[str, ...]
    context_length: int | None
    num_ctx: int | None
    raw: dict[str, Any] = field(repr=False, default_factory=dict)
