"""Servers in the background: start, find by PID file, stop. Every OSError has one line for the user as its text.

A server holds the lock on its PID file until its process ends, so a file that was left behind is never taken for a
server, nor a new process for an old one with the same number.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from threading import Thread

with suppress(ImportError):  # Windows: every function that needs it raises an error
    import fcntl

PATIENCE = 10.0
"""Seconds that a server gets to end by itself."""
NO_POSIX = "servers in the background need a POSIX system; here there is only `mochi-stub run`"


@dataclass(frozen=True)
class Running:
    """A server in the background."""

    process: int
    url: str


def pid_file_of(port: int) -> Path:
    """Return the default PID file of the server on a port, in a folder that only this user can write to."""
    return _runtime_folder() / f"{port}.pid"


def running(path: Path) -> Running | None:
    """Return the server with that PID file, or None. The file of a dead server is removed. Raises OSError."""
    if not path.exists():
        return None
    descriptor = _lock(path)
    if descriptor is not None:
        os.close(descriptor)
        remove(path)
        return None
    try:
        return Running(int(path.read_text()), _beside(path, ".url").read_text().strip())
    except (ValueError, FileNotFoundError):
        raise OSError(f"{path} is in use, but is no PID file of mochi-stub") from None


def start(arguments: Sequence[str], path: Path | None) -> str:
    """Run `mochi-stub run` in the background and return the line that it prints when it answers. Raises OSError.

    The line comes through a pipe, which also ends when the process does. The log is written to a file.
    """
    if path and (there := running(path)):
        raise OSError(f"already running on {there.url} (process {there.process})")
    log = _log_beside(path or _runtime_folder() / f"starting-{os.getpid()}.pid")
    reader, writer = os.pipe()
    with log.open("wb") as written, os.fdopen(reader) as output:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, arguments that have been checked, no shell
            [sys.executable, "-m", "mochi_stub", "run", "--in-background", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=written,
            start_new_session=True,
        )
        os.close(writer)
        line = output.readline().strip()
    if not line:
        process.wait()
        logged = log.read_text(errors="replace").strip().splitlines()
        if path is None:
            log.unlink()
        raise OSError(logged[-1].removeprefix("mochi-stub: ") if logged else "ended before it answered")
    process.returncode = 0  # no ResourceWarning: the server outlives this process
    if path is None:
        log.rename(_log_beside(pid_file_of(int(line.rpartition(":")[2]))))
    return line


def stop(path: Path) -> Running | None:
    """End the server and return it when it is gone; None if there is none. Raises OSError."""
    if sys.platform == "win32":
        raise OSError(NO_POSIX)
    there = running(path)
    if there is None:
        return None
    with path.open() as held:
        waiting = Thread(target=fcntl.flock, args=(held, fcntl.LOCK_EX), daemon=True)
        os.kill(there.process, signal.SIGTERM)
        waiting.start()
        waiting.join(PATIENCE)
        if waiting.is_alive():
            os.kill(there.process, signal.SIGKILL)
            waiting.join()
    remove(path)
    return there


def claim(path: Path, url: str) -> None:
    """Lock the PID file for this process and write the address beside it. Raises OSError."""
    descriptor = _lock(path)
    if descriptor is None:
        raise OSError(f"{path} belongs to a server that runs")
    _beside(path, ".url").write_text(f"{url}\n")
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, f"{os.getpid()}\n".encode())


def remove(path: Path) -> None:
    """Remove a PID file and the address beside it."""
    path.unlink(missing_ok=True)
    _beside(path, ".url").unlink(missing_ok=True)


def _lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock, or None while another process holds it. Raises OSError."""
    if sys.platform == "win32":
        raise OSError(NO_POSIX)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    content = os.read(descriptor, 100).strip()
    if content and not content.isdigit():
        os.close(descriptor)
        raise OSError(f"{path} is no PID file of mochi-stub")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _runtime_folder() -> Path:
    if sys.platform == "win32":
        raise OSError(NO_POSIX)
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or gettempdir()) / f"mochi-stub-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(13, "belongs to another user", str(folder))
    return folder


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}{ending}")


def _log_beside(path: Path) -> Path:
    return _beside(path, ".log") if path.suffix == ".log" else path.with_suffix(".log")
