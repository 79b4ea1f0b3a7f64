"""Outbox of webhooks in files."""

import asyncio
import time
from pathlib import Path

from mochi_server.sessions.store import WebhookOutbox, is_webhook_id
from mochi_server.storage.files import atomic_files


class FileWebhookOutbox(WebhookOutbox):
    """``WebhookOutbox`` with one file for each webhook. After a restart, all webhooks are due at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._due: dict[str, float] = {}  # Unix times by webhook ID

    async def add(self, webhook_id: str, body: str, *, seconds: float = 0) -> None:
        with atomic_files.storage_errors("store a webhook"):
            await asyncio.to_thread(self._path.mkdir, mode=0o700, parents=True, exist_ok=True)
            due = time.time() + seconds
            self._due.setdefault(webhook_id, due)
            await asyncio.to_thread(atomic_files.write, self._file(webhook_id), body.encode())
            self._due[webhook_id] = due  # not before the write: a claim would return the body that is replaced

    async def claim(self, seconds: float) -> tuple[str, str] | None:
        with atomic_files.storage_errors("read the webhooks"):
            return await asyncio.to_thread(self._claim, seconds)

    async def remove(self, webhook_id: str) -> None:
        with atomic_files.storage_errors("remove a webhook"):
            await asyncio.to_thread(self._file(webhook_id).unlink, missing_ok=True)
        self._due.pop(webhook_id, None)

    def _claim(self, seconds: float) -> tuple[str, str] | None:
        now = time.time()
        paths = [path for path in self._path.glob("*.json") if is_webhook_id(path.stem)]
        for due, path in sorted((self._due.get(path.stem, 0), path) for path in paths):
            if due > now:
                break
            self._due[path.stem] = now + seconds
            if file := atomic_files.read(path):  # the entry may be a directory, a FIFO or a link
                return path.stem, file[0].decode(errors="replace")
        return None

    def _file(self, webhook_id: str) -> Path:
        return self._path / f"{webhook_id}.json"
