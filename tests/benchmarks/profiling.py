"""CPU profile of a server by py-spy, which samples its process from outside.

uv downloads py-spy when it is needed; it is not a dependency of this project. Only samples of
threads that hold the interpreter lock count, each for its innermost Python function. C functions
count for their caller: the event loop includes polling and reading of sockets, and sending code
includes writing.
"""

import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.processes import Server

VERSION = "0.4.3"
Profile = dict[str, dict[str, float]]
"""`rooms` (packages) and `functions`: percent of the samples by name, largest first."""

_PY_SPY = ["uv", "tool", "run", "--quiet", f"py-spy@{VERSION}"]
_RATE = 500
_SHOWN, _LEAST = 8, 1.0
_FRAME = re.compile(r"(?P<function>.+) \((?P<file>.+?)(:\d+)?\)")
_LOOP = "the event loop"
_folders: list[Path] = []
"""Directories for the profiles of running servers. Empty if profiling is off."""


@contextmanager
def profiling(into: Profile) -> Iterator[None]:
    """Profile each server that runs in the context and add the shares to `into`."""
    with TemporaryDirectory(prefix="mochi-profile-") as name:
        _folders.append(Path(name))
        try:
            yield
        finally:
            _folders.pop()
        into.update(
            shares_of(
                line for file in Path(name).iterdir() for line in file.read_text().splitlines()
            )
        )


@contextmanager
def profiled(server: Server) -> Iterator[None]:
    """Profile this server while the context is open, if profiling is on."""
    if not _folders:
        yield
        return
    file = _folders[-1] / str(server.pid)
    options = [
        "--gil",
        "--rate",
        str(_RATE),
        "--format",
        "raw",
        "--output",
        str(file),
        "--pid",
        str(server.pid),
    ]
    with subprocess.Popen(
        [*_PY_SPY, "record", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)  # it writes its samples


def available() -> bool:
    """Return whether py-spy can run here."""
    try:
        return (
            subprocess.run([*_PY_SPY, "--version"], capture_output=True, check=False).returncode
            == 0
        )
    except OSError:
        return False


def shares_of(lines: Iterator[str]) -> Profile:
    """Return the shares of stacks in py-spy's format: frames from the outermost to the innermost,
    and their count.
    """
    rooms, functions = Counter[str](), Counter[str]()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        found = _FRAME.fullmatch(stack.rpartition(";")[2])
        function, file = (found["function"], found["file"]) if found else (stack, "")
        room = _LOOP if file == "asyncio/runners.py" else package_of(file)
        rooms[room] += int(count)
        functions[room if room == _LOOP else f"{function} ({room})"] += int(count)
    return {"rooms": _shares(rooms), "functions": dict(list(_shares(functions).items())[:_SHOWN])}


def package_of(file: str) -> str:
    """Return the package of a file: one of this server, a library, or Python itself."""
    first, *rest = file.split("/")
    if first == "mochi_server":
        return f"{first}.{rest[0].removesuffix('.py')}" if rest else first
    return (
        "Python's own"
        if first.removesuffix(".py") in sys.stdlib_module_names or "<" in first
        else first
    )


def _shares(counted: Counter[str]) -> dict[str, float]:
    whole = sum(counted.values())
    shares = {name: round(100 * count / whole, 1) for name, count in counted.most_common()}
    return {name: share for name, share in shares.items() if share >= _LEAST}
