"""Several server processes on one socket: start them, replace those that die, pass signals on. Knows no server."""

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import connection, get_context, parent_process
from multiprocessing.context import SpawnProcess
from types import FrameType

Job = Callable[[socket.socket, bool], int]
"""Serves on a socket until a signal ends it; the flag says whether it prints the greeting. Can be pickled."""

_SHORT_SECONDS = 5.0
_MOST_SHORT_LIVES = 5

logger = logging.getLogger(__name__)


def supervise(number: int, job: Job, listener: socket.socket) -> int:
    """Keep that many workers running until a signal ends them; return the exit code."""
    supervisor = _Supervisor(job, listener)
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, supervisor.forward_signal)
    for index in range(number):
        supervisor.start(greets=index == 0)
    return supervisor.watch()


class _Supervisor:
    def __init__(self, job: Job, listener: socket.socket) -> None:
        self._job = job
        self._listener = listener
        self._workers: dict[SpawnProcess, float] = {}
        """With the times at which they were started."""
        self._short_lives = 0
        self._leaving = False

    def start(self, *, greets: bool = False) -> None:
        process = get_context("spawn").Process(target=_work, args=(self._job, self._listener, greets))
        process.start()
        self._workers[process] = time.monotonic()

    def watch(self) -> int:
        """Replace each worker that dies, until a signal ends them or none lives long."""
        while self._workers:
            connection.wait([worker.sentinel for worker in self._workers])
            for worker in [worker for worker in self._workers if not worker.is_alive()]:
                lived = time.monotonic() - self._workers.pop(worker)
                if self._leaving:
                    continue
                logger.error("worker %s has died (%s)", worker.pid, worker.exitcode)
                self._short_lives = self._short_lives + 1 if lived < _SHORT_SECONDS else 0
                if self._short_lives < _MOST_SHORT_LIVES:
                    self.start()
                else:
                    logger.critical("workers die as soon as they are started")
                    self.forward_signal(signal.SIGTERM)
        return 0 if self._short_lives < _MOST_SHORT_LIVES else 1

    def forward_signal(self, signal_number: int, _: FrameType | None = None) -> None:
        self._leaving = True
        for worker in self._workers:
            if worker.pid is not None and worker.is_alive():
                os.kill(worker.pid, signal_number)


def _work(job: Job, listener: socket.socket, greets: bool) -> None:
    os.setsid()  # signals of the terminal are for the supervisor, which passes them on
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    sys.exit(job(listener, greets))


def _exit_with_parent() -> None:
    if (parent := parent_process()) is not None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
