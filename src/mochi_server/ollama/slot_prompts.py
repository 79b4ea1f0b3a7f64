"""Latest prompt and answer of each model. Ollama still has both in the model's prompt cache (the slot)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mochi_server.ollama.payloads import qualified_name


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
    tokens: int
    """Number of tokens of the prompt and the answer: the estimate or Ollama's count, whichever is larger."""


class SlotPrompts:
    """Latest exchange of each model. An exchange is discarded before a new request overwrites the model's slot."""

    def __init__(self) -> None:
        self._exchanges: dict[str, Exchange] = {}
        self._requests: dict[str, int] = {}

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
        """Discard the exchanges of a session that is about to be deleted."""
        self._exchanges = {name: each for name, each in self._exchanges.items() if each.session_id != session_id}
