"""Latest prompt and answer of each model. Ollama still has both in the model's prompt cache (the slot)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mochi_server.inference.estimate import PromptSize
from mochi_server.ollama.payloads import qualified_name
from mochi_server.sessions.types import Message

_MAX_TRIMMED_SESSIONS = 10_000


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request to a model, with its answer."""

    session_id: str
    payload: Mapping[str, Any]
    """Body of the request to ``/api/chat``."""
    history: Sequence[Any]
    """Messages from which the prompt was built. The system message includes the instructions of the request."""
    first_stored: Any
    """First stored message of the session."""
    answer_id: str
    """Message ID of the answer."""
    size: PromptSize
    """Size of the prompt."""
    tokens: int
    """Number of tokens of the prompt and the answer: the estimate or Ollama's count, whichever is larger."""


class Slots:
    """Latest exchange of each model. An exchange is discarded before a new request overwrites the model's slot."""

    def __init__(self) -> None:
        self._exchanges: dict[str, Exchange] = {}
        self._requests: dict[str, int] = {}
        self._trims: dict[str, tuple[int, str]] = {}
        """Window, and ID of the last trimmed message, of the prompts that are trimmed. The keys are session IDs."""

    def begin(self, model: str) -> int:
        """Discard the exchange of ``model`` before a new request to the model. Return the number of the new request."""
        name = qualified_name(model)
        self._exchanges.pop(name, None)
        self._requests[name] = self._requests.get(name, 0) + 1
        return self._requests[name]

    def record(self, exchange: Exchange, request: int) -> None:
        """Record an exchange whose request has the number ``request``, unless the model has received a newer one."""
        name = qualified_name(exchange.payload["model"])
        if request == self._requests.get(name):
            self._exchanges[name] = exchange

    def get(self, model: str) -> Exchange | None:
        """Return the exchange that Ollama still has in the slot of ``model``, or None."""
        return self._exchanges.get(qualified_name(model))

    def discard_session(self, session_id: str) -> None:
        """Discard the exchanges and the trim record of a session that is about to be deleted."""
        self._trims.pop(session_id, None)
        self._exchanges = {name: each for name, each in self._exchanges.items() if each.session_id != session_id}

    def trim_end(self, session_id: str, window: int | None, history: Sequence[Message]) -> int:
        """Return the number of messages at the start of the history that earlier prompts of the session have trimmed.

        The number is 0 if the earlier requests had a window of a different size. For a new window, Ollama reloads the
        model, so the prompt need not begin like the earlier prompts.
        """
        trimmed_window, last = self._trims.get(session_id, (None, None))
        if last is None or trimmed_window != window:
            return 0
        return next((i + 1 for i, message in enumerate(history) if message["message_id"] == last), 0)

    def record_trim(self, session_id: str, window: int | None, history: Sequence[Message], end: int) -> None:
        """Record that a prompt trims the first ``end`` messages. If necessary, drop the oldest record.

        Later prompts also trim these messages, so that all prompts of the session begin with the same text.
        """
        if end and window is not None:
            self._trims.pop(session_id, None)
            self._trims[session_id] = window, history[end - 1]["message_id"]
            if len(self._trims) > _MAX_TRIMMED_SESSIONS:
                del self._trims[next(iter(self._trims))]
