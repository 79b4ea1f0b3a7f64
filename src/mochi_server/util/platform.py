"""Calls that only POSIX systems have, with what other systems do instead. Knows nothing of sessions or servers."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform == "win32":
    from filelock import FileLock
else:
    import fcntl

OPEN_SAFELY = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""Flags for ``os.open`` that follow no symlink, wait for no fifo's other end and translate no line ends."""

_POLL_SECONDS = 0.005
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}
_locked_descriptors: set[int] = set()
"""Descriptors of locked files, which a forked child must close."""


def sync_directory(path: Path) -> None:
    """Make a directory's entries durable, where the system supports it. Raises OSError."""
    if sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)


@contextmanager
def scan_directory(path: Path) -> Iterator[Iterator["os.DirEntry[str]"]]:
    """Yield a directory's entries, by descriptor where possible: `stat` then does not walk the path. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY) if os.scandir in os.supports_fd else None
    try:
        with os.scandir(path if descriptor is None else descriptor) as entries:
            yield entries
    finally:
        if descriptor is not None:
            os.close(descriptor)


def try_lock_file(path: Path) -> int | None:
    """Make a file and lock it until ``release_file`` or the end of this process, however it ends. Raises OSError.

    A forked child does not hold the lock. None on Windows, which does not show who holds a file.
    """
    # Open for reading, so that the medium can be made read-only under a process that lives.
    return None if sys.platform == "win32" else _lock(path, os.O_RDONLY)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the file; False if it is missing or cannot be read, and on Windows."""
    if sys.platform != "win32":
        try:
            descriptor = os.open(path, os.O_RDONLY | OPEN_SAFELY)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two readers do not see each other
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            os.close(descriptor)
    return False


def release_file(descriptor: int) -> None:
    """Unlock and close a file."""
    _locked_descriptors.discard(descriptor)
    os.close(descriptor)


@contextmanager
def exclusive_lock(path: Path, timeout: float) -> Iterator[None]:
    """Lock a file, which is made if need be, against other processes and threads. Blocks.

    Raises OSError, ``TimeoutError`` when another one has held the lock for ``timeout`` seconds.
    """
    if sys.platform == "win32":
        with FileLock(path, mode=0o600).acquire(timeout=timeout, poll_interval=_POLL_SECONDS):
            yield
    else:
        deadline = time.monotonic() + timeout
        while (descriptor := _try_lock(path)) is None:
            if time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process does not let go of it", str(path))
            time.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            release_file(descriptor)


def terminate_group(leader: int, *, kill: bool = False) -> None:
    """Send SIGTERM, or SIGKILL, to a process and the children in its group; on Windows, end the process."""
    with suppress(OSError):
        if sys.platform == "win32":
            os.kill(leader, signal.SIGTERM)
        else:
            os.killpg(leader, signal.SIGKILL if kill else signal.SIGTERM)


def start_group_guard(leader: int) -> "subprocess.Popen[bytes] | None":
    """Have a group of processes killed when this process ends, however it ends; None where there is no shell.

    A shell of its own waits for the end of a pipe that this process holds.
    """
    if sys.platform == "win32":
        return None
    with suppress(OSError):
        return subprocess.Popen(  # noqa: S603 - the arguments are constants and a number
            ["/bin/sh", "-c", 'read -r line || kill -s KILL -- "-$1"', "sh", str(leader)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    return None


def stop_group_guard(guard: "subprocess.Popen[bytes] | None") -> None:
    """End the guarding of a group."""
    if guard is not None:
        with guard:  # waits, and closes the pipe
            guard.kill()


if sys.platform != "win32":

    def _lock(path: Path, access: int) -> int:
        descriptor = os.open(path, access | os.O_CREAT | OPEN_SAFELY, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        _locked_descriptors.add(descriptor)
        return descriptor

    def _try_lock(path: Path) -> int | None:
        try:
            descriptor = _lock(path, os.O_RDWR)  # a network file system locks only what is open for writing
        except BlockingIOError:
            return None
        try:
            is_there = os.fstat(descriptor).st_nlink > 0
        except OSError:
            release_file(descriptor)
            raise
        if not is_there:  # other processes would lock another file
            release_file(descriptor)
        return descriptor if is_there else None

    def _close_locked() -> None:
        for descriptor in _locked_descriptors:
            os.close(descriptor)
        _locked_descriptors.clear()

    os.register_at_fork(after_in_child=_close_locked)
