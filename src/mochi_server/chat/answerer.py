"""Answerers: what produces the answer of a turn. The engine stores the user message and asks one of them."""

from collections.abc import Sequence
from typing import Protocol

from mochi_server.chat.conversation import Conversation
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.events import Publish
from mochi_server.inference.windows import WindowDecision
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message


class Answerer(Protocol):
    """Source of the answer of one turn."""

    @property
    def window(self) -> WindowDecision | None:
        """Context window of the answer, or None if no model was called."""

    @property
    def repeated(self) -> Sequence[Message]:
        """Stored messages of an earlier turn that the answer repeats."""

    async def begin(self, session: ChatSession) -> ChatSession:
        """Change the history as the input of the turn demands. Return the changed session."""

    async def answer(self, writer: TurnWriter, publish: Publish) -> None:
        """Produce the answer: publish its events, and store its messages with ``writer``."""


class AnswererFactory(Protocol):
    """Factory of the answerers of one kind. ``prepare`` validates the input of a turn and writes nothing."""

    async def prepare(self, conversation: Conversation, session: ChatSession, turn_input: TurnInput) -> Answerer:
        """Return the answerer of a turn. Raises ``MochiError`` if the turn cannot start."""
