"""Commands that end by themselves, run in this process: the fork of a process takes longer than
most of them.
"""

import io
import os
import signal
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from mochi_server.cli.main import main


def run_here(*arguments: str, cwd: Path, **environment: str) -> tuple[int, str]:
    """Return the exit code and the output of `mochi-server <arguments>`.

    The working directory, the environment and the handler of SIGINT are restored. The command of
    the server needs a process of its own, because it also configures the log: see
    `tests.support.process`.
    """
    folder, variables, on_interrupt = Path.cwd(), dict(os.environ), signal.getsignal(signal.SIGINT)
    for name in variables:
        if name.startswith("MOCHI_"):
            del os.environ[name]
    os.environ.update(environment)
    os.chdir(cwd)
    output = io.StringIO()
    try:
        with redirect_stdout(output), redirect_stderr(output):
            code = _run(arguments)
    finally:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        signal.signal(signal.SIGINT, on_interrupt)
    return code, output.getvalue()


def _run(arguments: tuple[str, ...]) -> int:
    try:
        return main(arguments)
    except SystemExit as ended:  # by argparse
        return int(ended.code or 0)
