"""Requests that the gateway sends to a model, their prompts and the figures of their answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from mochi_server.inference.estimate import PromptSize
from mochi_server.inference.slots import Exchange
from mochi_server.inference.windows import Allocation
from mochi_server.ollama.types import ChatMessage, Encoded


class PromptSource(Protocol):
    """Source of a prompt, and the way to shorten it."""

    @property
    def size(self) -> PromptSize:
        """Size of the prompt before it is shortened."""

    async def fit(self, window: int | None, refused: int | None) -> "FixedPrompt | None":
        """Return a prompt for a window of ``window`` tokens.

        If ``refused`` is not None, Ollama refused the previous prompt, which had ``refused`` tokens. The new prompt
        must be shorter. If that is impossible, return None or raise an error.
        """


@dataclass(frozen=True, slots=True)
class FixedPrompt:
    """Messages with their size. They cannot be shortened."""

    messages: Sequence[ChatMessage | Encoded]
    size: PromptSize

    async def fit(self, window: int | None, refused: int | None) -> "FixedPrompt | None":  # noqa: ARG002 - a protocol
        return self if refused is None else None

    def extended(self, messages: Sequence[ChatMessage]) -> "FixedPrompt":
        """Return this prompt followed by more messages."""
        return replace(self, messages=[*self.messages, *messages], size=self.size + PromptSize.of(messages))


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """Request to a model."""

    allocation: Allocation
    payload: Mapping[str, Any]
    """Body of the request. The gateway adds the prompt and the window."""
    prompt: PromptSource
    limits_answer: bool = True
    """Whether the answer must end where the window ends."""
    exchange: Callable[[Mapping[str, Any], int], Exchange] | None = None
    """Function that describes the content of the slot after the answer, given the body and the number of tokens."""
    report: Callable[[str], None] | None = None
    """Callback that receives the status of a waiting request: queued, loading_model or processing_prompt."""

    def body(self, prompt: FixedPrompt) -> tuple[dict[str, Any], int | None]:
        """Return the body for ``/api/chat``, and the limit of the answer in tokens if the window sets one."""
        options, limit, window = dict(self.payload.get("options") or {}), None, self.allocation.size
        if window is not None:
            options["num_ctx"] = window
            if self.limits_answer:
                limit = self.allocation.answer_limit(prompt.size, window, options.get("num_predict"))
                options |= {} if limit is None else {"num_predict": limit}
        return {**self.payload, "messages": prompt.messages, **({"options": options} if options else {})}, limit


@dataclass(frozen=True, slots=True)
class Answer:
    """Figures of a complete answer."""

    prompt: FixedPrompt
    """The prompt that was sent."""
    tokens: int
    """Number of tokens of the prompt and the answer: the estimate or Ollama's count, whichever is larger."""
    is_prompt_truncated: bool
    is_cut: bool
    """Whether the answer was cut at the end of the context window."""
