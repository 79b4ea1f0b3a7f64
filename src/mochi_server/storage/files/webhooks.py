"""Outbox of webhooks in files."""

import asyncio
import os
import time
from pathlib import Path

from mochi_server.errors import StorageFailed
from mochi_server.sessions.store import WebhookOutbox
from mochi_server.storage.files import atomic_files


class FileWebhookOutbox(WebhookOutbox):
    """``WebhookOutbox`` with one file for each webhook. A webhook is due at the modification time of its file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def add(self, webhook_id: str, body: str) -> None:
        try:
            await asyncio.to_thread(self._path.mkdir, mode=0o700, parents=True, exist_ok=True)
            await asyncio.to_thread(atomic_files.write, self._path / f"{webhook_id}.json", body.encode())
        except OSError as error:
            raise StorageFailed("store a webhook", error) from error

    async def claim(self, seconds: float) -> tuple[str, str] | None:
        try:
            return await asyncio.to_thread(self._claim, seconds)
        except OSError as error:
            raise StorageFailed("read the webhooks", error) from error

    async def defer(self, webhook_id: str, seconds: float) -> None:
        due = time.time() + seconds
        os.utime(self._path / f"{webhook_id}.json", (due, due))

    async def remove(self, webhook_id: str) -> None:
        await asyncio.to_thread((self._path / f"{webhook_id}.json").unlink, missing_ok=True)

    def _claim(self, seconds: float) -> tuple[str, str] | None:
        now = time.time()
        due, path = min(((each.stat().st_mtime, each) for each in self._path.glob("*.json")), default=(now, None))
        if path is None or due > now:
            return None
        os.utime(path, (now + seconds, now + seconds))
        return path.stem, path.read_text(errors="replace")
