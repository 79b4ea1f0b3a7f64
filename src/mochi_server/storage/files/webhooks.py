"""Outbox of webhooks in files."""

import asyncio
import logging
import time
from contextlib import suppress
from pathlib import Path

from mochi_server.errors import StorageFailed
from mochi_server.sessions.store import Webhook, WebhookOutbox
from mochi_server.storage.files import atomic_files

logger = logging.getLogger(__name__)


class FileWebhookOutbox(WebhookOutbox):
    """``WebhookOutbox`` with one file for each webhook. After a restart, all of them are due at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: dict[str, tuple[float, Webhook]] | None = None  # by ID, with the time of the next attempt

    async def add(self, webhook_id: str, body: str) -> None:
        def write() -> None:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic_files.write(self._file(webhook_id), body.encode())

        try:
            await asyncio.to_thread(write)
        except OSError as error:
            raise StorageFailed("store a webhook", error) from error
        if self._pending is not None:
            self._pending[webhook_id] = 0, Webhook(webhook_id, body, 0)

    async def claim(self, seconds: float) -> Webhook | None:
        if self._pending is None:
            self._pending = dict[str, tuple[float, Webhook]]()
            self._pending.update(await asyncio.to_thread(self._read))
        due, webhook = min(self._pending.values(), default=(0, None))
        if webhook is None or due > time.monotonic():
            return None
        claimed = webhook._replace(attempts=webhook.attempts + 1)
        await self.defer(claimed, seconds)
        return claimed

    async def defer(self, webhook: Webhook, seconds: float) -> None:
        if self._pending is not None:
            self._pending[webhook.webhook_id] = time.monotonic() + seconds, webhook

    async def remove(self, webhook: Webhook) -> None:
        with suppress(OSError):  # after a restart, the receiver recognizes the repeated webhook by its ID
            await asyncio.to_thread(self._file(webhook.webhook_id).unlink, missing_ok=True)
        if self._pending is not None:
            self._pending.pop(webhook.webhook_id, None)

    def _read(self) -> dict[str, tuple[float, Webhook]]:
        found = {path.stem: atomic_files.read(path) for path in self._path.glob("*.json")}
        return {name: (0, Webhook(name, file[0].decode(), 0)) for name, file in found.items() if file is not None}

    def _file(self, webhook_id: str) -> Path:
        return self._path / f"{webhook_id}.json"
