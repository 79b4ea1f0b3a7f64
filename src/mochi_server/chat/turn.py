"""A turn: the request, what was validated before it began, and its result."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mochi_server.errors import MochiError
from mochi_server.events import MessageComplete, Publish
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.context_window import WindowDecision
from mochi_server.sessions.images import Image
from mochi_server.sessions.session import ChatSession, last_answer, usage_tokens
from mochi_server.sessions.types import Message
from mochi_server.tools.toolbox import Toolbox, ToolInvocation, ToolOutcome


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """How an answer is generated. None leaves a value to the session's defaults, and then to the model."""

    think: bool | str | None = None
    options: dict[str, Any] | None = None
    format: str | dict[str, Any] | None = None
    keep_alive: str | float | None = None


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """The request of a client. Without a message the last user message is answered again."""

    message: str | None = None
    images: tuple[Image, ...] = ()
    """Images that belong to the message."""
    generation: GenerationOptions = field(default_factory=GenerationOptions)
    """Options that override the session's defaults."""
    if_busy: Literal["reject", "wait"] = "reject"
    on_disconnect: Literal["cancel", "continue"] = "cancel"
    interactive: bool = True
    """Whether a client can be asked to approve calls."""
    results: Sequence[Message] = ()
    """Stored before the message: results of calls that an earlier turn handed back to the client."""
    continues: bool = False
    """Whether the history is answered as it stands, whatever its last message is."""
    instructions: str | None = None
    """Added to the system prompt in this turn alone; never stored."""
    tools: Sequence[str] | None = None
    """Names of tools that replace those the session enables."""
    client_tools: frozenset[str] = frozenset()
    """Names of the tools whose calls are handed back to the client."""
    wrap_toolbox: Callable[[Toolbox], Toolbox] = lambda toolbox: toolbox
    """Adds the client's tools to the session's toolbox."""
    revision: str | None = None
    """The revision of the history that the request was made for; another one is a conflict."""
    key: str | None = None
    """The idempotency key of the message."""
    responder: "Responder | None" = None
    """Answers in place of the session's model."""

    def is_same_request(self, other: "TurnRequest") -> bool:
        """Return whether both send the same to the model, however they receive the answer."""
        return (self.message, self.images, self.generation) == (other.message, other.images, other.generation)

    def without_data(self) -> "TurnRequest":
        """Return the request with the names of its images alone."""
        return replace(self, images=tuple(image.without_data() for image in self.images))


@dataclass(frozen=True)
class Turn:
    """A turn that may begin."""

    session: ChatSession
    request: TurnRequest
    toolbox: Toolbox
    model: ModelInfo | None = None
    """None when Ollama could not be asked; ``model_failure`` says why."""
    model_failure: MochiError | None = None


@dataclass(frozen=True)
class TurnResult:
    """The result of a turn that has ended, well or not."""

    stored: Sequence[Message] = ()
    """The messages that the turn added, oldest first."""
    repeated: Sequence[Message] = ()
    """Messages of an earlier turn that this one sends again."""
    outcomes: Sequence[ToolOutcome] = ()
    """How each tool call ended, in order."""
    handed_back: Sequence[ToolInvocation] = ()
    """Calls that the client runs; the turn has ended with them."""
    window: WindowDecision | None = None
    failure: MochiError | None = None
    cancelled: bool = False
    """Whether the turn was cancelled before its end."""

    @property
    def answer(self) -> Message | None:
        """The last answer. Results may follow it, if the model called tools of the server and of the client."""
        return last_answer(self.stored) or last_answer(self.repeated)

    @property
    def window_object(self) -> dict[str, Any]:
        """The window as responses show it; ``usage_tokens`` is prompt and answer, as Ollama counted them."""
        return {
            "current_window": self.window.window if self.window else None,
            "usage_tokens": usage_tokens(self.answer),
            "reason": self.window.reason if self.window else None,
        }

    def completed(self) -> MessageComplete:
        """Return the event for the end of a turn that has an answer."""
        message = self.answer
        assert message is not None  # noqa: S101 - or the turn has failed
        return MessageComplete(
            message_id=message["message_id"],
            model=message["model"],
            eval_count=message.get("eval_count"),
            prompt_eval_count=message.get("prompt_eval_count"),
            context_window=self.window_object,
            done_reason=message.get("done_reason"),
        )


Responder = Callable[[Publish], Awaitable[TurnResult]]
"""Publishes the events of an answer and returns the result."""
