"""Command as a separate process, read line by line and killed when the test ends."""

import os
import re
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support import fork_server
from tests.support.api import Api
from tests.support.fork_server import ForkedProcess, ForkServer

_INTERPRETER_PREFIXES = ("PYTHON", "LD_")
"""Prefixes of environment variables that the interpreter or loader reads before the program starts.
"""


@cache
def shared_fork_server() -> ForkServer:
    """Return the fork server of this process, which starts on first use."""
    return ForkServer()


class Command:
    """Process of `python -m <module> <arguments>`; its output is collected in `output`.

    The process is forked from one that has imported the server, unless the interpreter itself reads
    `environment`.
    """

    _forks = fork_server.AVAILABLE

    def __init__(self, module: str, *arguments: str, cwd: Path, **environment: str) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MOCHI_")}
        clean |= {"PYTHONUNBUFFERED": "1", "TMPDIR": str(cwd)} | environment
        forks = self._forks and module.startswith("mochi_")
        self.process: subprocess.Popen[str] | ForkedProcess
        if forks and not any(name.startswith(_INTERPRETER_PREFIXES) for name in environment):
            self.process = shared_fork_server().start(module, arguments, str(cwd), clean)
        else:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=cwd,
                env=clean,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self.output: list[str] = []
        self._clients: list[Api] = []

    def __enter__(self) -> "Command":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for client in self._clients:
            client.http.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def read_until(self, text: str) -> str:
        """Read output up to the first line that contains `text` and return that line."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)
            if text in line:
                return line
        raise AssertionError(f"{text!r} was never printed: {''.join(self.output)}")

    def api(self, **client: Any) -> Api:
        """Return a client for the address that the server has printed.

        It is closed with the command.
        """
        greeted = "mochi-server is at http://"
        line = next((line for line in self.output if greeted in line), None) or self.read_until(
            greeted
        )
        self._clients.append(
            Api("http://" + re.split(r'[\s"]', line.partition("http://")[2])[0], **client)
        )
        return self._clients[-1]

    def end(self, sig: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(sig)
        return self.wait()

    def wait(self) -> int:
        """Read the remaining output and return the exit code."""
        assert self.process.stdout is not None
        self.output.extend(self.process.stdout)
        return self.process.wait(60)


class FreshCommand(Command):
    """A command in a new interpreter, as a user starts it."""

    _forks = False


def run(module: str, *arguments: str, cwd: Path, **environment: str) -> tuple[int, str]:
    """Return the exit code and the output of a command that ends by itself."""
    with Command(module, *arguments, cwd=cwd, **environment) as command:
        return command.wait(), "".join(command.output)
