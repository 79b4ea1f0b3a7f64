"""Data of a turn: the request, the validated inputs and the result."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mochi_server.errors import MochiError
from mochi_server.events import MessageComplete, Publish, TurnWarning
from mochi_server.inference.windows import WindowDecision
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelInfo
from mochi_server.sessions.images import Image
from mochi_server.sessions.session import ChatSession, last_answer, usage_tokens
from mochi_server.sessions.types import Message
from mochi_server.tools.toolbox import Toolbox, ToolInvocation, ToolOutcome


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """Generation options for one answer.

    If an option is None, the session's default is used. If the session has no default, the model's default is used.
    """

    think: bool | str | None = None
    options: dict[str, Any] | None = None
    format: str | dict[str, Any] | None = None
    """Format of the answer. An empty string is plain text, even if the session has a format."""
    keep_alive: str | float | None = None
    thinks_by_default: bool = False
    """Whether Ollama's default for thinking applies if neither the request nor the session sets ``think``.

    If this field is false, the model does not think in that case.
    """
    logprobs: int | None = None
    """Number of alternative tokens that Ollama returns for each token of the answer, with their log probabilities.

    If this field is None, Ollama returns no log probabilities.
    """


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """Request for a turn. If ``message`` is None, the model answers the last user message again."""

    message: str | None = None
    images: tuple[Image, ...] = ()
    generation: GenerationOptions = field(default_factory=GenerationOptions)
    """Options that override the session's defaults."""
    if_busy: Literal["reject", "wait"] = "reject"
    on_disconnect: Literal["cancel", "continue"] = "cancel"
    interactive: bool = True
    """Whether clients can approve tool calls."""
    results: Sequence[Message] = ()
    """Results of tool calls that the client ran after an earlier turn. The turn stores them before the user message."""
    continues: bool = False
    """Whether the model continues after the last complete message, even if that message is not from the user."""
    instructions: str | None = None
    """Text that is added to the system prompt for this turn and never stored."""
    tools: Sequence[str] | None = None
    """Names of the tools to use instead of the session's enabled tools."""
    client_tools: frozenset[str] = frozenset()
    """Names of the tools that the client runs."""
    wrap_toolbox: Callable[[Toolbox], Toolbox] = lambda toolbox: toolbox
    """Function that adds the client's tools to the session's toolbox."""
    must_call: bool = False
    """Whether the first answer must call a tool."""
    parallel_calls: bool = True
    """Whether an answer may call several tools. Otherwise the server drops all calls except the first."""
    revision: str | None = None
    """Expected revision. If the session has a different revision, the request fails with ``SessionConflict``."""
    key: str | None = None
    model: str | None = None
    """Model that the client requests. If it is None, the session's model answers."""
    store_model: Callable[[], Awaitable[ChatSession]] | None = None
    """Function that changes the session's model to ``model`` and returns the changed session."""
    responder: "Responder | None" = None
    """Function that answers instead of the session's model."""

    def is_same_request(self, other: "TurnRequest") -> bool:
        """Return whether both requests have the same model, message, images and generation options."""
        return self._compared_fields() == other._compared_fields()

    def _compared_fields(self) -> tuple[object, ...]:
        return qualified_name(self.model or ""), self.message, self.images, self.generation

    def without_data(self) -> "TurnRequest":
        """Return the request without the bytes of its images."""
        images = tuple(image.without_data() for image in self.images)
        return replace(self, images=images) if images else self


@dataclass(frozen=True)
class Turn:
    """Validated turn that is ready to run."""

    session: ChatSession
    request: TurnRequest
    toolbox: Toolbox
    model: ModelInfo | MochiError
    """Model of the session, or the error of its lookup."""
    warnings: Sequence[TurnWarning] = ()
    """A warning for each enabled tool, tool group and agent that cannot be used."""


@dataclass(frozen=True)
class TurnResult:
    """Result of a turn that has completed, failed or been cancelled."""

    stored: Sequence[Message] = ()
    """Messages that the turn added, oldest first."""
    repeated: Sequence[Message] = ()
    """Messages of an earlier turn that this turn sends to the client again."""
    outcomes: Sequence[ToolOutcome] = ()
    handed_back: Sequence[ToolInvocation] = ()
    """Tool calls that the client must run after the turn."""
    window: WindowDecision | None = None
    failure: MochiError | None = None
    cancelled: bool = False

    @property
    def answer(self) -> Message | None:
        """Last message of the model in this turn, or None if the model has not answered.

        The last message may contain tool calls that the client must run. ``stored`` may then contain results of other
        calls after that message.
        """
        return last_answer(self.stored) or last_answer(self.repeated)

    @property
    def partial_id(self) -> str | None:
        """ID of the partial answer of an interrupted turn, or None if the turn has none."""
        answer = last_answer(self.stored)
        return answer["message_id"] if answer is not None and answer.get("interrupted") else None

    @property
    def window_object(self) -> dict[str, Any]:
        """Context window as a JSON object. ``usage_tokens`` is Ollama's token count of prompt and answer."""
        return {
            "current_window": self.window.window if self.window else None,
            "usage_tokens": usage_tokens(self.answer),
            "reason": self.window.reason if self.window else None,
        }

    def completed(self) -> MessageComplete:
        """Return the event that reports the complete answer."""
        message = self.answer
        assert message is not None  # noqa: S101 - without an answer, the turn has failed
        return MessageComplete(
            message_id=message["message_id"],
            model=message["model"],
            eval_count=message.get("eval_count"),
            prompt_eval_count=message.get("prompt_eval_count"),
            context_window=self.window_object,
            done_reason=message.get("done_reason"),
        )


Responder = Callable[[Publish], Awaitable[TurnResult]]
"""Function that publishes the events of an answer and returns the result."""
