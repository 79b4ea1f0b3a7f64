"""Safe file operations: private directories, atomic replacement, durable appending, and reading
that accepts only regular files.
"""

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from mochi_server.errors import StorageFailed
from mochi_server.util.clock import new_id
from mochi_server.util.platform import OPEN_SAFELY, sync_directory

# Suffix of files that are still being written. After a crash, such files may be removed.
TEMPORARY = ".tmp"

_OPEN_REJECTS_LINKS = hasattr(os, "O_NOFOLLOW")
_NOT_A_FILE = {errno.ENOENT, errno.EISDIR, errno.ELOOP, errno.EMLINK, errno.ENXIO}
"""Error numbers of ``open`` for a missing file, a directory, a socket or a symlink, which depend on
the system.
"""


class Signature(NamedTuple):
    """Inode, modification time and size of a file, which together identify one version of its
    content.
    """

    inode: int
    modified_ns: int
    size: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Signature":
        return cls(status.st_ino, status.st_mtime_ns, status.st_size)

    @property
    def text(self) -> str:
        """Text for databases whose integers have 63 bits. Some inodes and times are larger."""
        return f"{self.inode} {self.modified_ns} {self.size}"


@contextmanager
def storage_errors(operation: str) -> Iterator[None]:
    """Convert each OSError of the ``with`` body to ``StorageFailed``."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(operation, error) from error


def signature(path: str | Path) -> Signature | None:
    """Return the signature of a regular file, or None if ``path`` is missing or no regular file.

    Raises OSError.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return Signature.of(status) if stat.S_ISREG(status.st_mode) else None


def read(path: str | Path) -> tuple[bytes, Signature] | None:
    """Return the content and signature of a file, or None if ``path`` is missing or no regular
    file.

    Raises OSError.
    """
    if not _OPEN_REJECTS_LINKS and signature(path) is None:
        return None
    try:
        with open(
            path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | OPEN_SAFELY)
        ) as file:
            status = os.fstat(file.fileno())
            return (file.readall(), Signature.of(status)) if stat.S_ISREG(status.st_mode) else None
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            return None
        raise


def create_directory(path: Path) -> None:
    """Create a directory and its missing parents with mode 0700. Raises OSError.

    Existing directories stay as they are.
    """
    for directory in (*reversed(path.parents), path):
        directory.mkdir(mode=0o700, exist_ok=True)


def write(path: str | Path, data: bytes) -> Signature:
    """Create or replace a file atomically and durably, with mode 0600. Raises OSError."""
    directory, name = os.path.split(path)  # a `Path` would take longer for each of a turn's writes
    temporary = os.path.join(directory, f".{os.path.splitext(name)[0]}.{new_id(32)}{TEMPORARY}")
    try:
        written = write_new(temporary, data)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    sync_directory(directory)
    return written


def write_new(path: str | Path, data: bytes) -> Signature:
    """Create a file with mode 0600 and sync its content to disk, but not its directory entry.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_SAFELY, 0o600)
    try:
        _write_all(descriptor, data)
        # The kernel's clock is coarse. If an inode is reused, two files could otherwise have the
        # same signature.
        now = time.time_ns()
        os.utime(descriptor if os.utime in os.supports_fd else path, ns=(now, now))
        os.fsync(descriptor)
        return Signature.of(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def append(path: str, line: bytes, size: int = 0, *, durably: bool = True) -> Signature:
    """Append a line to a file of ``size`` bytes.

    If the size is 0, create a missing file. Raises OSError, and then restores the earlier content.

    If ``durably`` is false, the line survives a crash of the process, but not of the machine.
    """
    creation = 0 if size else os.O_CREAT
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | creation | OPEN_SAFELY, 0o600)
    try:
        _write_all(descriptor, line)
        if durably:
            os.fsync(descriptor)
            if not size:
                sync_directory(os.path.dirname(path))
        return Signature.of(os.fstat(descriptor))
    except BaseException:
        with suppress(OSError):
            os.ftruncate(descriptor, size)
        raise
    finally:
        os.close(descriptor)


def remove(path: str | Path) -> None:
    """Remove a file, if it exists. Raises OSError."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def remove_durably(*paths: str | Path) -> None:
    """Remove files of one directory durably, in the given order. Raises OSError."""
    for path in paths:
        remove(path)
    sync_directory(os.path.dirname(paths[0]))


def remove_temporary(directory: Path) -> None:
    """Remove the temporary files of a killed process from a directory, if possible."""
    with suppress(OSError):
        for path in directory.glob(f".*{TEMPORARY}"):
            remove(path)


def quarantine(file: str) -> Path:
    """Rename a file to ``<name without leading dots>.corrupt-<UTC time>``. Return the new path.

    Raises OSError.
    """
    now = datetime.now(timezone.utc)
    moment = now.strftime("%Y%m%dT%H%M%S.%fZ")  # microseconds, so that no file is replaced
    path = Path(file)
    return path.rename(path.with_name(f"{path.name.lstrip('.')}.corrupt-{moment}"))


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
