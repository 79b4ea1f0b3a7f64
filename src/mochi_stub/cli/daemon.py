"""Servers in the background: start, find by PID file, and stop. The messages of OSErrors are shown to the user.

A server locks its PID file until its process ends, so stale files and reused process IDs can be detected.
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
from threading import Thread

with suppress(ImportError):  # on Windows, the functions that need fcntl raise OSError
    import fcntl

STOP_TIMEOUT = 10.0  # seconds after SIGTERM until SIGKILL
NO_POSIX = "servers in the background need a POSIX system; use `mochi-stub run` instead"


@dataclass(frozen=True)
class Running:
    """Running server in the background. `arguments` are the arguments of `run` that start the same server again."""

    process: int
    url: str
    arguments: tuple[str, ...] = ()


def pid_file_of(port: int) -> Path:
    """Return the path of the default PID file for a port. Only this user can write to its folder."""
    return _runtime_folder() / f"{port}.pid"


def running(path: Path) -> Running | None:
    """Return the running server with this PID file, or None. Delete a stale PID file. Raises OSError."""
    if not path.exists():
        return None
    descriptor = _lock(path)
    if descriptor is not None:
        os.close(descriptor)
        remove(path)
        return None
    try:
        url, *arguments = _sibling(path, ".url").read_text().splitlines()
        return Running(int(path.read_text()), url, tuple(arguments))
    except (ValueError, FileNotFoundError):
        raise OSError(f"{path} is locked by another process and is not a PID file of mochi-stub") from None


def running_pid_files() -> list[Path]:
    """Return the default PID files of all running servers, sorted by name. Delete stale PID files. Raises OSError."""
    return [path for path in sorted(_runtime_folder().glob("*.pid")) if running(path)]


def start(arguments: Sequence[str], path: Path | None) -> str:
    """Run `mochi-stub run` in the background and return its first output line. Raises OSError if the start fails."""
    if path and (server := running(path)):
        raise OSError(f"already running on {server.url} (process {server.process}); use restart to replace it")
    log = _log_of(path or _runtime_folder() / f"starting-{os.getpid()}.pid")
    reader, writer = os.pipe()
    with log.open("wb") as log_file, os.fdopen(reader) as output:
        process = subprocess.Popen(  # noqa: S603 - own interpreter, parsed arguments, no shell
            [sys.executable, "-m", "mochi_stub", "run", "--in-background", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=log_file,
            start_new_session=True,
        )
        os.close(writer)
        line = output.readline().strip()  # empty if the process ends, because that closes the pipe
    if not line:
        process.wait()
        lines = log.read_text(errors="replace").strip().splitlines()
        if path is None:
            log.unlink()
        raise OSError(lines[-1].removeprefix("mochi-stub: ") if lines else "the server ended before it was ready")
    process.returncode = 0  # prevents a ResourceWarning about the running process
    if path is None:
        log.rename(_log_of(pid_file_of(int(line.rpartition(":")[2]))))
    return line


def stop(path: Path) -> Running | None:
    """Stop the server with this PID file. Return the stopped server, or None if none was running. Raises OSError."""
    if sys.platform == "win32":
        raise OSError(NO_POSIX)
    server = running(path)
    if server is None:
        return None
    with path.open() as pid_file:
        unlocked = Thread(target=fcntl.flock, args=(pid_file, fcntl.LOCK_EX), daemon=True)
        os.kill(server.process, signal.SIGTERM)
        unlocked.start()
        unlocked.join(STOP_TIMEOUT)
        if unlocked.is_alive():
            os.kill(server.process, signal.SIGKILL)
            unlocked.join()
    remove(path)
    return server


def claim(path: Path, url: str, arguments: Sequence[str]) -> None:
    """Lock the PID file for this process. Write the server's URL and arguments to a file next to it. Raises OSError."""
    descriptor = _lock(path)
    if descriptor is None:
        raise OSError(f"{path} is the PID file of a running server; stop it, or choose another --pid-file")
    _sibling(path, ".url").write_text("".join(f"{line}\n" for line in (url, *arguments)))
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, f"{os.getpid()}\n".encode())


def remove(path: Path) -> None:
    """Delete a PID file and the file with the URL and the arguments."""
    path.unlink(missing_ok=True)
    _sibling(path, ".url").unlink(missing_ok=True)


def _lock(path: Path) -> int | None:
    """Lock a PID file and return its descriptor. Return None if another process has the lock. Raises OSError."""
    if sys.platform == "win32":
        raise OSError(NO_POSIX)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    content = os.read(descriptor, 100).strip()
    if content and not content.isdigit():
        os.close(descriptor)
        raise OSError(f"{path} is not a PID file of mochi-stub; choose another --pid-file")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _runtime_folder() -> Path:
    if sys.platform == "win32":
        raise OSError(NO_POSIX)
    from tempfile import gettempdir

    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or gettempdir()) / f"mochi-stub-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(13, "the folder for PID files belongs to another user; set XDG_RUNTIME_DIR", str(folder))
    return folder


def _sibling(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}{ending}")


def _log_of(path: Path) -> Path:
    return _sibling(path, ".log") if path.suffix == ".log" else path.with_suffix(".log")
