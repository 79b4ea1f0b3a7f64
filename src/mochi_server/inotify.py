"""What changes in a directory, as Linux tells, so that who knows its files need not look at all of them again."""

import ctypes
import os
import struct
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x2, 0x4, 0x8, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_WATCHED = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
_UNMOUNT, _OVERFLOW, _IGNORED = 0x2000, 0x4000, 0x8000
_TOLD_TOO_LITTLE = _DELETE_SELF | _MOVE_SELF | _UNMOUNT | _OVERFLOW | _IGNORED
_ONLY_DIRECTORIES = 0x1000000
_EVENT = struct.Struct("iIII")
_READ_BYTES = 64 * 1024
_LOCAL = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994, 0x794C7630})
"""ext2 to ext4, XFS, Btrfs, F2FS, tmpfs, overlayfs: nobody writes there without this kernel's knowledge."""
_STATFS_BYTES = 256


class DirectoryWatch:
    """The names in a directory that something has happened to. For one thread at a time; never blocks.

    Not told of is what is written through a memory map or by way of a hard link elsewhere.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._close: Callable[[], object] = lambda: None
        self._watched: tuple[int, ...] | None = None

    def changed(self) -> set[str] | None:
        """Names since the last call; None where nobody can tell, as at the first call. Never raises."""
        if self._descriptor is not None and self._watched == _identity(self._path):
            names = _names(self._descriptor)
            if names is not None:
                return names
        self._begin()
        return None

    def _begin(self) -> None:
        self._close()
        self._watched = _identity(self._path)
        self._descriptor = _watch(self._path)
        if self._descriptor is not None:
            self._close = weakref.finalize(self, os.close, self._descriptor)


def _identity(path: Path) -> tuple[int, ...] | None:
    """The directory that is there now, and this process: a forked one would take the other's events."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, os.getpid()


def _watch(path: Path) -> int | None:
    """A descriptor of events; None where there is no telling."""
    if sys.platform != "linux":
        return None
    try:
        libc = ctypes.CDLL(None)
        encoded, statfs = os.fsencode(path), ctypes.create_string_buffer(_STATFS_BYTES)
        if libc.statfs(encoded, statfs) or ctypes.c_long.from_buffer(statfs).value not in _LOCAL:
            return None
        descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor < 0:
            return None
        if libc.inotify_add_watch(descriptor, encoded, _WATCHED | _ONLY_DIRECTORIES) < 0:
            os.close(descriptor)
            return None
    except (AttributeError, OSError):  # a C library without these calls
        return None
    return descriptor


def _names(descriptor: int) -> set[str] | None:
    names: set[str] = set()
    try:
        while events := os.read(descriptor, _READ_BYTES):
            at = 0
            while at < len(events):
                _, mask, _, size = _EVENT.unpack_from(events, at)
                at += _EVENT.size
                name = os.fsdecode(events[at : at + size].rstrip(b"\0"))
                at += size
                if mask & _TOLD_TOO_LITTLE or not name:
                    return None
                names.add(name)
    except BlockingIOError:
        return names
    except OSError:
        return None
    return None
