"""What a turn is about: what was asked, what was checked before it began, and what came of it."""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mochi_server.chat.model import Wishes
from mochi_server.errors import MochiError
from mochi_server.events import ChatEvent, MessageComplete
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.context_window import WindowDecision
from mochi_server.sessions.images import Image
from mochi_server.sessions.session import ChatSession, last_answer, usage_tokens
from mochi_server.sessions.types import Message
from mochi_server.tools.toolbox import NO_TOOLS, Call, Toolbox, ToolOutcome


def _as_it_is(toolbox: Toolbox) -> Toolbox:
    return toolbox


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """What a client asks for. Without a message the last user message is answered again.

    ``wishes`` go before the session's own defaults.
    """

    message: str | None = None
    images: tuple[Image, ...] = ()
    """What the model is to see with the message."""
    wishes: Wishes = field(default_factory=Wishes)
    if_busy: Literal["reject", "wait"] = "reject"
    on_disconnect: Literal["cancel", "continue"] = "cancel"
    interactive: bool = True
    """Whether somebody can be asked to approve of calls."""
    results: Sequence[Message] = ()
    """Stored before the message: what came of calls that an earlier turn handed back to the client."""
    continues: bool = False
    """Whether the history is answered as it stands, whatever its last message is."""
    instructions: str | None = None
    """Said to the model behind the session's system prompt, in this turn alone; never stored."""
    tools: Sequence[str] | None = None
    """Names of tools that take the place of those the session enables."""
    client_tools: frozenset[str] = frozenset()
    """Names of the tools whose calls are handed back to the client."""
    offer: Callable[[Toolbox], Toolbox] = _as_it_is
    """What the client makes of the session's toolbox."""
    revision: str | None = None
    """The history that all this was decided on; on another one it is a conflict."""
    key: str | None = None
    """The idempotency key that the message comes with."""
    instead: "Callable[[Turn], AsyncGenerator[list[ChatEvent], None]] | None" = None
    """Whoever answers in the place of the session's model."""

    def asks_the_same_as(self, other: "TurnRequest") -> bool:
        """Whether both want the same said to the model, however they want to hear of it."""
        return (self.message, self.images, self.wishes) == (other.message, other.images, other.wishes)

    def without_data(self) -> "TurnRequest":
        """The same, with the images' names alone."""
        return replace(self, images=tuple(image.without_data() for image in self.images))


@dataclass
class Turn:
    """A turn that may begin. ``run`` fills in what came of it."""

    session: ChatSession
    request: TurnRequest
    toolbox: Toolbox
    model: ModelInfo | None = None
    """None when Ollama could not be asked; ``model_failure`` says why."""
    model_failure: MochiError | None = None
    window: WindowDecision | None = None
    failure: MochiError | None = None
    stopped: bool = False
    """Set before the turn is cancelled, when a person asked for it to stop."""
    stored: list[Message] = field(default_factory=list)
    """The messages this turn added, oldest first."""
    retold: Sequence[Message] = ()
    """Messages of an earlier turn that this one tells again."""
    outcomes: list[ToolOutcome] = field(default_factory=list)
    handed_back: list[Call] = field(default_factory=list)
    """Calls that the client carries out; the turn has ended with them."""

    def let_go(self) -> None:
        """It is over: keep what can still be asked for, and nothing that it only needed for itself."""
        self.session.messages = []
        self.toolbox = NO_TOOLS
        self.model = None

    @property
    def answer(self) -> Message | None:
        """The latest one. Results may be behind it, where the model called tools of the server and of the client."""
        return last_answer(self.stored) or last_answer(self.retold)

    @property
    def window_object(self) -> dict[str, Any]:
        """The window as answers show it; ``usage_tokens`` is prompt and answer, as Ollama counted them."""
        return {
            "current_window": self.window.window if self.window else None,
            "usage_tokens": usage_tokens(self.answer),
            "reason": self.window.reason if self.window else None,
        }

    def completed(self) -> MessageComplete:
        """The event of its end. There is an answer."""
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
