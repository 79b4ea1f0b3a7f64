"""Turns that continue or end without a client: after a timeout of their approval, after a crash or
a shutdown, or when Ollama responds again after a decision.
"""

import asyncio
import logging
import math
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from mochi_server import errors
from mochi_server.chat.limits import RunLimits
from mochi_server.chat.live_turns import LiveTurns
from mochi_server.chat.stored_turns import StoredTurns, warn_of_unreadable
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.turn import StoredTurn
from mochi_server.util.clock import new_id
from mochi_server.util.tasks import cancel_and_wait, start_in

MAX_STARTS = 3
"""Maximum number of starts of a turn, without those after a timeout or on a client's decision."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TurnRecovery:
    """Search for turns that are due, and their continuation or end."""

    store: SessionStore
    live: LiveTurns
    stored: StoredTurns
    limits: RunLimits
    _tasks: "set[asyncio.Future[Any]]" = field(default_factory=set)

    def open(self, *, is_shared: bool) -> None:
        """Start the search. ``is_shared`` states whether other servers use the same sessions."""
        start_in(self._tasks, self._scan(is_shared=is_shared))

    async def aclose(self) -> None:
        await cancel_and_wait([*self._tasks])

    async def _scan(self, *, is_shared: bool) -> None:
        """Continue turns that are due.

        A shared store is searched again and again, because other servers may die.
        """
        has_searched = False
        while True:
            try:
                if is_shared or not has_searched:
                    # The server at which a turn waits continues it first, because it may have
                    # connected clients.
                    until = time.time() - self.limits.scan_seconds if is_shared else math.inf
                    self.live.due.add_found(await self.store.due_turns(until))
                    has_searched = True
            except errors.MochiError as error:
                logger.warning("interrupted turns not found: %s", error.message)
            for session_id in self.live.due.take_due():
                start_in(self._tasks, self._continue_alone(session_id))
            if is_shared:
                await self._release_clients()
            await asyncio.sleep(self.limits.scan_seconds)

    async def _release_clients(self) -> None:
        """End the streams of turns that another server continues or whose session it has deleted.

        The clients of a turn that continues resume it there.
        """
        for run in self.live.table.all_suspended():
            if not run.subscribers:
                continue
            try:
                turn = (await self.store.load(run.session_id)).metadata.turn
            except errors.SessionNotFound:
                await self.live.abandon(run.session_id)
                continue
            except errors.MochiError:
                continue
            goes_on_here = (
                turn is not None
                and not turn.has_ended
                and self.live.table.suspended(run.session_id, turn.run_id) is not None
            )
            if run.is_suspended and not goes_on_here:
                run.release_clients()

    async def _continue_alone(self, session_id: str) -> None:
        """Continue a turn whose approval has expired, or whose server died."""
        try:
            await self._continue_due(session_id)
        except errors.SessionBusy:  # usually, another server continues the turn
            self.live.due.pause(session_id, self.limits.scan_seconds)
        except errors.SessionNotFound:
            return
        except errors.MochiError as error:
            logger.warning("turn continues later session_id=%s: %s", session_id, error.message)
            self.live.due.pause(session_id, self.limits.retry_seconds)

    async def _continue_due(self, session_id: str) -> None:
        turn = (await self.store.load(session_id)).metadata.turn
        if turn is not None and self._can_continue(turn):
            try:
                await self._continue_interrupted(session_id)
                return
            except ValueError as error:
                warn_of_unreadable(session_id, error)
        await self._end_interrupted(session_id)

    def _can_continue(self, turn: StoredTurn) -> bool:
        """Return whether a turn continues whose approval has expired, or whose server died."""
        if not turn.survives:
            return False
        if turn.state == "waiting_for_approval":
            return True
        if turn.starts >= MAX_STARTS:
            return False
        return turn.approval is not None or self.stored.preparation.continues_background_turns

    async def _continue_interrupted(self, session_id: str) -> None:
        """Continue a turn that is due. Raises ``ValueError`` if it cannot be read."""
        run_id = new_id()
        async with AsyncExitStack() as locks:
            await locks.enter_async_context(self.store.hold(session_id, run_id=run_id))
            session = await self.store.load(session_id)
            turn = session.metadata.turn
            if self.live.shutdown.is_set() or turn is None or not self._is_due(session_id, turn):
                return
            is_expired = turn.state == "waiting_for_approval"
            if is_expired and turn.approval is not None:
                self.stored.approvals.close_request(
                    session_id, turn.approval.confirmation_id, errors.ConfirmationTimeout
                )
            continuing = turn.decided(None) if is_expired else turn
            await self.stored.revive(
                session, continuing, run_id, locks, is_new_start=not is_expired
            )

    async def _end_interrupted(self, session_id: str) -> None:
        """End a turn that is due and cannot continue.

        A new turn waits for this lock. It would be refused if a run had the lock.
        """
        async with self.store.hold(session_id):
            session = await self.store.load(session_id)
            turn = session.metadata.turn
            if turn is not None and self._is_due(session_id, turn):
                await self.stored.end_interrupted(session, turn)

    def _is_due(self, session_id: str, turn: StoredTurn) -> bool:
        """Return whether a turn must continue or end now. If it waits, note when it is due."""
        if turn.due is None:
            return False
        if turn.waiting is not None:
            self.live.due.add(session_id, turn.due)
            return False
        return True
