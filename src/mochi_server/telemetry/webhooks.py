"""Webhooks, which report runs that have ended or wait for approval. They contain no text of conversations."""

import asyncio
import logging
import re
import time
from datetime import datetime, timezone

import aiohttp
import anyio
import orjson
from standardwebhooks import Webhook

from mochi_server.chat.run import Run
from mochi_server.errors import MochiError
from mochi_server.sessions.store import WebhookOutbox
from mochi_server.util.clock import new_id, now, timestamp
from mochi_server.util.tasks import cancel_and_wait

_FIRST_PAUSE_SECONDS = 2.0  # later pauses are as long as the age of the webhook, so that they double
_MAX_AGE_SECONDS = 4000
_TIMEOUT_SECONDS = 20
_CLAIM_SECONDS = 30  # after this time, another server repeats the attempt of a server that has died
_POLL_SECONDS = 1
_TIMESTAMP = re.compile('"timestamp":"([^"]*)"')
_MAX_ATTEMPTS_AT_ONCE = 8

logger = logging.getLogger(__name__)


class WebhookService:
    """Sender of webhooks to one URL. Without a URL, it stores and sends nothing."""

    def __init__(self, outbox: WebhookOutbox, url: str, secret: str) -> None:
        self._outbox = outbox
        self._url = url
        self._secret = secret
        self._wakeup = asyncio.Event()  # set after a webhook was stored, or an attempt has ended
        self._sender: list[asyncio.Future[None]] = []
        self._writes: set[asyncio.Future[None]] = set()

    def open(self) -> None:
        if self._url:
            self._sender = [asyncio.ensure_future(self._send_all())]

    def run_ended(self, run: Run) -> None:
        """Report a run that has completed or failed. A run that a client ends is not reported."""
        if run.failure is not None or run.state == "completed":
            self._report(run, "run.completed" if run.failure is None else "run.failed")

    def run_waits(self, run: Run) -> None:
        """Report a run with a new tool call that waits for approval."""
        self._report(run, "run.waiting_for_approval")

    async def aclose(self) -> None:
        """Store the latest webhooks and stop. The next start sends the rest."""
        await asyncio.gather(*self._writes)
        await cancel_and_wait(self._sender)

    def _report(self, run: Run, event: str) -> None:
        if self._url and run.conversation.kind == "session":
            self._writes.add(write := asyncio.ensure_future(self._add(event, run)))
            write.add_done_callback(self._writes.discard)

    async def _add(self, event: str, run: Run) -> None:
        data = {"session_id": run.session_id, "run_id": run.run_id}
        webhook_id, body = f"msg_{new_id(32)}", orjson.dumps({"type": event, "timestamp": now(), "data": data}).decode()
        try:
            await run.conversation.retry.run(lambda: self._outbox.add(webhook_id, body))
        except MochiError as error:
            logger.error("webhook lost event=%s run_id=%s: %s", event, run.run_id, error.message)
        self._wakeup.set()

    async def _send_all(self) -> None:
        attempts = set[asyncio.Future[None]]()
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as http:
            try:
                while True:
                    with anyio.move_on_after(_POLL_SECONDS):
                        await self._wakeup.wait()
                    self._wakeup.clear()
                    while len(attempts) < _MAX_ATTEMPTS_AT_ONCE and (webhook := await self._claim()) is not None:
                        attempts.add(attempt := asyncio.ensure_future(self._send(http, *webhook)))
                        attempt.add_done_callback(attempts.discard)
                        attempt.add_done_callback(lambda _: self._wakeup.set())
            finally:
                await cancel_and_wait([*attempts])

    async def _claim(self) -> tuple[str, str] | None:
        try:
            return await self._outbox.claim(_CLAIM_SECONDS)
        except MochiError as error:
            logger.warning("webhooks are sent later: %s", error.message)
            return None

    async def _send(self, http: aiohttp.ClientSession, webhook_id: str, body: str) -> None:
        """Make one attempt to send a webhook, and then remove or defer it."""
        try:
            match = _TIMESTAMP.search(body)  # an unreadable webhook counts as old, so that it is sent only once
            age = time.time() - timestamp(match and match[1])
            problem = await self._post(http, webhook_id, body)
            if problem is not None:
                logger.warning("webhook not accepted webhook_id=%s age=%d: %s", webhook_id, age, problem)
            if problem is None or age > _MAX_AGE_SECONDS:
                await self._outbox.remove(webhook_id)
            else:
                await self._outbox.defer(webhook_id, max(_FIRST_PAUSE_SECONDS, age))
        except (MochiError, OSError) as error:  # it is due again after _CLAIM_SECONDS
            logger.warning("webhook is sent again webhook_id=%s: %s", webhook_id, error)

    async def _post(self, http: aiohttp.ClientSession, webhook_id: str, body: str) -> str | None:
        """Return None if the receiver accepted the webhook, else the problem."""
        sent = datetime.now(timezone.utc)
        headers = {
            "Content-Type": "application/json",
            "webhook-id": webhook_id,
            "webhook-timestamp": str(int(sent.timestamp())),
            "webhook-signature": Webhook(self._secret).sign(webhook_id, sent, body),
        }
        try:
            async with http.post(self._url, data=body, headers=headers, allow_redirects=False) as response:
                return None if 200 <= response.status < 300 else f"status {response.status}"
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
            return type(error).__name__
