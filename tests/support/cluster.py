"""Several servers, each a process of its own, over one database and behind a plain TCP round robin.

Processes are forked from one that has imported everything, so that a test need not wait for it.
"""

import multiprocessing
import os
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

from tests.support import postgres
from tests.support.balancer import Balancer

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "tests.support.server",
        "mochi_server.postgres.stores",
        "anyio._backends._asyncio",
        "uvicorn.lifespan.on",
        "uvloop",
        "yaml",
    ]
)


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
        """The balancer's."""
        return self._balancer.url

    def stop(self) -> None:
        """Stop every server, as a signal would."""
        for member in self.members:
            member.stop()

    def __enter__(self) -> "Cluster":
        store_url = postgres.schema_of(postgres.of_this_run().url(), self._arguments[0])
        settings = {"store_url": store_url, **self._settings}
        self.members = [Member(*self._arguments, **settings) for _ in range(self._number)]
        for member in self.members:
            self._stack.callback(member.kill)
        self._balancer = self._stack.enter_context(Balancer([member.port for member in self.members]))
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._stack.close()


class Member:
    """One server in a process of its own; it listens when this has been made."""

    def __init__(self, data_dir: str, ollama_host: str, **settings: Any) -> None:
        self._ours, theirs = _CONTEXT.Pipe()
        arguments = (theirs, dict(os.environ), data_dir, ollama_host, settings)
        self.process = _CONTEXT.Process(target=_serve, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        assert self._ours.poll(20), "the server did not start"
        self.port: int = self._ours.recv()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """As a signal would: running turns get their grace."""
        if self.process.is_alive():
            self._ours.send("stop")
            self.process.join(15)
            assert not self.process.is_alive(), "the server did not stop"

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.process.join()
        self._ours.close()


def _serve(
    told: Connection, environment: dict[str, str], data_dir: str, ollama_host: str, settings: dict[str, Any]
) -> None:
    from tests.support.server import ThreadedServer

    os.environ.clear()  # it is that of whichever test was the first to fork
    os.environ.update(environment)
    with ThreadedServer(data_dir, ollama_host, **settings) as server:
        told.send(server.port)
        told.poll(None)
