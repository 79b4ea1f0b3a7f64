"""Several server processes on one socket: started, started again when one dies, told of signals. Knows no server."""

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import connection, get_context, parent_process
from multiprocessing.context import SpawnProcess
from types import FrameType

Job = Callable[[socket.socket, bool], int]
"""Serves on a socket until a signal ends it; the flag says whether it greets a person. Can be pickled."""

_SHORT_SECONDS = 5.0
_MOST_SHORT_LIVES = 5

_log = logging.getLogger(__name__)


def supervise(number: int, job: Job, listener: socket.socket) -> int:
    """Keep that many workers at it until a signal ends them; returns the exit code."""
    supervisor = _Supervisor(job, listener)
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, supervisor.pass_on)
    for index in range(number):
        supervisor.start(greets=index == 0)
    return supervisor.watch()


@dataclass(eq=False)
class _Worker:
    process: SpawnProcess
    began: float = field(default_factory=time.monotonic)


class _Supervisor:
    def __init__(self, job: Job, listener: socket.socket) -> None:
        self._job = job
        self._listener = listener
        self._workers: list[_Worker] = []
        self._short_lives = 0
        self._leaving = False

    def start(self, *, greets: bool = False) -> None:
        """Start a worker."""
        arguments = (self._job, self._listener, greets)
        process = get_context("spawn").Process(target=_work, args=arguments)
        process.start()
        self._workers.append(_Worker(process))

    def watch(self) -> int:
        """Start a new worker for each that dies, until they are told to leave, or none of them lives long."""
        while self._workers:
            connection.wait([worker.process.sentinel for worker in self._workers])
            for worker in [worker for worker in self._workers if not worker.process.is_alive()]:
                self._workers.remove(worker)
                if not self._leaving:
                    self._replace(worker)
        return 0 if self._short_lives < _MOST_SHORT_LIVES else 1

    def pass_on(self, signal_number: int, _: FrameType | None) -> None:
        """Tell every worker of a signal."""
        self._leaving = True
        for worker in self._workers:
            if worker.process.pid is not None and worker.process.is_alive():
                os.kill(worker.process.pid, signal_number)

    def _replace(self, worker: _Worker) -> None:
        _log.error("worker %s has died (%s)", worker.process.pid, worker.process.exitcode)
        short = time.monotonic() - worker.began < _SHORT_SECONDS
        self._short_lives = self._short_lives + 1 if short else 0
        if self._short_lives < _MOST_SHORT_LIVES:
            self.start()
        else:
            _log.critical("workers die as soon as they are started")
            self.pass_on(signal.SIGTERM, None)


def _work(job: Job, listener: socket.socket, greets: bool) -> None:
    os.setsid()  # signals of the terminal are for the supervisor, who passes them on
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    sys.exit(job(listener, greets))


def _leave_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
