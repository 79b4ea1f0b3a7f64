"""Processes to measure: started, asked for their address, their CPU time read, and ended in every case. Linux only."""

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

READY_SECONDS = 30
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
    """User and system time of a whole process, threads that have ended included."""

    def __init__(self, pid: int) -> None:
        clock = ctypes.c_int()
        if error := _libc.clock_getcpuclockid(pid, ctypes.byref(clock)):
            raise OSError(error, os.strerror(error))
        self._clock = clock.value

    def seconds(self) -> float:
        """CPU seconds since the process began."""
        return time.clock_gettime(self._clock)

    def resolution(self) -> float:
        """The smallest step of the clock, in seconds."""
        return time.clock_getres(self._clock)


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module with this interpreter."""
    return [sys.executable, "-m", module, *arguments]


@contextmanager
def running(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Start a server that prints its address when it is ready; end it when the context is left."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        preexec_fn=_end_with_parent,  # noqa: PLW1509 - this process has one thread
    ) as process:
        try:
            yield Server(process.pid, _port(process))
        finally:
            _end(process)


def _port(process: "subprocess.Popen[bytes]") -> int:
    assert process.stdout is not None
    printed = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        deadline = time.monotonic() + READY_SECONDS
        while not (address := _ADDRESS.search(printed)):
            if not selector.select(deadline - time.monotonic()) or not (more := os.read(process.stdout.fileno(), 4096)):
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
