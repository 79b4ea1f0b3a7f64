"""Several server processes that share a database, behind a TCP load balancer.

The processes are forked from one that has imported everything, so that a server starts fast.
"""

import multiprocessing
import os
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

from tests.support import postgres
from tests.support.balancer import Balancer
from tests.support.fork_server import OF_A_SERVER

_START_SECONDS = 120
_CONTEXT = multiprocessing.get_context("forkserver")
_PRELOADED = [
    *OF_A_SERVER,
    "mochi_server.cluster.middleware",
    "mochi_server.storage.postgres.store",
    "pytest",
    "tests.support.server",
    "uvloop",
    "tests.support.frozen",
]


def preload() -> None:
    """Preload the modules of a server in the process from which children are forked.

    All children of this process share it, also those of other modules, so call it before the first
    child starts.
    """
    _CONTEXT.set_forkserver_preload(_PRELOADED)


class Cluster:
    """Servers with the same settings. Use it as a context manager."""

    def __init__(self, number: int, data_dir: str, ollama_host: str, **settings: Any) -> None:
        self._number = number
        self._arguments = (data_dir, ollama_host)
        self._settings = settings
        self._stack = ExitStack()
        self.members: list[Member] = []

    @property
    def url(self) -> str:
        return self._balancer.url

    def stop(self) -> None:
        """Stop every server as a signal does."""
        for member in self.members:
            member.stop()

    def __enter__(self) -> "Cluster":
        store_url = postgres.schema_of(postgres.shared_instance().url(), self._arguments[0])
        settings = {"store_url": store_url, **self._settings}
        self.members = [Member(*self._arguments, **settings) for _ in range(self._number)]
        for member in self.members:
            self._stack.callback(member.kill)
        self._balancer = self._stack.enter_context(
            Balancer([member.port for member in self.members])
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._stack.close()


class Member:
    """One server in a process of its own. It accepts connections once the object exists."""

    def __init__(self, data_dir: str, ollama_host: str, **settings: Any) -> None:
        self._ours, theirs = _CONTEXT.Pipe()
        arguments = (theirs, dict(os.environ), data_dir, ollama_host, settings)
        self.process = _CONTEXT.Process(target=_serve, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        if not self._ours.poll(_START_SECONDS):
            self.kill()  # it would run until the end of the tests, and delay them
            raise AssertionError("the server did not start")
        self.port: int = self._ours.recv()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Stop the server as a signal does, with the grace period for running turns."""
        if self.process.is_alive():
            self._ours.send("stop")
            self.process.join(60)
            assert not self.process.is_alive(), "the server did not stop"

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self._ours.close()


def _serve(
    parent: Connection,
    environment: dict[str, str],
    data_dir: str,
    ollama_host: str,
    settings: dict[str, Any],
) -> None:
    from tests.support.server import ThreadedServer

    os.environ.clear()  # inherited from the first test that forked
    os.environ.update(environment)
    with ThreadedServer(data_dir, ollama_host, **settings) as server:
        parent.send(server.port)
        parent.poll(None)
