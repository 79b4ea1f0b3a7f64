"""Worker for checks with JSON schemas that is forked instead of started, because importing its
libraries takes 0.2 s.

As a program, this module is the worker.
"""

import asyncio
import os
import sys
from asyncio.subprocess import Process
from typing import cast

from mochi_server.util.schema_checks import MAX_RESULT_BYTES
from mochi_server.util.schema_worker import main
from tests.support.fork_server import ForkedProcess
from tests.support.process import shared_fork_server


class ForkedWorker:
    """Worker with what ``SchemaChecks`` uses of ``asyncio.subprocess.Process``."""

    def __init__(
        self, process: ForkedProcess, stdout: asyncio.StreamReader, stdin: asyncio.StreamWriter
    ) -> None:
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


async def start() -> Process:
    """Start a worker, as ``start_worker`` of ``SchemaChecks`` does."""
    connecting = asyncio.ensure_future(asyncio.to_thread(shared_fork_server().connect, __name__))
    try:
        process, connection = await asyncio.shield(connecting)
    except asyncio.CancelledError:  # the worker starts despite the cancellation
        process, connection = await connecting
        connection.close()
        process.kill()
        raise
    streams = await asyncio.open_unix_connection(sock=connection, limit=MAX_RESULT_BYTES)
    return cast("Process", ForkedWorker(process, *streams))


if __name__ == "__main__":
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - multiprocessing has closed the first
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    main()
