"""The images of a sessions directory: ``blobs/<sha256>``, each stored once and kept while a session names it.

The session files say which images are needed, and are read under a lock that also covers writing a new reference.
A count could be wrong after a crash, or after a session was restored or copied by hand. A crash leaves at worst an
image that no session names, which the next sweep removes.
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
from mochi_server.storage.files.locks import FileLocks
from mochi_server.util.platform import sync_directory

_NAMED = re.compile(rb'"sha256"\s*:\s*"([0-9a-f]{64})"')
STAGED = ".import-"
"""Begins the names of directories with the files of sessions that are being imported."""
_SESSION = ".json"
"""In the name of every file that may name images: sessions, turn logs, and what was set aside as damaged."""

logger = logging.getLogger(__name__)


class ImageFiles:
    """The images beside the sessions of a directory. Blocks; for threads."""

    def __init__(self, sessions: Path, locks: FileLocks) -> None:
        self._sessions = sessions
        self._path = sessions / "blobs"
        self._locks = locks
        self._known: dict[str, tuple[atomic_files.Signature, frozenset[str]]] = {}
        """What files name, so that a sweep reads only those that have changed."""

    def read(self, name: str) -> bytes:
        found = atomic_files.read(self._path / name) if is_sha256(name) else None
        if found is None:
            raise BlobNotFound(name)
        return found[0]

    @contextmanager
    def storing(self, messages: Iterable[Message], images: Sequence[Image] = ()) -> Iterator[None]:
        """Store images; none goes until this ends, by when the messages that name them are written. Raises OSError."""
        if not images and not images_in(messages):
            yield
            return
        with self._locks.blobs():
            self._store(images)
            yield

    def named_in(self, *paths: Path) -> bool:
        """Whether files of sessions name images, or may do so."""
        try:
            return self._path.exists() and any(map(_names, paths))
        except OSError:
            return True

    def sweep(self) -> None:
        """Remove the images that no session names, and what a killed process has half written.

        A medium that fails leaves them for the next time. Raises StorageBusy.
        """
        try:
            if not self._stored_files():
                return
            with self._locks.blobs():
                needed = self._referenced()
                if unneeded := [path for path in self._stored_files() if path.name not in needed]:
                    atomic_files.remove_durably(*unneeded)
        except OSError as error:
            logger.warning("images that no session needs stay for now: %s", error.strerror or type(error).__name__)

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
        """Return the files that this class wrote, or began to write."""
        if not self._path.is_dir():
            return []
        return [
            path for path in self._path.iterdir() if is_sha256(path.name) or path.name.endswith(atomic_files.TEMPORARY)
        ]

    def _referenced(self) -> set[str]:
        """Return every image that a session names. Raises OSError if a file cannot be read."""
        known: dict[str, tuple[atomic_files.Signature, frozenset[str]]] = {}
        # Files move from imports to sessions, and changes from logs (whose names begin with a dot) to files: in this
        # order, what moves meanwhile is seen in one of the two places.
        for folder in (*self._sessions.glob(f"{STAGED}*"), self._sessions):
            with suppress(FileNotFoundError):  # the import has ended
                for name in sorted(path.name for path in folder.iterdir() if _SESSION in path.name):
                    if (seen := atomic_files.signature(folder / name)) is not None:
                        before = self._known.get(name)
                        known[name] = before if before and before[0] == seen else (seen, _names(folder / name))
        self._known = known
        return {image for _, images in known.values() for image in images}


def _names(path: Path) -> frozenset[str]:
    """Return the images that a file names, even if it is damaged. Raises OSError."""
    found = atomic_files.read(path)
    return frozenset() if found is None else frozenset(name.decode() for name in _NAMED.findall(found[0]))
