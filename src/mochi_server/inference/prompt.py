"""Prompts that the gateway sends, and the answers to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from mochi_server.inference.estimate import PromptSize
from mochi_server.ollama.types import ChatMessage, Encoded


class PromptSource(Protocol):
    """Source of a prompt, and the way to shorten it."""

    @property
    def size(self) -> PromptSize:
        """Size of the prompt before it is shortened."""

    async def fit(self, window: int | None, refused: int | None) -> "FixedPrompt | None":
        """Return a prompt for a window of ``window`` tokens, or None if it cannot be shortened.

        If ``refused`` is not None, Ollama refused the previous prompt, which had ``refused`` tokens. The new prompt
        must be shorter. The source may also raise an error if it cannot be shortened.
        """


@dataclass(frozen=True, slots=True)
class FixedPrompt:
    """Messages with their size. They cannot be shortened."""

    messages: Sequence[ChatMessage | Encoded]
    size: PromptSize
    format: Mapping[str, Any] | None = None
    """JSON schema of the answer, or None for the format of the request."""

    async def fit(self, window: int | None, refused: int | None) -> "FixedPrompt | None":  # noqa: ARG002 - a protocol
        return self if refused is None else None

    def extended(self, messages: Sequence[ChatMessage]) -> "FixedPrompt":
        """Return this prompt followed by more messages."""
        return replace(self, messages=[*self.messages, *messages], size=self.size + PromptSize.of(messages))


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
