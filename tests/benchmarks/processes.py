"""Processes under measurement: start, address, CPU time and cleanup. Linux only."""

import ctypes
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

READY_SECONDS = 60
_STEP_SECONDS = 0.002
_SETTLE_SECONDS, _LOOK_SECONDS, _IDLE = 10.0, 0.05, 0.05
_LEAVE_SECONDS = 10
_PR_SET_PDEATHSIG = 1
_ADDRESS = re.compile(rb"http://127\.0\.0\.1:(\d+)")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Server:
    """A server process that listens on a port of 127.0.0.1."""

    pid: int
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class CpuClock:
    """User and system time of a whole process, including threads that have ended."""

    def __init__(self, pid: int) -> None:
        clock = ctypes.c_int()
        if error := _libc.clock_getcpuclockid(pid, ctypes.byref(clock)):
            raise OSError(error, os.strerror(error))
        self._clock = clock.value

    def seconds(self) -> float:
        """CPU seconds since the process began."""
        return time.clock_gettime(self._clock)

    def resolution(self) -> float:
        """Return the smallest step of the clock, in seconds."""
        return time.clock_getres(self._clock)


def python(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module with this interpreter."""
    return [sys.executable, "-m", module, *arguments]


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Start a server that prints its address when it is ready. End it when the context closes."""
    with _child(command, environment, subprocess.PIPE) as process:
        yield Server(process.pid, _port(process))


@contextmanager
def serving(
    command: Sequence[str], port: int, path: str, environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Start a server that is ready when it answers a path with 200.

    End it when the context closes.
    """
    with _child(command, environment, subprocess.DEVNULL) as process:
        server, deadline = Server(process.pid, port), time.monotonic() + READY_SECONDS
        while not _answers(server, path):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{process.args!r} did not become ready")
            time.sleep(_STEP_SECONDS)
        yield server


def settle(server: Server) -> None:
    """Wait until a server has finished its remaining work."""
    clock, deadline = CpuClock(server.pid), time.monotonic() + _SETTLE_SECONDS
    used = 1.0
    while used > _IDLE and time.monotonic() < deadline:
        before = clock.seconds()
        time.sleep(_LOOK_SECONDS)
        used = (clock.seconds() - before) / _LOOK_SECONDS


def resident_bytes(server: Server) -> int:
    """Return the resident memory of a server in bytes."""
    status = Path(f"/proc/{server.pid}/status").read_text(encoding="utf-8")
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


@contextmanager
def cores(allowed: set[int]) -> Iterator[None]:
    """Restrict processes that are started in the context to these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, allowed)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _child(
    command: Sequence[str], environment: Mapping[str, str] | None, output: int
) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output if output == subprocess.DEVNULL else None,
        env={**inherited(), **(environment or {})},
        preexec_fn=_end_with_parent,  # noqa: PLW1509 - this process has one thread
    ) as process:
        try:
            yield process
        finally:
            _end(process)


def inherited() -> dict[str, str]:
    """Return this process's environment, with caching of bytecode enabled."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _answers(server: Server, path: str) -> bool:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _port(process: "subprocess.Popen[bytes]") -> int:
    assert process.stdout is not None
    printed = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        deadline = time.monotonic() + READY_SECONDS
        while not (address := _ADDRESS.search(printed)):
            if not selector.select(deadline - time.monotonic()) or not (
                more := os.read(process.stdout.fileno(), 4096)
            ):
                raise RuntimeError(f"{process.args!r} did not become ready; it printed {printed!r}")
            printed += more
    return int(address[1])


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _end_with_parent() -> None:
    """Ask the kernel to end this process when its parent is killed before it can clean up."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
