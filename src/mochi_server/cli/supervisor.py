"""Supervisor of several worker processes on one socket. It restarts workers and forwards signals."""

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

from mochi_server.util.platform import leave_terminal

Job = Callable[[socket.socket, bool], int]
"""Picklable function that serves on a socket and returns the exit code. The flag tells it to print the banner."""

_EARLY_SECONDS = 5.0
_MAX_EARLY_DEATHS = 5

logger = logging.getLogger(__name__)


def supervise(number: int, job: Job, listener: socket.socket) -> int:
    """Run ``number`` workers until a signal stops them, and return the exit code."""
    supervisor = _Supervisor(job, listener)
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, supervisor.forward_signal)
    for index in range(number):
        supervisor.start(prints_banner=index == 0)
    return supervisor.watch()


@dataclass
class _Supervisor:
    job: Job
    listener: socket.socket
    _workers: dict[SpawnProcess, float] = field(default_factory=dict)  # with their start times
    _early_deaths: int = 0
    _stopping: bool = False

    def start(self, *, prints_banner: bool = False) -> None:
        process = get_context("spawn").Process(target=_run_worker, args=(self.job, self.listener, prints_banner))
        process.start()
        self._workers[process] = time.monotonic()
        if self._stopping:  # the signal arrived before the process was in the dictionary
            process.terminate()

    def watch(self) -> int:
        """Restart dead workers until a signal arrives or workers repeatedly die at start. Return the exit code."""
        while self._workers:
            connection.wait([worker.sentinel for worker in self._workers])
            for worker in [worker for worker in self._workers if not worker.is_alive()]:
                lifetime = time.monotonic() - self._workers.pop(worker)
                if self._stopping:
                    continue
                logger.error("worker died: pid=%s exit_code=%s", worker.pid, worker.exitcode)
                self._early_deaths = self._early_deaths + 1 if lifetime < _EARLY_SECONDS else 0
                if self._early_deaths < _MAX_EARLY_DEATHS:
                    self.start()
                else:
                    logger.critical("stopping, because workers die at their start; see their errors above")
                    self.forward_signal(signal.SIGTERM)
        return 0 if self._early_deaths < _MAX_EARLY_DEATHS else 1

    def forward_signal(self, signal_number: int, _: FrameType | None = None) -> None:
        self._stopping = True
        for worker in self._workers:
            if worker.pid is not None and worker.is_alive():
                os.kill(worker.pid, signal_number)


def _run_worker(job: Job, listener: socket.socket, prints_banner: bool) -> None:
    leave_terminal()  # the supervisor forwards the signals of the terminal
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    sys.exit(job(listener, prints_banner))


def _exit_with_parent() -> None:
    if (parent := parent_process()) is not None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
