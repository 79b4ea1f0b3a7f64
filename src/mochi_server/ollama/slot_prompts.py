"""The latest exchange with each model, whose evaluation Ollama still has in the slot of the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mochi_server.ollama.payloads import qualified_name


@dataclass(frozen=True, slots=True)
class Exchange:
    """A prompt that a model has answered."""

    session_id: str
    payload: Mapping[str, Any]
    """Body of the request to ``/api/chat``."""
    history: Sequence[Any]
    """Stored messages that the prompt was made from."""
    answer_id: str
    """Message ID of the answer."""
    tokens: int
    """Tokens of the prompt and the answer, estimated or counted, whichever is more."""


class SlotPrompts:
    """Latest exchange of each model. Every other request to a model discards it, because it takes the slot."""

    def __init__(self) -> None:
        self._exchanges: dict[str, Exchange] = {}

    def record(self, exchange: Exchange) -> None:
        """Record the exchange that a model has just completed."""
        self._exchanges[qualified_name(exchange.payload["model"])] = exchange

    def get(self, model: str) -> Exchange | None:
        """Return the exchange that the slot of a model still has."""
        return self._exchanges.get(qualified_name(model))

    def discard(self, model: str) -> None:
        """Discard the exchange of a model, because another request is sent to it."""
        self._exchanges.pop(qualified_name(model), None)

    def discard_session(self, session_id: str) -> None:
        """Discard the exchanges of a session that is about to be deleted."""
        self._exchanges = {name: each for name, each in self._exchanges.items() if each.session_id != session_id}
