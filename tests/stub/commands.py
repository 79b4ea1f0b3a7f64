"""The `mochi-stub` command, run in the process of the tests or in its own."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO

from mochi_stub.cli import main

COMMAND = [sys.executable, "-m", "mochi_stub"]
LIMIT = 20
"""Timeout of a command in seconds."""


@dataclass(frozen=True)
class Finished:
    """The exit code and the output of a command."""

    returncode: int
    stdout: str
    stderr: str


def run_command(*arguments: str) -> Finished:
    """Run the command in a process of its own."""
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def call_command(*arguments: str) -> Finished:
    """Run the command in this process, which takes a millisecond instead of 100."""
    output, errors = StringIO(), StringIO()
    with _own_process_state(), redirect_stdout(output), redirect_stderr(errors):
        try:
            code = main(arguments)
        except SystemExit as exited:
            code = int(exited.code or 0)
    return Finished(code, output.getvalue(), errors.getvalue())


@contextmanager
def _own_process_state() -> Iterator[None]:
    """Restore the process state that `run` changes, and interrupt a command that serves too
    long.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    logger = logging.getLogger("mochi_stub")
    level = logger.level
    timer = threading.Timer(LIMIT, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        logger.setLevel(level)
        for number, handler in handlers.items():
            signal.signal(number, handler)
