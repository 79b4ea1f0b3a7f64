"""Atomic import of many new sessions into a directory.

The files are written to the directory ``.import-<id>.tmp/``. Renaming it to ``.import-<id>/`` commits the import. Then
each file is moved to the sessions directory. After a crash, the next process that locks the directory moves the rest.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import NewSession, normalized
from mochi_server.storage.files import atomic_files
from mochi_server.storage.files.image_files import ImageFiles
from mochi_server.storage.session_record import SessionRecord
from mochi_server.util.clock import new_id
from mochi_server.util.platform import sync_directory

IMPORT_PREFIX = ".import-"
_WRITE_THREADS = 16  # concurrent fsync calls take a tenth of the time of sequential ones


def import_all(
    directory: Path, blobs: ImageFiles, sessions: Sequence[NewSession], check: Callable[[], None]
) -> list[ChatSession]:
    """Store all new sessions, or none of them after an error. Sessions whose id is in use get a new id."""
    staging = directory / f"{IMPORT_PREFIX}{new_id()}"
    unfinished = staging.with_suffix(atomic_files.TEMPORARY)
    messages = (message for session, _ in sessions for message in session.messages)
    with blobs.storing(messages, [image for _, images in sessions for image in images]):
        try:
            stored = _stage(directory, unfinished, sessions, check)
            unfinished.rename(staging)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        try:
            _publish(staging)
        except OSError:
            shutil.rmtree(staging, ignore_errors=True)
            atomic_files.remove_durably(*(directory / f"{session.session_id}.json" for session in stored))
            raise
    return stored


def recover_imports(directory: Path) -> None:
    """Complete the committed imports of a dead process, and remove its uncommitted ones. Raises OSError."""
    for path in sorted(directory.glob(f"{IMPORT_PREFIX}*")):
        if path.suffix == atomic_files.TEMPORARY:
            shutil.rmtree(path)
        else:
            _publish(path)


def _stage(
    directory: Path, folder: Path, sessions: Sequence[NewSession], check: Callable[[], None]
) -> list[ChatSession]:
    folder.mkdir(mode=0o700)
    stored: dict[str, ChatSession] = {}
    with ThreadPoolExecutor(_WRITE_THREADS) as threads:
        writes = []
        for session, _ in sessions:
            check()
            fresh = normalized(session)
            while fresh.session_id in stored or os.path.lexists(directory / f"{fresh.session_id}.json"):
                fresh.metadata.session_id = new_id()
            stored[fresh.session_id] = fresh
            path = folder / f"{fresh.session_id}.json"
            writes.append(threads.submit(atomic_files.write_new, path, SessionRecord.of(fresh).file()))
    for write in writes:
        write.result()
    sync_directory(folder)
    check()
    return list(stored.values())


def _publish(staging: Path) -> None:
    sync_directory(staging.parent)
    for path in staging.iterdir():
        path.rename(staging.parent / path.name)
    sync_directory(staging.parent)
    staging.rmdir()
