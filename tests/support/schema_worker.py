"""Worker for checks with JSON schemas that is forked instead of started, because importing its libraries takes 0.2 s.

As a program, this module is the worker.
"""

import asyncio
import os
import sys

from mochi_server.util.schema_checks import SchemaChecks
from mochi_server.util.schema_worker import main
from tests.support.fork_server import ForkedProcess
from tests.support.process import shared_fork_server

_MAX_RESULT_BYTES = 1024 * 1024


class ForkedWorker:
    """Worker with what ``SchemaChecks`` uses of ``asyncio.subprocess.Process``."""

    def __init__(self, process: ForkedProcess, stdout: asyncio.StreamReader, stdin: asyncio.StreamWriter) -> None:
        self._process = process
        self.pid = process.pid
        self.stdout = stdout
        self.stdin = stdin

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int:
        self.stdin.close()
        return self._process.wait()


async def start(checks: SchemaChecks) -> ForkedWorker:
    """Start a worker for ``checks``, as ``SchemaChecks._start`` does."""
    process, connection = await asyncio.to_thread(shared_fork_server().connect, __name__)
    worker = ForkedWorker(process, *await asyncio.open_unix_connection(sock=connection, limit=_MAX_RESULT_BYTES))
    checks._workers.add(worker)  # type: ignore[arg-type]
    return worker


if __name__ == "__main__":
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - multiprocessing has closed the first
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    main()
