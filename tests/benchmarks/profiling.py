"""Where a server's processor time goes: py-spy looks at its process from outside, many times a second.

py-spy is fetched by uv when it is wanted, and is no dependency of this project. What is counted are moments in which a
thread holds the interpreter, by the function that runs in it. What a function calls in C counts as its own: the event
loop's share has waking up and reading from sockets in it, that of who sends has writing to them.
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
"""``rooms`` and ``functions``: percent of the samples by name, the largest first."""

_PY_SPY = ["uv", "tool", "run", "--quiet", f"py-spy@{VERSION}"]
_RATE = 500
_SHOWN, _LEAST = 8, 1.0
_FRAME = re.compile(r"(?P<function>.+) \((?P<file>.+?)(:\d+)?\)")
_LOOP = "the event loop"
_folders: list[Path] = []
"""Where profiles of the servers that run now are written to; empty while nobody wants any."""


@contextmanager
def looking(into: Profile) -> Iterator[None]:
    """Look at each server that is run inside, and add up what was seen."""
    with TemporaryDirectory(prefix="mochi-profile-") as name:
        _folders.append(Path(name))
        try:
            yield
        finally:
            _folders.pop()
        into.update(summed(line for file in Path(name).iterdir() for line in file.read_text().splitlines()))


@contextmanager
def looked_at(server: Server) -> Iterator[None]:
    """Be looked at while inside, if anybody wants to know."""
    if not _folders:
        yield
        return
    file = _folders[-1] / str(server.pid)
    options = ["--gil", "--rate", str(_RATE), "--format", "raw", "--output", str(file), "--pid", str(server.pid)]
    with subprocess.Popen(
        [*_PY_SPY, "record", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)  # it writes what it saw


def available() -> bool:
    """Whether it can be run here."""
    try:
        return subprocess.run([*_PY_SPY, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def summed(lines: Iterator[str]) -> Profile:
    """The shares of stacks as py-spy writes them: frames from the outermost to the innermost, and how often seen."""
    rooms, functions = Counter[str](), Counter[str]()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        found = _FRAME.fullmatch(stack.rpartition(";")[2])
        function, file = (found["function"], found["file"]) if found else (stack, "")
        room = _LOOP if file == "asyncio/runners.py" else room_of(file)
        rooms[room] += int(count)
        functions[room if room == _LOOP else f"{function} ({room})"] += int(count)
    return {"rooms": _shares(rooms), "functions": dict(list(_shares(functions).items())[:_SHOWN])}


def room_of(file: str) -> str:
    """What a file belongs to: a room of this server, a library, or Python's own."""
    first, *rest = file.split("/")
    if first == "mochi_server":
        return f"{first}.{rest[0].removesuffix('.py')}" if rest else first
    return "Python's own" if first.removesuffix(".py") in sys.stdlib_module_names or "<" in first else first


def _shares(counted: Counter[str]) -> dict[str, float]:
    whole = sum(counted.values())
    shares = {name: round(100 * count / whole, 1) for name, count in counted.most_common()}
    return {name: share for name, share in shares.items() if share >= _LEAST}
