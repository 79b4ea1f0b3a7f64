"""Partial answer of a running turn, and its writes while the model writes it."""

import asyncio
import logging

from mochi_server.chat.answer import AnswerBuilder
from mochi_server.chat.conversation import Conversation
from mochi_server.sessions.change import Change

FLUSH_SECONDS = 2.0

logger = logging.getLogger(__name__)


class PartialAnswer:
    """Answer that the model writes now, and its flushes: writes to the store.

    A crash loses only the text since the last flush.
    """

    def __init__(self, conversation: Conversation) -> None:
        self.builder: AnswerBuilder | None = None
        """Builder of the answer, or None if the model writes none."""
        self.flush_timer: asyncio.TimerHandle | None = None
        """Timer of the flush that is scheduled or running, or None."""
        self._conversation = conversation
        self._flush: asyncio.Future[None] | None = None  # latest flush

    def schedule_flush(self, initial_write: "asyncio.Future[None]") -> None:
        """Schedule a flush, which also waits for the ``initial_write`` of the turn.

        No flush is scheduled or running.
        """
        self.flush_timer = asyncio.get_running_loop().call_later(
            FLUSH_SECONDS, self._start_flush, initial_write
        )

    async def finish_flush(self) -> None:
        """Cancel the flush that is scheduled, or wait for the one that is running."""
        if self.flush_timer is not None:
            self.flush_timer.cancel()
            self.flush_timer = None
        if self._flush is not None:
            await asyncio.wait([self._flush])

    def _start_flush(self, initial_write: "asyncio.Future[None]") -> None:
        self._flush = asyncio.ensure_future(self._store(initial_write))

    async def _store(self, initial_write: "asyncio.Future[None]") -> None:
        conversation = self._conversation
        try:
            await asyncio.shield(initial_write)
            if self.builder is not None:
                change = Change(partial=self.builder.message(interrupted=True))
                # Without retries, because the next flush has this text, too.
                await conversation.store.write(conversation.session_id, change)
        except Exception as error:  # the turn itself does not depend on this write
            logger.warning(
                "Partial answer not stored session_id=%s: %s", conversation.session_id, error
            )
        self.flush_timer = None  # the next text schedules the next flush
