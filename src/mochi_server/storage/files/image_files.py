"""Image files of a sessions directory: ``blobs/<sha256>``.

Several sessions may reference the same file.

A sweep removes the images that no session file references. During the sweep, a lock prevents new
references. Reference counts are not used: they would be wrong after a crash, or after a user copies
a session file.
"""

import logging
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mochi_server.errors import BlobNotFound
from mochi_server.sessions.types import Blob, Message, blobs_in, is_sha256
from mochi_server.storage.files import atomic_files
from mochi_server.util.platform import sync_directory

_REFERENCE = re.compile(rb'"(?:text_)?sha256"\s*:\s*"([0-9a-f]{64})"')
# Part of the names of files that may reference images: sessions, turn logs, damaged sessions.
_SESSION = ".json"

logger = logging.getLogger(__name__)


class ImageFiles:
    """Store of the images in a sessions directory. Its methods block."""

    def __init__(self, sessions: Path) -> None:
        self._sessions = sessions
        self._path = sessions / "blobs"
        self._lock = threading.RLock()
        self._references: dict[str, tuple[atomic_files.Signature, set[bytes]]] = {}
        """Cache of the images that each session file references, by file name.

        A sweep reads only changed files.
        """

    def read(self, name: str) -> bytes:
        """Return the content of an image.

        Raises ``BlobNotFound`` if it is missing or ``name`` is not a SHA-256 hash, and OSError.
        """
        file = atomic_files.read(self._path / name) if is_sha256(name) else None
        if file is None:
            raise BlobNotFound(name)
        return file[0]

    @contextmanager
    def storing(self, messages: Iterable[Message], images: Sequence[Blob] = ()) -> Iterator[None]:
        """Store ``images``, then prevent sweeps while the ``with`` body stores ``messages``.

        Without images and references to images, do neither. Raises OSError.
        """
        if not images and not blobs_in(messages):
            yield
            return
        with self._lock:
            if images and not self._path.exists():
                self._path.mkdir(mode=0o700)
                sync_directory(self._sessions)
            for image in images:
                stored = atomic_files.signature(self._path / image.sha256)
                if stored is None or stored.size != len(image.data):
                    atomic_files.write(self._path / image.sha256, image.data)
            yield

    def sweep(self) -> None:
        """Remove unreferenced images and all temporary files. I/O errors are logged."""
        try:
            if not self._stored_files():
                return
            self._read_references()  # reads most files before the lock delays turns with images
            with self._lock:
                referenced = self._read_references()
                if unused := [
                    path for path in self._stored_files() if path.name.encode() not in referenced
                ]:
                    atomic_files.remove_durably(*unused)
        except OSError as error:
            logger.warning(
                "unused images not removed, will retry: %s", error.strerror or type(error).__name__
            )

    def _stored_files(self) -> list[Path]:
        files = self._path.iterdir() if self._path.is_dir() else ()
        own = [
            path for path in files if is_sha256(path.name) or path.suffix == atomic_files.TEMPORARY
        ]
        return [path for path in own if atomic_files.signature(path) is not None]  # not a directory

    def _read_references(self) -> set[bytes]:
        references = {}
        # Data moves from logs to files. The names of logs begin with a dot, so that they are read
        # first.
        for name in sorted(path.name for path in self._sessions.iterdir() if _SESSION in path.name):
            path = self._sessions / name
            if (current := atomic_files.signature(path)) is None:
                continue
            cached = self._references.get(name)
            if cached is None or cached[0] != current:
                content, _ = atomic_files.read(path) or (b"", None)
                cached = current, set(_REFERENCE.findall(content))
            references[name] = cached
        self._references = references
        return {image for _, images in references.values() for image in images}
