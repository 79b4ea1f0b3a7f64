"""The server in the background: started, found again by its PID file, stopped. It knows nothing of what is served."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkstemp

from mochi_stub import posix

PATIENCE = 10.0
"""Seconds that a server is given to end by itself."""
MAX_TOLD = 1000
"""How many bytes of a file are looked at to see whether it is a PID file."""


class Problem(Exception):
    """What was asked for cannot be done; one line for a person."""


@dataclass(frozen=True)
class Running:
    """A server in the background."""

    process: int
    url: str


def pid_file_of(port: int) -> Path:
    """Where the server on that port has its PID file if nothing else is said."""
    return posix.runtime_folder() / f"{port}.pid"


def running(path: Path) -> Running | None:
    """The server whose PID file that is. A file that a dead server has left is removed. Raises Problem."""
    if not path.exists():
        return None
    _check_ours(path)
    if not posix.is_locked(path):
        _remove(path)
        return None
    try:
        return Running(int(path.read_text()), _address_beside(path).read_text().strip())
    except (ValueError, FileNotFoundError):
        raise Problem(f"{path} is in use, but is no PID file of mochi-stub") from None


def start(arguments: Sequence[str], path: Path | None) -> str:
    """Run `mochi-stub run` in the background; the line that it prints when it answers. Raises Problem.

    The line comes through a pipe, which also ends when the process does; what it logs goes to a file.
    """
    there = running(path) if path else None
    if there:
        raise Problem(f"already running on {there.url} (process {there.process})")
    log = _log_file(path)
    reader, writer = os.pipe()
    with log.open("wb") as written, os.fdopen(reader) as told:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, arguments that have been checked, no shell
            [sys.executable, "-m", "mochi_stub", "run", "--in-background", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=written,
            start_new_session=True,
        )
        os.close(writer)
        line = told.readline().strip()
    if not line:
        process.wait()
        said = log.read_text(errors="replace").strip().splitlines()
        if path is None:
            log.unlink()
        raise Problem(said[-1].removeprefix("mochi-stub: ") if said else "ended before it answered")
    process.returncode = 0  # it is not ours to wait for any more
    if path is None:
        log.rename(_log_beside(pid_file_of(int(line.rpartition(":")[2]))))
    return line


def stop(path: Path) -> Running | None:
    """End the server and return when it is gone; None where there was none. Raises Problem."""
    there = running(path)
    if there is not None:
        posix.end(there.process, path, PATIENCE)
        _remove(path)
    return there


class PidFile:
    """The PID file of this process, as long as it is held, and beside it a file with its address."""

    def __init__(self, path: Path, process: int, url: str) -> None:
        """Raises Problem where another process has it, or where it is somebody's file."""
        if path.exists():
            _check_ours(path)
        descriptor = posix.lock(path)
        if descriptor is None:
            raise Problem(f"{path} belongs to a server that runs")
        self._path = path
        _address_beside(path).write_text(f"{url}\n")
        posix.write(descriptor, f"{process}\n")

    def remove(self) -> None:
        _remove(self._path)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    _address_beside(path).unlink(missing_ok=True)


def _address_beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.url")


def _check_ours(path: Path) -> None:
    """Raises Problem where the file says something that is no number: it is not ours to remove."""
    with path.open("rb") as file:
        said = file.read(MAX_TOLD).strip()
    if said and not said.isdigit():
        raise Problem(f"{path} is no PID file of mochi-stub")


def _log_beside(path: Path) -> Path:
    log = path.with_suffix(".log")
    return path.with_name(f"{path.name}.log") if log == path else log


def _log_file(path: Path | None) -> Path:
    if path is not None:
        return _log_beside(path)
    descriptor, name = mkstemp(prefix="free-port-", suffix=".log", dir=posix.runtime_folder())
    os.close(descriptor)
    return Path(name)
