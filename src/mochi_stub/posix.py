"""The calls that only POSIX systems have: locks on files, signals to other processes, whose a folder is.

A process that holds the lock on its PID file is alive; the system lets go of the lock whatever way the process ends. So
no PID file can be mistaken for that of a process that has gone, nor a new process with an old number for the old one.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir
from threading import Thread

with suppress(ImportError):  # elsewhere no function below comes to need it
    import fcntl

ELSEWHERE = "servers in the background need a POSIX system; here there is only `mochi-stub run`"


def runtime_folder() -> Path:
    """A folder that only this user can write to, made if there is none. Raises OSError where it is somebody else's."""
    if sys.platform == "win32":
        raise OSError(ELSEWHERE)
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or gettempdir()) / f"mochi-stub-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(13, "belongs to another user", str(folder))
    return folder


def lock(path: Path) -> int | None:
    """The descriptor of the file, locked until the process ends; None where another process holds the lock."""
    if sys.platform == "win32":
        raise OSError(ELSEWHERE)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_locked(path: Path) -> bool:
    """Whether the file is there and a process holds its lock."""
    if not path.exists():
        return False
    descriptor = lock(path)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def write(descriptor: int, text: str) -> None:
    """Put the text in the place of what is in the file."""
    if sys.platform == "win32":
        raise OSError(ELSEWHERE)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)


def end(process: int, path: Path, patience: float) -> None:
    """Ask the process to end and wait until its lock is free; after `patience` seconds it is not asked any more."""
    if sys.platform == "win32":
        raise OSError(ELSEWHERE)
    with path.open() as held:
        waiting = Thread(target=fcntl.flock, args=(held, fcntl.LOCK_EX), daemon=True)
        os.kill(process, signal.SIGTERM)
        waiting.start()
        waiting.join(patience)
        if waiting.is_alive():
            os.kill(process, signal.SIGKILL)
            waiting.join()
