"""Outbox of the webhooks that session files contain."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from mochi_server.errors import MochiError
from mochi_server.sessions.change import Notice
from mochi_server.sessions.store import WebhookOutbox

_RETRY_SECONDS = 30

logger = logging.getLogger(__name__)


@dataclass
class _Entry:
    notice: Notice
    due: float = 0.0  # Unix time in seconds
    claimed_until: float = 0.0

    def is_free(self, now: float) -> bool:
        return self.claimed_until <= now


class FileWebhookOutbox(WebhookOutbox):
    """``WebhookOutbox`` over the files of the sessions.

    After a restart, all notices are due at once.
    """

    def __init__(
        self,
        delivered: Callable[[Notice], Awaitable[None]],
        *,
        retry_seconds: float = _RETRY_SECONDS,
    ) -> None:
        """``delivered`` removes a notice from the file of its session.

        After an error, the next attempt to remove it follows after ``retry_seconds``.
        """
        self.stored = asyncio.Event()
        self._delivered = delivered
        self._retry_seconds = retry_seconds
        self._entries: dict[str, _Entry] = {}  # by webhook ID, oldest first
        self._in_files: dict[str, _Entry] = {}  # removed, but not from the file of the session

    def add(self, notices: Iterable[Notice]) -> None:
        """Add the notices of a session file."""
        for notice in notices:
            self._entries.setdefault(notice.webhook_id, _Entry(notice))
            self.stored.set()

    async def claim(self, seconds: float) -> Notice | None:
        now = time.time()
        for removed in [*self._in_files.values()]:
            if removed.due <= now:
                await self._remove_from_file(removed.notice)
        while (outdated := self._outdated(now)) is not None:
            await self.remove(outdated.webhook_id)
        first: dict[str, _Entry] = {}  # oldest entry of each session
        for entry in self._entries.values():
            first.setdefault(entry.notice.session_id, entry)
        free = [entry for entry in first.values() if entry.due <= now and entry.is_free(now)]
        if not free:
            return None
        entry = min(free, key=lambda entry: entry.due)
        entry.claimed_until = now + seconds
        return entry.notice

    async def postpone(self, webhook_id: str, seconds: float) -> None:
        entry = self._entries.get(webhook_id)
        if entry is not None:
            entry.due, entry.claimed_until = time.time() + seconds, 0.0

    async def remove(self, webhook_id: str) -> None:
        entry = self._entries.get(webhook_id)
        if entry is not None:
            await self._remove_from_file(entry.notice)
            self._entries.pop(webhook_id, None)

    async def backlog(self) -> tuple[int, Notice | None]:
        for entry in self._entries.values():
            return len(self._entries), entry.notice
        return 0, None

    async def _remove_from_file(self, notice: Notice) -> None:
        """Remove a notice from the file of its session, or log the error and try again later."""
        webhook_id = notice.webhook_id
        try:
            await self._delivered(notice)
        except MochiError as error:
            logger.warning(
                "webhook is removed from its session later webhook_id=%s: %s",
                webhook_id,
                error.message,
            )
            self._in_files[webhook_id] = _Entry(notice, due=time.time() + self._retry_seconds)
        else:
            self._in_files.pop(webhook_id, None)

    def _outdated(self, now: float) -> Notice | None:
        """Return a notice that a later one of its session replaces, or None."""
        latest = {entry.notice.session_id: entry for entry in self._entries.values()}
        for entry in self._entries.values():
            is_replaced = latest[entry.notice.session_id] is not entry
            if is_replaced and entry.notice.is_request and entry.is_free(now):
                return entry.notice
        return None
