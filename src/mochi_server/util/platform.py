"""POSIX system calls for files and processes, with fallbacks for Windows."""

import errno
import faulthandler
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

if sys.platform == "win32":
    from filelock import FileLock
else:
    import fcntl
    import resource

OPEN_SAFELY = sum(
    getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
)
"""Flags for ``os.open`` that reject symlinks, do not block on FIFOs and do not translate line
endings.
"""

_SYNC_UNSUPPORTED = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}
_locked_descriptors: set[int] = set()
"""File descriptors of locked files. A forked child must close them."""


def sync_directory(path: str | Path) -> None:
    """Flush a directory's entries to disk, if the system supports it.

    Raise ``OSError`` on failure.
    """
    if sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _SYNC_UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


@contextmanager
def scan_directory(path: Path) -> Iterator[Iterator["os.DirEntry[str]"]]:
    """Open a directory and yield an iterator over its entries.

    Raise ``OSError`` if the directory cannot be read.
    """
    # for faster `stat` calls
    descriptor = os.open(path, os.O_RDONLY) if os.scandir in os.supports_fd else None
    try:
        with os.scandir(path if descriptor is None else descriptor) as entries:
            yield entries
    finally:
        if descriptor is not None:
            os.close(descriptor)


def lock_file(path: Path) -> Callable[[], None]:
    """Create a file and lock it until this process ends.

    Return a function that unlocks the file earlier.

    Raise ``BlockingIOError`` if the file is locked, and ``OSError`` if it cannot be opened or
    locked.
    """
    if sys.platform == "win32":
        lock = FileLock(path, mode=0o600, thread_local=False)
        try:
            lock.acquire(timeout=0)
        except TimeoutError as error:
            raise BlockingIOError(errno.EAGAIN, "the file is locked", str(path)) from error
        unlock: Callable[[], None] = lock.release
    else:
        try:
            # so that the file system can be remounted read-only meanwhile
            descriptor = _lock(path, os.O_RDONLY)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            # network file systems require write access for exclusive locks
            descriptor = _lock(path, os.O_RDWR)
        unlock = partial(_unlock, descriptor)
    return unlock


def on_hangup(handler: Callable[[], None]) -> None:
    """Call ``handler`` when the terminal of this process closes, unless the process ignores this,
    as under nohup.
    """
    if sys.platform == "win32":
        return
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: handler())


def leave_terminal() -> None:
    """Start a new session, so that this process receives no signals of the terminal.

    On Windows, do nothing.
    """
    if sys.platform != "win32":
        os.setsid()


def terminate_group(leader: int, *, kill: bool = False) -> None:
    """Send SIGTERM to a process group, or SIGKILL if ``kill`` is true.

    On Windows, terminate only the leader. Errors are ignored, as the group may have ended.
    """
    with suppress(OSError):
        if sys.platform == "win32":
            os.kill(leader, signal.SIGTERM)
        else:
            os.killpg(leader, signal.SIGKILL if kill else signal.SIGTERM)


def limit_memory(size: int) -> None:
    """Limit the address space of this process to ``size`` bytes, if the system supports it."""
    if sys.platform != "win32":
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (size, size))


@contextmanager
def end_process_after(seconds: float) -> Iterator[None]:
    """End this process if the ``with`` block takes longer than ``seconds``, even in a call that
    never returns.

    Call it in the main thread. An exception in the block does not stop the timer.
    """
    if sys.platform == "win32":
        faulthandler.dump_traceback_later(seconds, exit=True)
        yield
        faulthandler.cancel_dump_traceback_later()
        return
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends the process
    signal.setitimer(signal.ITIMER_REAL, seconds)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def group_guard(leader: int) -> Iterator[None]:
    """Start a shell that kills a process group if this process ends within the ``with`` block, also
    after a crash.
    """
    with ExitStack() as stack:
        if sys.platform != "win32":
            with suppress(OSError):
                shell = subprocess.Popen(  # noqa: S603 - the arguments are constants and a number
                    ["/bin/sh", "-c", 'read -r line || kill -s KILL -- "-$1"', "sh", str(leader)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                stack.enter_context(shell)  # on exit, waits and closes the pipe
                stack.callback(shell.kill)
        yield


if sys.platform != "win32":

    def _lock(path: Path, access: int) -> int:
        descriptor = os.open(path, access | os.O_CREAT | OPEN_SAFELY, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink == 0:
                raise BlockingIOError(
                    errno.EAGAIN, "the file was deleted, and other processes would lock a new one"
                )
        except OSError:
            os.close(descriptor)
            raise
        _locked_descriptors.add(descriptor)
        return descriptor

    def _unlock(descriptor: int) -> None:
        if descriptor in _locked_descriptors:
            _locked_descriptors.remove(descriptor)
            os.close(descriptor)

    def _close_locked() -> None:
        for descriptor in _locked_descriptors:
            os.close(descriptor)
        _locked_descriptors.clear()

    os.register_at_fork(after_in_child=_close_locked)
