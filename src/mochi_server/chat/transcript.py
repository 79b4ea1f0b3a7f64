"""What a turn writes into its session: each message when it is whole, and how far a cut-off one came."""

import asyncio
import logging

from mochi_server.chat.answer import Answer
from mochi_server.chat.history import last_user_index
from mochi_server.chat.turn import Turn
from mochi_server.errors import MochiError
from mochi_server.sessions.session import user_message
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message

CHECKPOINT_SECONDS = 2.0

logger = logging.getLogger(__name__)


class Transcript:
    """The writing side of one turn; its session must be held.

    A regenerated answer replaces the old one only once it is whole, so everything such a turn brings is kept
    here until then.
    """

    def __init__(self, store: SessionStore, turn: Turn) -> None:
        self._store = store
        self._turn = turn
        self._id = turn.session.session_id
        self._answer: Answer | None = None
        self._replaces = False
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self.messages: list[Message] = []
        self.turn_begins = 0

    async def begin(self) -> None:
        """Store what the user said; from here on it is safe."""
        if self._turn.request.message is not None:
            session = await self._store.append(self._id, [user_message(self._turn.request.message)])
            self._turn.session = session
        history = self._turn.session.messages
        asked = last_user_index(history)
        self.turn_begins = asked if asked is not None else len(history)
        self._replaces = self.turn_begins < len(history) - 1
        self.messages = history[: self.turn_begins + 1]

    def expect(self, answer: Answer) -> None:
        """From now on this is the answer in progress."""
        self._answer = answer

    def progressed(self) -> None:
        """The answer has grown: see to it that a crash costs seconds. Costs nothing per piece."""
        if self._timer is None and not self._replaces:
            self._timer = asyncio.get_running_loop().call_later(CHECKPOINT_SECONDS, self._checkpoint)

    async def add(self, message: Message, *, last: bool = False) -> None:
        """Store a whole message; ``last`` says that the turn is complete with it."""
        await self._settle()
        self._answer = None
        self.messages.append(message)
        self._turn.stored.append(message)
        if not self._replaces:
            await self._store.append(self._id, [message])
        elif last:
            await self._replace()

    async def interrupt(self) -> None:
        """Store the answer in progress as far as it came, marked as interrupted."""
        await self._settle()
        answer, self._answer = self._answer, None
        if answer is None or not answer.said_something:
            return
        message = answer.message(interrupted=True)
        if self._replaces and not self._turn.stopped:
            return
        self._turn.stored.append(message)
        await (self._replace() if self._replaces else self._store.append(self._id, [message]))

    async def _replace(self) -> None:
        await self._store.replace_tail(self._id, self.turn_begins + 1, self._turn.stored)

    def _checkpoint(self) -> None:
        self._timer = None
        if self._answer is not None:
            self._writing = asyncio.get_running_loop().create_task(self._write(self._answer.message(interrupted=True)))

    async def _write(self, partial: Message) -> None:
        try:
            await self._store.checkpoint(self._id, partial)
        except MochiError as error:
            logger.warning("No checkpoint of session %s: %s", self._id, error.message)

    async def _settle(self) -> None:
        """Let a checkpoint under way end, and start no other."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is not None:
            await asyncio.shield(self._writing)
            self._writing = None
