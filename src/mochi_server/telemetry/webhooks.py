"""Webhooks, which report runs that have ended or wait for approval.

They contain no text of conversations.
"""

import asyncio
import logging
import re
import time
from collections.abc import MutableMapping
from dataclasses import dataclass
from datetime import datetime, timezone
from math import inf
from typing import TYPE_CHECKING, Any

import anyio
from cachetools import TTLCache

from mochi_server.errors import MochiError
from mochi_server.sessions.change import Notice
from mochi_server.sessions.store import WebhookOutbox, is_webhook_id
from mochi_server.util.clock import timestamp
from mochi_server.util.imports import import_in_thread
from mochi_server.util.tasks import cancel_and_wait, run_shielded, start_in

if TYPE_CHECKING:
    import aiohttp

_MIN_PAUSES_SECONDS = 3600
"""Sum of the pauses after which a webhook that is never accepted is removed."""
_MAX_AGE_SECONDS = 30 * 86_400
"""Age from which such a webhook is removed, even if restarts have begun its pauses again."""
_FAILURES_SECONDS = 86_400  # another server may have delivered the webhook meanwhile
_TIMEOUT_SECONDS = 20
_CLAIM_SECONDS = 30  # after this time, another server continues the work of a server that has died
_TIMESTAMP = re.compile('"timestamp":"([^"]*)"')
_MAX_ATTEMPTS_AT_ONCE = 8

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class WebhookTimes:
    """Times of the attempts to send webhooks, in seconds."""

    first_pause: float = 2
    """Pause after the first failed attempt. Each later pause is twice as long."""
    poll: float = 1
    """Interval of the search for webhooks that are due."""


DEFAULT_TIMES = WebhookTimes()


class WebhookService:
    """Sender of webhooks to one URL. Without a URL, it sends nothing.

    The stores of the sessions write a webhook together with the transition that it reports.
    """

    def __init__(
        self, outbox: WebhookOutbox, url: str, secret: str, times: WebhookTimes = DEFAULT_TIMES
    ) -> None:
        self._outbox = outbox
        self._url = url
        self._secret = secret
        self._times = times
        self._sender: list[asyncio.Future[None]] = []
        # Failed attempts of this server by webhook ID. A restart begins the pauses again.
        self._failures: MutableMapping[str, int] = TTLCache(inf, _FAILURES_SECONDS)

    def open(self) -> None:
        if self._url:
            self._sender = [asyncio.ensure_future(self._send_all())]

    async def aclose(self) -> None:
        """Stop sending. The next start sends the rest."""
        await cancel_and_wait(self._sender)

    async def backlog(self) -> tuple[int, float]:
        """Return the number of webhooks that are not delivered, and the age of the oldest one in
        seconds.
        """
        count, oldest = await self._outbox.backlog()
        if oldest is None:
            return 0, 0.0
        return count, _age(oldest)

    async def _send_all(self) -> None:
        """Send the webhooks that are due, until this task is cancelled."""
        attempts = set[asyncio.Future[Any]]()
        aiohttp = await import_in_thread("aiohttp")
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(
            timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
        ) as http:
            try:
                while True:
                    while len(attempts) < _MAX_ATTEMPTS_AT_ONCE:
                        notice = await self._claim()
                        if notice is None:
                            break
                        attempt = start_in(attempts, self._send(http, notice))
                        # The end of an attempt makes room for the next one.
                        attempt.add_done_callback(lambda _: self._outbox.stored.set())
                    with anyio.move_on_after(self._times.poll):
                        await self._outbox.stored.wait()
                    self._outbox.stored.clear()
            finally:
                await cancel_and_wait([*attempts])

    async def _claim(self) -> Notice | None:
        """Return a webhook that is due, or None if there is none or the store fails."""
        try:
            return await self._outbox.claim(_CLAIM_SECONDS)
        except MochiError as error:
            logger.warning("webhooks are sent later: %s", error.message)
            return None

    async def _send(self, http: "aiohttp.ClientSession", notice: Notice) -> None:
        """Make one attempt to send a webhook. Then remove it, or store the time of the next
        attempt.
        """
        try:
            if not is_webhook_id(notice.webhook_id):
                logger.error(
                    "webhook not sent because it is damaged webhook_id=%r", notice.webhook_id
                )
                await self._outbox.remove(notice.webhook_id)
                return
            try:
                problem = await self._post(http, notice.webhook_id, notice.body)
            except asyncio.CancelledError:
                # The server stops. Another one, or its next start, sends the webhook.
                await run_shielded(self._outbox.postpone(notice.webhook_id, 0))
                raise
            await run_shielded(self._attempt_ended(notice, problem))
        except MochiError as error:  # it is due again after _CLAIM_SECONDS
            logger.warning(
                "webhook is sent again webhook_id=%s: %s", notice.webhook_id, error.message
            )

    async def _attempt_ended(self, notice: Notice, problem: str | None) -> None:
        """Remove a webhook that was accepted or is too old, and postpone another one."""
        webhook_id = notice.webhook_id
        failures = self._failures.get(webhook_id, 0)
        pause = self._times.first_pause * 2**failures
        if problem is None:
            is_done = True
        else:
            logger.warning(
                "webhook not accepted webhook_id=%s age=%d: %s", webhook_id, _age(notice), problem
            )
            earlier_pauses = pause - self._times.first_pause  # their sum
            is_too_old = failures > 0 and _age(notice) > _MAX_AGE_SECONDS
            is_done = is_too_old or earlier_pauses >= _MIN_PAUSES_SECONDS
        if is_done:
            await self._outbox.remove(webhook_id)
            self._failures.pop(webhook_id, None)
        else:
            await self._outbox.postpone(webhook_id, pause)
            self._failures[webhook_id] = failures + 1

    async def _post(self, http: "aiohttp.ClientSession", webhook_id: str, body: str) -> str | None:
        """Return None if the receiver accepted the webhook, else the problem."""
        import aiohttp  # noqa: PLC0415 - only the sender needs it
        from standardwebhooks import Webhook  # noqa: PLC0415 - only the sender needs it

        sent = datetime.now(timezone.utc)
        headers = {
            "Content-Type": "application/json",
            "webhook-id": webhook_id,
            "webhook-timestamp": str(int(sent.timestamp())),
            "webhook-signature": Webhook(self._secret).sign(webhook_id, sent, body),
        }
        try:
            async with http.post(
                self._url, data=body, headers=headers, allow_redirects=False
            ) as response:
                return None if 200 <= response.status < 300 else f"status {response.status}"
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
            return type(error).__name__


def _age(notice: Notice) -> float:
    """Return the age of a webhook in seconds. An unreadable time counts as 1970."""
    match = _TIMESTAMP.search(notice.body)
    created = timestamp(match[1]) if match else 0
    return time.time() - created
