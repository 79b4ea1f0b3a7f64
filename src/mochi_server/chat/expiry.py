"""Background deletion of expired sessions."""

import asyncio
import logging
import math
import time

from mochi_server import errors
from mochi_server.chat.service import TurnService
from mochi_server.sessions.session import goes_on
from mochi_server.util.tasks import cancel_and_wait

_MIN_INTERVAL_SECONDS = 0.1
_MAX_INTERVAL_SECONDS = 60.0

logger = logging.getLogger(__name__)


class SessionExpiry:
    """Task that deletes the sessions that have expired.

    Servers with the same store may all run it. The lock of a session lets one of them delete it.
    """

    def __init__(self, turns: TurnService, *, idle_seconds: float) -> None:
        """``idle_seconds`` is the time without a change after which a temporary session expires."""
        self._turns = turns
        self._store = turns.store
        self._idle_seconds = idle_seconds
        self._interval = min(max(idle_seconds, _MIN_INTERVAL_SECONDS), _MAX_INTERVAL_SECONDS)
        self._tasks: list[asyncio.Future[None]] = []

    def open(self) -> None:
        self._tasks.append(asyncio.ensure_future(self._run()))

    async def aclose(self) -> None:
        await cancel_and_wait(self._tasks)

    async def _run(self) -> None:
        while True:
            try:
                await self._delete_expired()
            except errors.MochiError as error:
                logger.warning("expired sessions are not found: %s", error.message)
            await asyncio.sleep(self._interval)

    async def _delete_expired(self) -> None:
        for session_id in await self._store.expired(self._idle_seconds, time.time()):
            try:
                await self._delete(session_id)
            except (errors.SessionBusy, errors.SessionNotFound):
                continue  # a turn is running, or the session was deleted
            except errors.MochiError as error:
                logger.warning(
                    "expired session is deleted later session_id=%s: %s", session_id, error.message
                )

    async def _delete(self, session_id: str) -> None:
        """Delete a session if it is still expired.

        A temporary session does not expire by idleness while its turn goes on. ``expires_at``
        applies even then.
        """
        async with self._store.hold(session_id):
            session = await self._store.load(session_id)
            idle_seconds = math.inf if goes_on(session) else self._idle_seconds
            if not session.metadata.has_expired(idle_seconds, time.time()):
                return
            await self._store.delete(session_id)
        await self._turns.abandon(session_id)
        await self._turns.end_agent_of_deleted(session)
        logger.info("expired session deleted session_id=%s", session_id)
