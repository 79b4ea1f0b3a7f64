"""What a turn is about: what was asked, what was checked before it began, and what came of it."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mochi_server.chat.model import Wishes
from mochi_server.errors import MochiError
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.context_window import WindowDecision
from mochi_server.sessions.images import Image
from mochi_server.sessions.session import ChatSession, last_answer, usage_tokens
from mochi_server.sessions.types import Message
from mochi_server.tools.toolbox import Toolbox, ToolOutcome


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
    outcomes: list[ToolOutcome] = field(default_factory=list)

    @property
    def window_object(self) -> dict[str, Any]:
        """The window as answers show it; ``usage_tokens`` is prompt and answer, as Ollama counted them."""
        return {
            "current_window": self.window.window if self.window else None,
            "usage_tokens": usage_tokens(last_answer(self.stored)),
            "reason": self.window.reason if self.window else None,
        }
