"""Safe file operations: atomic replacement, durable appending, and reading that accepts only regular files."""

import errno
import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mochi_server.util.clock import new_id
from mochi_server.util.platform import OPEN_SAFELY, sync_directory

_TICK_NS = 20_000_000  # maximum length of a kernel clock tick, in which all writes have the same modification time
_COARSE_TICK_NS = 2_000_000_000  # the same for file systems that store times in steps of one or two seconds
TEMPORARY = ".tmp"
"""Suffix of files that are still being written. Such files that remain after a crash may be removed at any time."""

_OPEN_REJECTS_LINKS = hasattr(os, "O_NOFOLLOW")
_NOT_A_FILE = {errno.ENOENT, errno.EISDIR, errno.ELOOP, errno.EMLINK, errno.ENXIO}
"""Error numbers of ``open`` for a missing file, a directory, a socket or a symlink, which depend on the system."""


class Signature(NamedTuple):
    """Inode, modification time and size of a file, which together identify one version of its content."""

    inode: int
    modified_ns: int
    size: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Signature":
        return cls(status.st_ino, status.st_mtime_ns, status.st_size)

    @property
    def is_settled(self) -> bool:
        """Whether the file is old enough that every later change results in a different signature."""
        is_coarse = self.modified_ns % 1_000_000_000 == 0
        return time.time_ns() - self.modified_ns > (_COARSE_TICK_NS if is_coarse else _TICK_NS)


def signature(path: str | Path) -> Signature | None:
    """Return the signature of a regular file, or None if ``path`` is missing or no regular file. Raises OSError."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return Signature.of(status) if stat.S_ISREG(status.st_mode) else None


def read(path: str | Path) -> tuple[bytes, Signature] | None:
    """Return the content and signature of a file, or None if ``path`` is missing or no regular file. Raises OSError."""
    if not _OPEN_REJECTS_LINKS and signature(path) is None:
        return None
    try:
        with open(path, "rb", buffering=0, opener=_open_safely) as file:
            status = os.fstat(file.fileno())
            return (file.readall(), Signature.of(status)) if stat.S_ISREG(status.st_mode) else None
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            return None
        raise


def write(path: Path, data: bytes) -> Signature:
    """Create or replace a file atomically and durably, with mode 0600.

    After an OSError, the file has its old content, or its new content if only the sync of its directory failed.
    """
    temporary = path.with_name(f".{path.stem}.{new_id(32)}{TEMPORARY}")
    try:
        written = write_new(temporary, data)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
    return written


def append(path: Path, line: bytes, *, durably: bool = True) -> Signature:
    """Append a line to a file, creating a missing file. After an OSError, the file is unchanged.

    If ``durably`` is false, the line survives a crash of the process, but not of the machine. If the file ends with an
    incomplete line, that line is first ended with ``#``, so that it never becomes valid JSON.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | OPEN_SAFELY, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if size:
            os.lseek(descriptor, size - 1, os.SEEK_SET)
            if os.read(descriptor, 1) != b"\n":
                line = b"#\n" + line
        try:
            _write_all(descriptor, line)
            if durably:
                os.fsync(descriptor)
                if not size:
                    sync_directory(path.parent)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
        return Signature.of(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def remove_durably(*paths: Path) -> None:
    """Remove files of one directory durably, in the given order. Raises OSError."""
    for path in paths:
        path.unlink(missing_ok=True)
    sync_directory(paths[0].parent)


def quarantine(path: Path, label: str) -> Path:
    """Rename a file to ``<name>.<label>-<UTC time>`` or a similar free name. Return the new path. Raises OSError."""
    stem = f"{path.name.lstrip('.')}.{label}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    target, number = path.with_name(stem), 1
    while os.path.lexists(target):
        target, number = path.with_name(f"{stem}-{number}"), number + 1
    path.rename(target)
    return target


def write_new(path: Path, data: bytes, *, durably: bool = True) -> Signature:
    """Create a file with mode 0600 and return its signature. Raises OSError.

    If ``durably`` is true, the content is synced to disk, but the directory entry is not. If the file system stores
    times in coarse steps, a later write may have the same signature. The returned signature then matches no file.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_SAFELY, 0o600)
    try:
        _write_all(descriptor, data)
        # With the kernel's coarse clock and a reused inode, two files could otherwise have the same signature.
        moment = time.time_ns() // 1000 * 1000  # file systems such as NTFS do not store nanoseconds
        os.utime(descriptor if os.utime in os.supports_fd else path, ns=(moment, moment))
        if durably:
            os.fsync(descriptor)
        written = Signature.of(os.fstat(descriptor))
        return written if written.modified_ns == moment else written._replace(modified_ns=-1)
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | OPEN_SAFELY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open_safely(path: str, flags: int) -> int:
    return os.open(path, flags | OPEN_SAFELY)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
