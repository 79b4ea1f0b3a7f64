"""Atomic import of many new sessions into a directory.

The files are written to the directory ``.import-<id>.tmp/``. Renaming it to ``.import-<id>/`` commits the import. Then
each file is moved to the sessions directory. After a crash, the next start of a server moves the remaining files.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import NewSession, normalized
from mochi_server.storage.files import atomic_files
from mochi_server.storage.files.image_files import IMPORT_PREFIX, ImageFiles
from mochi_server.storage.files.locks import ThreadLocks
from mochi_server.storage.session_record import SessionRecord
from mochi_server.util.clock import new_id
from mochi_server.util.platform import sync_directory

_SYNC_THREADS = 16  # concurrent fsync calls take a tenth of the time of sequential ones


@dataclass
class ImportStaging:
    """Importer of sessions into one directory. A lock allows one import at a time."""

    sessions: Path
    locks: ThreadLocks
    blobs: ImageFiles

    def store(self, sessions: Sequence[NewSession], check: Callable[[], None]) -> list[ChatSession]:
        """Store all new sessions, or none of them after an error or if ``check`` raises an exception.

        Sessions whose id is in use get a new id. Raises OSError.
        """
        with self.locks.imports:
            self._recover()
            staging = self.sessions / f"{IMPORT_PREFIX}{new_id()}"
            unfinished = staging.with_suffix(atomic_files.TEMPORARY)
            try:
                stored = self._stage(unfinished, sessions, check)
                unfinished.rename(staging)
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)
                raise
            self._publish_or_undo(staging)
        return stored

    def recover(self) -> None:
        """Complete committed imports of dead processes and remove uncommitted ones. Raises OSError."""
        with self.locks.imports:
            self._recover()

    def _recover(self) -> None:
        for path in sorted(self.sessions.glob(f"{IMPORT_PREFIX}*")):
            if path.suffix == atomic_files.TEMPORARY:
                shutil.rmtree(path)
            else:
                self._publish(path)

    def _stage(self, folder: Path, sessions: Sequence[NewSession], check: Callable[[], None]) -> list[ChatSession]:
        folder.mkdir(mode=0o700)
        stored = []
        for session, images in sessions:
            check()
            fresh = normalized(session)
            while not self._is_free(folder, fresh.session_id):
                fresh.metadata.session_id = new_id()
            with self.blobs.storing(fresh.messages, images):
                atomic_files.write_new(
                    folder / f"{fresh.session_id}.json", SessionRecord.of(fresh).file(), durably=False
                )
            stored.append(fresh)
        with ThreadPoolExecutor(_SYNC_THREADS) as threads:
            list(threads.map(atomic_files.sync, folder.iterdir()))
        sync_directory(folder)
        check()
        return stored

    def _is_free(self, folder: Path, session_id: str) -> bool:
        names = f"{session_id}.json", f".{session_id}.turn.jsonl"
        return not any(os.path.lexists(place / name) for place in (self.sessions, folder) for name in names)

    def _publish_or_undo(self, staging: Path) -> None:
        names = [path.name for path in staging.iterdir()]
        try:
            self._publish(staging)
        except OSError:
            # Move the files back and undo the commit. If this fails, the next start publishes all files.
            for name in names:
                with suppress(FileNotFoundError):
                    (self.sessions / name).rename(staging / name)
            shutil.rmtree(staging.rename(staging.with_suffix(atomic_files.TEMPORARY)))
            raise

    def _publish(self, staging: Path) -> None:
        sync_directory(self.sessions)
        for path in staging.iterdir():
            path.rename(self.sessions / path.name)
        sync_directory(self.sessions)
        staging.rmdir()
