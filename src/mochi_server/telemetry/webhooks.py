"""Webhooks, which report runs that have ended or wait for approval. They contain no text of conversations."""

import asyncio
import logging
from datetime import datetime, timezone

import aiohttp
import orjson
from standardwebhooks import Webhook as Signer

from mochi_server.chat.run import Run
from mochi_server.errors import MochiError
from mochi_server.sessions.store import Webhook, WebhookOutbox
from mochi_server.util.clock import new_id, now
from mochi_server.util.tasks import cancel_and_wait

PAUSES = [2.0 * 2**attempt for attempt in range(11)]
"""Pauses in seconds after each failed attempt: more than an hour in all. After the last one, the webhook is dropped."""
_TIMEOUT = aiohttp.ClientTimeout(total=20)
_CLAIM_SECONDS = 30
_POLL_SECONDS = 1
_SENDERS = 4

logger = logging.getLogger(__name__)


class WebhookService:
    """Sender of webhooks to one URL. Without a URL, it stores and sends nothing."""

    def __init__(self, outbox: WebhookOutbox, url: str, secret: str) -> None:
        self._outbox = outbox
        self._url = url
        self._secret = secret
        self._http: aiohttp.ClientSession | None = None
        self._added = asyncio.Event()
        self._senders: list[asyncio.Future[None]] = []
        self._writes: set[asyncio.Future[None]] = set()

    def open(self) -> None:
        if self._url:
            self._http = aiohttp.ClientSession(timeout=_TIMEOUT, cookie_jar=aiohttp.DummyCookieJar())
            self._senders = [asyncio.ensure_future(self._send_all(self._http)) for _ in range(_SENDERS)]

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
        await cancel_and_wait(self._senders)
        if self._http is not None:
            await self._http.close()

    def _report(self, run: Run, event: str) -> None:
        if self._url and run.conversation.kind == "session":
            write = asyncio.ensure_future(self._add(event, run))
            self._writes.add(write)
            write.add_done_callback(self._writes.discard)

    async def _add(self, event: str, run: Run) -> None:
        data = {"session_id": run.session_id, "run_id": run.run_id}
        body = orjson.dumps({"type": event, "timestamp": now(), "data": data}).decode()
        try:
            await run.conversation.retry.run(lambda: self._outbox.add(f"msg_{new_id(32)}", body))
        except MochiError as error:
            logger.error("webhook lost event=%s run_id=%s: %s", event, run.run_id, error.message)
        self._added.set()

    async def _send_all(self, http: aiohttp.ClientSession) -> None:
        while True:
            self._added.clear()
            try:
                while (webhook := await self._outbox.claim(_CLAIM_SECONDS)) is not None:
                    await self._send(http, webhook)
            except MochiError as error:
                logger.warning("webhooks are sent later: %s", error.message)
            await asyncio.wait([asyncio.ensure_future(self._added.wait())], timeout=_POLL_SECONDS)

    async def _send(self, http: aiohttp.ClientSession, webhook: Webhook) -> None:
        """Make one attempt to send a webhook, and remove or defer it. Raises ``StorageFailed``."""
        problem = await self._post(http, webhook)
        if problem is None:
            return await self._outbox.remove(webhook)
        if webhook.attempts > len(PAUSES):
            logger.error("webhook dropped webhook_id=%s attempts=%d: %s", *webhook[::2], problem)
            return await self._outbox.remove(webhook)
        logger.warning("webhook not accepted webhook_id=%s attempts=%d: %s", *webhook[::2], problem)
        return await self._outbox.defer(webhook, PAUSES[webhook.attempts - 1])

    async def _post(self, http: aiohttp.ClientSession, webhook: Webhook) -> str | None:
        """Return None if the receiver accepted the webhook, else the problem."""
        sent = datetime.now(timezone.utc)
        headers = {
            "Content-Type": "application/json",
            "webhook-id": webhook.webhook_id,
            "webhook-timestamp": str(int(sent.timestamp())),
            "webhook-signature": Signer(self._secret).sign(webhook.webhook_id, sent, webhook.body),
        }
        try:
            async with http.post(self._url, data=webhook.body, headers=headers, allow_redirects=False) as response:
                return None if response.ok and response.status < 300 else f"status {response.status}"
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError, ValueError) as error:
            return type(error).__name__
