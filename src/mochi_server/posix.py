"""What only POSIX systems can do, with what the others do instead. Knows nothing of sessions or servers."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

OPEN_SAFELY = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""Flags for ``os.open`` that follow no symlink, wait for no fifo's other end and translate no line ends."""

_POLL_SECONDS = 0.005
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}


def sync_directory(path: Path) -> None:
    """Make a directory's entries durable, where the system knows how to. Raises OSError."""
    if os.name == "nt":
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
def scanning(path: Path) -> Iterator[Iterator["os.DirEntry[str]"]]:
    """A directory's entries. Where it can be, looking at one does not walk the whole path. Raises OSError."""
    if os.scandir not in os.supports_fd:
        with os.scandir(path) as entries:
            yield entries
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with os.scandir(descriptor) as entries:
            yield entries
    finally:
        os.close(descriptor)


if sys.platform == "win32":
    from filelock import FileLock

    def hold_file(path: Path) -> int | None:  # noqa: ARG001 - the others use it
        """None: this system does not tell who holds a file."""
        return None

    def is_held(path: Path) -> bool:  # noqa: ARG001 - the others use it
        """False, since nobody can hold one."""
        return False

    def let_go(descriptor: int) -> None:
        """End the holding of a file."""
        os.close(descriptor)

    @contextmanager
    def alone_with(path: Path, patience: float) -> Iterator[None]:
        """Be the only one of all processes who is inside with this file; see the other one."""
        with FileLock(path, mode=0o600).acquire(timeout=patience, poll_interval=_POLL_SECONDS):
            yield

    def terminate_group(leader: int) -> None:
        """End a process; this system has no groups of them."""
        with suppress(OSError):
            os.kill(leader, signal.SIGTERM)

    def kill_group(leader: int) -> None:
        """End a process."""
        terminate_group(leader)

    def guard_group(leader: int) -> object:  # noqa: ARG001 - the others use it
        """None: this system has no groups of processes."""
        return None

    def dismiss(guard: object) -> None:
        """Nothing to end."""

else:
    import fcntl

    _held: set[int] = set()

    def hold_file(path: Path) -> int | None:
        """Make a file and hold it until ``let_go`` or the end of this process, however it ends. Raises OSError.

        A forked child does not hold on to it.
        """
        # Open for reading, so that the medium can be made read-only under a process that lives.
        return _hold(path, os.O_RDONLY)

    def _hold(path: Path, access: int) -> int:
        descriptor = os.open(path, access | os.O_CREAT | OPEN_SAFELY, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        _held.add(descriptor)
        return descriptor

    def is_held(path: Path) -> bool:
        """Whether somebody holds the file; not, where it is not there or cannot be looked at."""
        try:
            descriptor = os.open(path, os.O_RDONLY | OPEN_SAFELY)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two that look do not see each other
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return False

    def let_go(descriptor: int) -> None:
        """End the holding of a file."""
        _held.discard(descriptor)
        os.close(descriptor)

    @contextmanager
    def alone_with(path: Path, patience: float) -> Iterator[None]:
        """Be the only one of all processes who is inside with this file, which is made if need be.

        Raises OSError, ``TimeoutError`` when another one has been inside for ``patience`` seconds. Blocks.
        """
        deadline = time.monotonic() + patience
        while (descriptor := _locked(path)) is None:
            if time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process does not let go of it", str(path))
            time.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            let_go(descriptor)

    def _locked(path: Path) -> int | None:
        try:
            descriptor = _hold(path, os.O_RDWR)  # a network file system locks what is open for writing alone
        except BlockingIOError:
            return None
        try:
            is_there = os.fstat(descriptor).st_nlink > 0
        except OSError:
            let_go(descriptor)
            raise
        if not is_there:  # others would lock another one
            let_go(descriptor)
        return descriptor if is_there else None

    def _forget_held() -> None:
        for descriptor in _held:
            os.close(descriptor)
        _held.clear()

    os.register_at_fork(after_in_child=_forget_held)

    def terminate_group(leader: int) -> None:
        """Tell a process and what it has started to end, as far as they are in its group."""
        _signal_group(leader, signal.SIGTERM)

    def kill_group(leader: int) -> None:
        """End a process and what it has started, as far as they are in its group."""
        _signal_group(leader, signal.SIGKILL)

    def _signal_group(leader: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, number)

    def guard_group(leader: int) -> "subprocess.Popen[bytes] | None":
        """Have a group of processes killed when this process ends, however it ends; None where there is no shell.

        A shell of its own waits for the end of a pipe that this process holds.
        """
        with suppress(OSError):
            return subprocess.Popen(  # noqa: S603 - nothing of it is anybody's input
                ["/bin/sh", "-c", 'read -r line || kill -s KILL -- "-$1"', "sh", str(leader)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return None

    def dismiss(guard: "subprocess.Popen[bytes] | None") -> None:
        """End the guarding of a group."""
        if guard is None:
            return
        guard.kill()
        guard.wait()
        if guard.stdin is not None:
            guard.stdin.close()
