"""Secrets in files that only the user of the server can read."""

import asyncio
from pathlib import Path

from mochi_server.sessions.store import SecretStore
from mochi_server.storage.files import atomic_files
from mochi_server.util.tasks import run_shielded


class FileSecretStore(SecretStore):
    """``SecretStore`` in a directory with mode 0700, whose files have mode 0600.

    The first secret creates the directory.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)

    async def get(self, key: str) -> bytes | None:
        with atomic_files.storage_errors("read an authorization"):
            found = await asyncio.to_thread(atomic_files.read, self._path(key))
        return found[0] if found else None

    async def put(self, key: str, data: bytes) -> None:
        with atomic_files.storage_errors("store an authorization"):
            await run_shielded(asyncio.to_thread(self._write, key, data))

    async def remove(self, key: str) -> None:
        with atomic_files.storage_errors("remove an authorization"):
            await run_shielded(asyncio.to_thread(atomic_files.remove, self._path(key)))

    def _write(self, key: str, data: bytes) -> None:
        atomic_files.create_directory(self._directory)
        atomic_files.write(self._path(key), data)

    def _path(self, key: str) -> Path:
        return self._directory / f"{key}.json"
