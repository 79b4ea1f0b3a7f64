"""Checks of JSON schemas from other parties in worker processes.

A check that takes too long ends with its process.
"""

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio

_MAX_WORKERS = 2
_ARGUMENT_SECONDS = 1  # maximum duration of the check of a call's arguments
_ANSWER_SECONDS = 5  # maximum duration of the check of an answer
MAX_RESULT_BYTES = 1024 * 1024
# The worker imports the same modules as this process, and no others from the working directory.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; from mochi_server.util.schema_worker import main; "
    "main()"
)


class CheckFailed(Exception):
    """A check took too long or could not be made. The message is the reason."""


async def start_worker() -> Process:
    """Start a process that runs ``util.schema_worker``. Raises ``CheckFailed``."""
    try:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-c", _PROGRAM, *sys.path),
            env={
                name: value for name, value in os.environ.items() if not name.startswith("MOCHI_")
            },
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            limit=MAX_RESULT_BYTES,
            start_new_session=True,
        )
    except OSError as error:
        raise CheckFailed(f"the process for checks cannot be started: {error.strerror}") from error


class SchemaChecks:
    """Pool of at most ``max_workers`` workers, which ``start`` starts on demand.

    Further checks wait.

    The check of the arguments of a call may take ``argument_seconds``.
    """

    def __init__(
        self,
        max_workers: int = _MAX_WORKERS,
        *,
        argument_seconds: float = _ARGUMENT_SECONDS,
        start: Callable[[], Awaitable[Process]] = start_worker,
    ) -> None:
        self._argument_seconds = argument_seconds
        self._start = start
        self._slots = asyncio.Semaphore(max_workers)
        self._workers: set[Process] = set()
        self._idle: list[Process] = []

    async def run(self, operation: str, seconds: float, **parameters: Any) -> dict[str, Any]:
        """Run a function of ``util.schema_worker`` in a worker and return its result.

        Raises ``CheckFailed``.

        The worker ends itself after ``seconds``. A cancelled check ends its worker.
        """
        request = json.dumps((operation, seconds, parameters)).encode() + b"\n"
        async with self._slots:
            self._idle = [worker for worker in self._idle if worker.returncode is None]
            worker = self._idle.pop() if self._idle else await self._start_worker()
            assert worker.stdin and worker.stdout  # noqa: S101, PT018 - both are pipes
            try:
                worker.stdin.write(request)
                await worker.stdin.drain()
                result: dict[str, Any] = json.loads(await worker.stdout.readline())
            except BaseException as error:
                await self._kill(worker)
                if isinstance(error, OSError | ValueError):  # the worker ended
                    raise CheckFailed(
                        f"the check took longer than {seconds:g} s, or too much memory"
                    ) from error
                raise
            self._idle.append(worker)
            return result

    async def check_arguments(
        self, schema: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Run ``util.schema_worker.check_arguments``. Raises ``CheckFailed``."""
        return await self.run(
            "check_arguments", self._argument_seconds, schema=schema, arguments=arguments
        )

    async def check_answer(self, schema: Mapping[str, Any], text: str) -> dict[str, str]:
        """Run ``util.schema_worker.check_answer``.

        If that fails, return why the answer is ``unchecked``.
        """
        try:
            return await self.run("check_answer", _ANSWER_SECONDS, schema=schema, text=text)
        except CheckFailed as error:
            return {"unchecked": str(error)}

    async def aclose(self) -> None:
        """Kill all workers and wait until they have ended. Running checks fail."""
        self._idle.clear()
        await asyncio.gather(*map(self._kill, self._workers))

    async def _start_worker(self) -> Process:
        worker = await self._start()
        self._workers.add(worker)
        return worker

    async def _kill(self, worker: Process) -> None:
        with suppress(ProcessLookupError):
            worker.kill()
        with anyio.CancelScope(shield=True):
            await worker.wait()
        self._workers.discard(worker)
