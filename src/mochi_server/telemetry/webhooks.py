"""Webhooks, which report runs that have ended or wait for approval. They contain no text of conversations."""

import asyncio
import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import aiohttp
import anyio
import orjson
from standardwebhooks import Webhook

from mochi_server.chat.parked_record import ParkedTurn
from mochi_server.chat.run import Run
from mochi_server.errors import MochiError, SessionBusy, SessionNotFound
from mochi_server.sessions.store import SessionStore, WebhookOutbox, is_webhook_id
from mochi_server.util.clock import now, timestamp
from mochi_server.util.tasks import cancel_and_wait, run_shielded, start_in

_MAX_AGE_SECONDS = 4000
_TIMEOUT_SECONDS = 20
_CLAIM_SECONDS = 30  # after this time, another server continues the work of a server that has died
_TIMESTAMP = re.compile('"timestamp":"([^"]*)"')
_MAX_ATTEMPTS_AT_ONCE = 8
_STARTED, _WAITS, _COMPLETED, _FAILED = "run.started", "run.waiting_for_approval", "run.completed", "run.failed"
_EVENTS = {"completed": _COMPLETED, "stopped": None}
"""Events by the final state of a run. A run with any other state has failed."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class WebhookTimes:
    """Times of the attempts to send webhooks, in seconds."""

    first_pause: float = 2
    """Pause after the first failed attempt. Later pauses are as long as the age of the webhook, so that they double."""
    poll: float = 1
    """Interval of the search for webhooks that are due."""


DEFAULT_TIMES = WebhookTimes()


class WebhookService:
    """Sender of webhooks to one URL. Without a URL, it stores and sends nothing.

    While a run is running, the outbox contains a webhook ``run.started``, which is never sent. If the server is killed
    before it has stored the next webhook of the run, the session shows which webhook is missing.
    """

    def __init__(
        self, outbox: WebhookOutbox, store: SessionStore, url: str, secret: str, times: WebhookTimes = DEFAULT_TIMES
    ) -> None:
        self._outbox = outbox
        self._store = store
        self._url = url
        self._secret = secret
        self._times = times
        self._wakeup = asyncio.Event()  # set after a webhook was stored, or an attempt has ended
        self._sender: list[asyncio.Future[None]] = []
        self._writes: set[asyncio.Future[Any]] = set()

    def open(self) -> None:
        if self._url:
            self._sender = [asyncio.ensure_future(self._send_all())]

    async def run_starting(self, run: Run) -> None:
        """Store that a run begins, before the run stores anything."""
        if self._reports(run):
            await run_shielded(self._store_event(run, _id(run.run_id), _STARTED))

    def run_waits(self, run: Run, confirmation_id: str) -> None:
        """Report a run with a new tool call that waits for approval."""
        if self._reports(run):
            start_in(self._writes, self._store_event(run, _id(confirmation_id), _WAITS))

    def run_ended(self, run: Run) -> None:
        """Report a run that has completed or failed. A run that is parked, or that a client ends, is not reported."""
        if not self._reports(run):
            return
        event = _COMPLETED if run.state == "completed" else None
        if run.state != "waiting_for_approval" and run.failure is not None:
            event = _FAILED
        start_in(self._writes, self._store_event(run, _id(run.run_id), event, after=[*self._writes]))

    async def aclose(self) -> None:
        """Store the latest webhooks and stop. The next start sends the rest."""
        await asyncio.gather(*self._writes)
        await cancel_and_wait(self._sender)

    def _reports(self, run: Run) -> bool:
        return bool(self._url) and run.conversation.kind == "session"

    async def _store_event(
        self, run: Run, webhook_id: str, event: str | None, after: Sequence["asyncio.Future[None]"] = ()
    ) -> None:
        """Store a webhook, or remove it if ``event`` is None. Wait for the writes ``after`` first."""
        await asyncio.gather(*after)
        try:
            await run.conversation.retry.run(lambda: self._change(webhook_id, event, run.session_id, run.run_id))
        except MochiError as error:
            logger.error("webhook lost event=%s run_id=%s: %s", event, run.run_id, error.message)

    async def _change(self, webhook_id: str, event: str | None, session_id: str, run_id: str) -> None:
        if event is None:
            await self._outbox.remove(webhook_id)
            return
        data = {"session_id": session_id, "run_id": run_id}
        body = orjson.dumps({"type": event, "timestamp": now(), "data": data}).decode()
        await self._outbox.add(webhook_id, body, seconds=_CLAIM_SECONDS if event == _STARTED else 0)
        self._wakeup.set()

    async def _send_all(self) -> None:
        attempts = set[asyncio.Future[Any]]()
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as http:
            try:
                while True:
                    with anyio.move_on_after(self._times.poll):
                        await self._wakeup.wait()
                    self._wakeup.clear()
                    while len(attempts) < _MAX_ATTEMPTS_AT_ONCE and (webhook := await self._claim()) is not None:
                        attempt = start_in(attempts, self._send(http, *webhook))
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
        """Make one attempt to send a webhook, and then remove it or store its next time."""
        try:
            is_started = f'"type":"{_STARTED}"' in body
            run = _run_of(body) if is_started else None
            if not is_webhook_id(webhook_id) or (is_started and run is None):
                logger.error("webhook not sent because it is damaged webhook_id=%r", webhook_id)
                await self._outbox.remove(webhook_id)
                return
            if run is not None:
                await self._settle(webhook_id, *run)
                return
            try:
                problem = await self._post(http, webhook_id, body)
            except asyncio.CancelledError:  # the server stops; another one, or its next start, sends the webhook
                await run_shielded(self._outbox.add(webhook_id, body))
                raise
            await run_shielded(self._attempt_ended(webhook_id, body, problem))
        except MochiError as error:  # it is due again after _CLAIM_SECONDS
            logger.warning("webhook is sent again webhook_id=%s: %s", webhook_id, error.message)

    async def _attempt_ended(self, webhook_id: str, body: str, problem: str | None) -> None:
        match = _TIMESTAMP.search(body)  # an unreadable webhook counts as old, so that it is sent only once
        age = time.time() - timestamp(match and match[1])
        if problem is not None:
            logger.warning("webhook not accepted webhook_id=%s age=%d: %s", webhook_id, age, problem)
        if problem is None or age > _MAX_AGE_SECONDS:
            await self._outbox.remove(webhook_id)
        else:
            await self._outbox.add(webhook_id, body, seconds=max(self._times.first_pause, age))

    async def _settle(self, started_id: str, session_id: str, run_id: str) -> None:
        """Store the missing webhook of a run whose server was killed. If the run is still running, do nothing."""
        try:
            async with self._store.hold(session_id):
                session = await self._store.load(session_id)
        except SessionBusy:
            return
        except SessionNotFound:
            await self._outbox.remove(started_id)
            return
        record, last_run = ParkedTurn.of(session), session.metadata.last_run or {}
        if record is not None and run_id in (record.run_id, *record.earlier):  # the turn goes on
            if record.is_waiting:
                await self._change(_id(record.confirmation_id), _WAITS, session_id, record.run_id)
            await self._outbox.remove(started_id)
        elif run_id in last_run.get("earlier", ()):
            await self._outbox.remove(started_id)
        else:
            state = last_run["state"] if last_run.get("run_id") == run_id else "failed"
            await self._change(started_id, _EVENTS.get(state, _FAILED), session_id, run_id)

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


def _run_of(body: str) -> tuple[str, str] | None:
    """Return the IDs of the session and of the run in the body of a webhook, or None if the body is damaged."""
    try:
        data = orjson.loads(body)["data"]
        session_id, run_id = data["session_id"], data["run_id"]
    except (ValueError, TypeError, KeyError):
        return None
    is_valid = isinstance(session_id, str) and isinstance(run_id, str)
    return (session_id, run_id) if is_valid else None


def _id(run_or_confirmation_id: str) -> str:
    """Return the ID of the webhook about the end of a run, or about the request for an approval."""
    return f"msg_{run_or_confirmation_id}"
