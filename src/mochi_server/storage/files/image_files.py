"""Image files of a sessions directory: ``blobs/<sha256>``. Several sessions may reference the same file.

A sweep removes the images that no session file references. During the sweep, a lock prevents new references. Reference
counts are not used: they would be wrong after a crash, or after a user copies a session file.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mochi_server.errors import BlobNotFound
from mochi_server.sessions.images import Image, images_in, is_sha256
from mochi_server.sessions.types import Message
from mochi_server.storage.files import atomic_files
from mochi_server.storage.files.locks import ThreadLocks
from mochi_server.util.platform import sync_directory

_REFERENCE = re.compile(rb'"sha256"\s*:\s*"([0-9a-f]{64})"')
IMPORT_PREFIX = ".import-"
"""Prefix of the names of directories that contain the session files of an import."""
_SESSION = ".json"  # part of the name of every file that may reference images: sessions, turn logs and damaged sessions

logger = logging.getLogger(__name__)


class ImageFiles:
    """Store of the images in a sessions directory. Its methods block."""

    def __init__(self, sessions: Path, locks: ThreadLocks) -> None:
        self._sessions = sessions
        self._path = sessions / "blobs"
        self._locks = locks
        self._references: dict[str, tuple[atomic_files.Signature, frozenset[str]]] = {}
        """Cache of the images that each session file references, by file name. A sweep reads only changed files."""

    def read(self, name: str) -> bytes:
        file = atomic_files.read(self._path / name) if is_sha256(name) else None
        if file is None:
            raise BlobNotFound(name)
        return file[0]

    @contextmanager
    def storing(self, messages: Iterable[Message], images: Sequence[Image] = ()) -> Iterator[None]:
        """Store ``images``. Prevent sweeps while the ``with`` body stores ``messages``. Raises OSError."""
        if not images and not images_in(messages):
            yield
            return
        with self._locks.images:
            self._store(images)
            yield

    def may_be_referenced_in(self, *paths: Path) -> bool:
        """Return whether one of the session files ``paths`` references an image or is unreadable."""
        try:
            return self._path.exists() and any(map(_references_in, paths))
        except OSError:
            return True

    def sweep(self) -> None:
        """Remove unreferenced images and temporary files. I/O errors are logged."""
        try:
            if not self._stored_files():
                return
            self._read_references()  # reads most files before the lock delays turns with images
            with self._locks.images:
                referenced = self._read_references()
                if unused := [path for path in self._stored_files() if path.name not in referenced]:
                    atomic_files.remove_durably(*unused)
        except OSError as error:
            logger.warning("unused images not removed, will retry: %s", error.strerror or type(error).__name__)

    def _store(self, images: Sequence[Image]) -> None:
        if images and not self._path.exists():
            self._path.mkdir(mode=0o700, exist_ok=True)
            sync_directory(self._sessions)
        for image in images:
            path = self._path / image.sha256
            stored = atomic_files.signature(path)
            if stored is None or stored.size != len(image.data):
                atomic_files.write(path, image.data)

    def _stored_files(self) -> list[Path]:
        files = self._path.iterdir() if self._path.is_dir() else ()
        return [path for path in files if is_sha256(path.name) or path.suffix == atomic_files.TEMPORARY]

    def _read_references(self) -> set[str]:
        """Return the names of all referenced images. Raises OSError if a file cannot be read."""
        references: dict[str, tuple[atomic_files.Signature, frozenset[str]]] = {}
        # Data moves from imports to sessions, and from logs (sorted first by their dot) to files: read in that order.
        for folder in (*self._sessions.glob(f"{IMPORT_PREFIX}*"), self._sessions):
            with suppress(FileNotFoundError):  # the import has ended
                for name in sorted(path.name for path in folder.iterdir() if _SESSION in path.name):
                    if (current := atomic_files.signature(folder / name)) is not None:
                        cached = self._references.get(name)
                        is_current = cached and cached[0] == current
                        references[name] = cached if cached and is_current else (current, _references_in(folder / name))
        self._references = references
        return {image for _, images in references.values() for image in images}


def _references_in(path: Path) -> frozenset[str]:
    """Return the names of the images that a file references, even if the file is damaged. Raises OSError."""
    file = atomic_files.read(path)
    return frozenset() if file is None else frozenset(name.decode() for name in _REFERENCE.findall(file[0]))
