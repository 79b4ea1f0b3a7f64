"""Request that the gateway sends to a model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mochi_server.inference.allocation import Allocation
from mochi_server.inference.prompt import FixedPrompt, PromptSource
from mochi_server.inference.slots import Exchange


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
        options, limit = dict(self.payload.get("options") or {}), None
        if self.limits_answer:
            limit = self.allocation.answer_limit(prompt.size, options.get("num_predict"))
            options |= {} if limit is None else {"num_predict": limit}
        if self.allocation.size is not None:
            options["num_ctx"] = self.allocation.size
        optional = {"format": prompt.format, "options": options or None}
        body = {**self.payload, "messages": prompt.messages}
        return body | {name: value for name, value in optional.items() if value is not None}, limit

    def can_grow(self, tokens: int) -> bool:
        """Return whether a larger window can help after a prompt of ``tokens`` tokens was refused.

        If not, Ollama must not reload the model.
        """
        length = self.allocation.model.context_length
        return length is None or tokens < length or not isinstance(self.prompt, FixedPrompt)
