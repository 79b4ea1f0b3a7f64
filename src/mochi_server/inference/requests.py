"""Requests to models and their prompts, as the callers of the gateway define them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mochi_server.inference.slots import Exchange
from mochi_server.inference.token_estimate import PromptSize
from mochi_server.inference.waiting import Report, Ticket
from mochi_server.inference.window_allocation import Allocation
from mochi_server.ollama.payloads import chat_payload
from mochi_server.ollama.types import ChatMessage, Encoded, ModelInfo


class PromptSource(Protocol):
    """Source of a prompt, and the way to shorten it."""

    @property
    def size(self) -> PromptSize:
        """Size of the prompt before it is shortened."""

    async def fit(self, refused_tokens: int | None) -> "FixedPrompt | None":
        """Return a prompt for the window.

        If one of ``refused_tokens`` was refused, return a shorter one. If that is impossible,
        return None or raise ``ContextOverflow``.
        """


@dataclass(frozen=True, slots=True)
class FixedPrompt:
    """Messages with their size. They cannot be shortened."""

    messages: Sequence[ChatMessage | Encoded]
    size: PromptSize

    async def fit(self, refused_tokens: int | None) -> "FixedPrompt | None":
        return self if refused_tokens is None else None

    def extended(self, answer: str, request: str) -> "FixedPrompt":
        """Return this prompt followed by an answer of the model and a request of the user."""
        more: list[ChatMessage] = [
            {"role": "assistant", "content": answer},
            {"role": "user", "content": request},
        ]
        return FixedPrompt([*self.messages, *more], self.size + PromptSize.of(more))


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """Request for an answer or embeddings of a model."""

    allocation: Allocation
    payload: Mapping[str, Any]  # body of the request, without the prompt and the window
    prompt: PromptSource
    limits_answer: bool = True  # whether the answer must end where the window ends
    # From the sent body, the size of the prompt, and the tokens of the prompt and the answer.
    exchange: Callable[[Mapping[str, Any], PromptSize, int], Exchange] | None = None
    # Receives `queued`, `loading_model`, `processing_prompt` or `failover`.
    report: Report | None = None
    # Called if the request omits `think`, because the model refuses it.
    thinking_refused: Callable[[], None] | None = None
    # Session whose prompt this is, or "" for a prompt that no later request continues.
    session_id: str = ""
    run_id: str = ""  # run of a session's turn that sends the request
    avoid: Sequence[str] = ()  # names of hosts that serve other parts of the same comparison
    ticket: Ticket = field(default_factory=Ticket)

    @property
    def model(self) -> str:
        """Name of the model, as the client has written it."""
        name: str = self.payload["model"]
        return name

    @property
    def tokens(self) -> int:
        """Estimated number of tokens of the prompt."""
        return self.allocation.estimate.tokens(self.prompt.size)

    def body(self, prompt: FixedPrompt) -> tuple[dict[str, Any], int | None]:
        """Return the body for ``/api/chat``, and the limit of the answer in tokens, or None unless
        the window sets one.
        """
        body = {**self.payload, "messages": prompt.messages}
        options = dict(self.payload.get("options") or {})
        limit = None
        window = self.allocation.num_ctx
        if window is not None:
            options["num_ctx"] = window
            if self.limits_answer:
                requested = options.get("num_predict")
                limit = self.allocation.answer_limit(prompt.size, window, requested)
            if limit is not None:
                options["num_predict"] = limit
        elif not self.allocation.model.is_cloud:
            # If Ollama chooses the window, an answer must end where it ends. Ollama would drop the
            # oldest messages.
            body["shift"] = False
        if options:
            body["options"] = options
        return body, limit


@dataclass(frozen=True, slots=True)
class AnswerReport:
    """What the gateway reports about an answer after it has passed on the text."""

    prompt: FixedPrompt
    # number of tokens of the prompt and the answer: the estimate or Ollama's count, whichever is
    # larger
    tokens: int
    is_prompt_truncated: bool
    is_cut: bool  # whether the answer ended because the window was full
    host: str


def payload_without_thinking(
    model: ModelInfo, name: str, max_tokens: int, keep_alive: str | float | None, format: Any = None
) -> dict[str, Any]:
    """Return the body of a request to ``model``, called ``name``, for an answer of at most
    ``max_tokens`` tokens.

    For a cloud model, the answer has no limit, because the provider may refuse it.
    """
    think = False if model.has_capability("thinking") else None
    options = None if model.is_cloud else {"num_predict": max_tokens}
    return chat_payload(
        name, (), think=think, options=options, format=format, keep_alive=keep_alive
    )
