"""Files that are whole or not there: atomic replacement, durable appending, safe reading. Knows no sessions."""

import errno
import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from mochi_server.util.platform import OPEN_SAFELY, sync_directory

_TICK_NS = 20_000_000
"""More than any kernel's clock takes for a step: files that are written twice within one have one time."""

TEMPORARY = ".tmp"
"""Suffix of files that are being written; one of a killed process may be removed at any time."""

_REFUSES_LINKS = hasattr(os, "O_NOFOLLOW")
_IS_NO_FILE = {errno.ENOENT, errno.ELOOP, errno.EMLINK, errno.ENXIO}
"""What opening nothing, a symlink (its own number on some systems) or a socket fails with."""


class Signature(NamedTuple):
    """Tells one state of a file from another without reading it."""

    inode: int
    modified_ns: int
    size: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Signature":
        return cls(status.st_ino, status.st_mtime_ns, status.st_size)

    @property
    def is_settled(self) -> bool:
        """Whether a file that is changed from now on cannot have this signature."""
        return time.time_ns() - self.modified_ns > _TICK_NS


def signature(path: str | Path) -> Signature | None:
    """A regular file's signature; None for anything else, symlinks included. Raises OSError."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return Signature.of(status) if stat.S_ISREG(status.st_mode) else None


def read(path: str | Path) -> tuple[bytes, Signature] | None:
    """A regular file's content; None for anything else, symlinks included. Raises OSError."""
    if not _REFUSES_LINKS and signature(path) is None:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | OPEN_SAFELY)
    except OSError as error:
        if error.errno in _IS_NO_FILE:
            return None
        raise
    try:
        status = os.fstat(descriptor)
        return (_read_all(descriptor, status.st_size), Signature.of(status)) if stat.S_ISREG(status.st_mode) else None
    finally:
        os.close(descriptor)


def write(path: Path, data: bytes) -> Signature:
    """Replace a file, durably and as a whole; private to its owner. Raises OSError, the old file untouched."""
    temporary = path.with_name(f".{path.stem}.{uuid4().hex}{TEMPORARY}")
    try:
        write_new(temporary, data)
        written = Signature.of(temporary.lstat())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
    return written


def check(directory: Path) -> None:
    """Write a small file and remove it; it need not last, so nothing waits for the disk. Raises OSError."""
    probe = directory / f".check.{uuid4().hex}{TEMPORARY}"
    try:
        with probe.open("xb") as file:
            file.write(b"can be written")
    finally:
        probe.unlink(missing_ok=True)


def append(path: Path, line: bytes, *, durably: bool = True) -> Signature:
    """Add a line to a file, which is created if need be. Raises OSError, the file unchanged.

    Without ``durably`` the line survives the process, but not the machine. A torn line that a crash has left is first
    closed with a ``#``, so that it never becomes JSON.
    """
    is_new = signature(path) is None
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | OPEN_SAFELY, 0o600)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
        if size and os.lseek(descriptor, -1, os.SEEK_END) >= 0 and os.read(descriptor, 1) != b"\n":
            line = b"#\n" + line
        try:
            _write_all(descriptor, line)
            if durably:
                os.fsync(descriptor)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
        if is_new and durably:
            sync_directory(path.parent)
        return Signature.of(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def remove_durably(*paths: Path) -> None:
    """Remove files of one directory in this order, durably. Raises OSError."""
    for path in paths:
        path.unlink(missing_ok=True)
    sync_directory(paths[0].parent)


def set_aside(path: Path, label: str) -> Path:
    """Rename a file to ``<name>.<label>-<UTC time>``, replacing nothing. Raises OSError."""
    stem = f"{path.name.lstrip('.')}.{label}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    target, number = path.with_name(stem), 1
    while os.path.lexists(target):
        target, number = path.with_name(f"{stem}-{number}"), number + 1
    path.rename(target)
    return target


def write_new(path: Path, data: bytes, *, durably: bool = True) -> None:
    """Make a file, private to its owner; with ``durably`` its content is durable, its name is not. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_SAFELY, 0o600)
    try:
        _write_all(descriptor, data)
        if durably:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    # The kernel's clock ticks every few milliseconds and inodes are reused: only this makes signatures differ.
    moment = time.time_ns()
    os.utime(path, ns=(moment, moment))


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | OPEN_SAFELY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_all(descriptor: int, size: int) -> bytes:
    parts = [os.read(descriptor, size + 1)]
    while len(parts[0]) != size and parts[-1]:
        parts.append(os.read(descriptor, size + 1))
    return b"".join(parts)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
