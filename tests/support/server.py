"""The server under test: uvicorn on a free port in a thread, or several processes that share a
database.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import anyio
import httpx
import uvicorn
from fastapi import FastAPI
from typing_extensions import Self

from mochi_server.app import create_app
from mochi_server.config import MochiServerSettings
from mochi_server.container import DEFAULT_COMPONENTS, Components
from mochi_server.testing import GivenSettings, share_routes
from mochi_server.web.http_protocol import StrictHttpProtocol
from tests.support.api import Api
from tests.support.cluster import Cluster
from tests.support.openapi import document

SERVERS = "MOCHI_TEST_SERVERS"
"""Environment variable: number of server processes behind a load balancer.

If unset, one server runs in a thread.
"""


class RunningServer:
    """The app on a real socket. Use it as a context manager."""

    def __init__(
        self,
        data_dir: Path,
        ollama_host: str,
        components: Components = DEFAULT_COMPONENTS,
        protocol: type[StrictHttpProtocol] = StrictHttpProtocol,
        /,
        **settings: Any,
    ) -> None:
        """Several server processes run with the default ``components`` and ``protocol``."""
        self._given = {"data_dir": str(data_dir), "ollama_host": ollama_host, **settings}
        self._server: Cluster | ThreadedServer
        if number := int(os.environ.get(SERVERS, "0")):
            self._server = Cluster(number, str(data_dir), ollama_host, **settings)
        else:
            self._server = ThreadedServer(
                str(data_dir), ollama_host, components, protocol, **settings
            )
        self._clients: list[Api] = []

    @cached_property
    def settings(self) -> MochiServerSettings:
        return GivenSettings(**self._given)

    @property
    def app(self) -> FastAPI:
        """Return the app of a server in this process."""
        assert isinstance(self._server, ThreadedServer)
        return self._server.app

    @property
    def url(self) -> str:
        return self._server.url

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the thread of a server in this process, and wait for its end."""
        assert isinstance(self._server, ThreadedServer)
        self._server.call(function)

    def api(self, **client: Any) -> Api:
        """Return a new client that is closed with the server."""
        if isinstance(self._server, Cluster):  # each request goes to the next server
            client = {"limits": httpx.Limits(max_keepalive_connections=0), **client}
        self._clients.append(Api(self.url, **client))
        return self._clients[-1]

    @cached_property
    def client(self) -> Api:
        """Shared client of all tests that use this server. Tests do not close it."""
        return self.api()

    def stop(self) -> None:
        """Stop the server as a signal does, with the grace period for running turns."""
        self._server.stop()

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.http.close()
        self._server.__exit__()


class ThreadedServer:
    """One server in a thread of this process."""

    def __init__(
        self,
        data_dir: str,
        ollama_host: str,
        components: Components = DEFAULT_COMPONENTS,
        protocol: type[StrictHttpProtocol] = StrictHttpProtocol,
        **settings: Any,
    ) -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.port: int = listener.getsockname()[1]
        self.settings = GivenSettings(
            **{"data_dir": data_dir, "ollama_host": ollama_host, "port": self.port, **settings}
        )
        self.app = create_app(self.settings, components=components)
        share_routes(self.app)
        self.app.openapi = document  # type: ignore[method-assign]  # making it takes longer than most tests
        config = uvicorn.Config(
            self.app,
            http=protocol,
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=5,
        )
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the thread of the server, and wait for its end."""
        self._server.call(function)

    def stop(self) -> None:
        self._server.request_stop()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the server did not stop"

    def __enter__(self) -> "ThreadedServer":
        self._thread.start()
        assert self._server.ready.wait(60), "the server did not start"
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self.stop()


class _Server(uvicorn.Server):
    """Uvicorn server that signals when it is ready and stops on request."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving: asyncio.Event | None = None

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._leaving = asyncio.Event()
        await self.on_tick(0)
        self.ready.set()
        await self._leaving.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down like uvicorn, but poll without uvicorn's pauses of 0.1 s, which add up to a
        minute in a test run.

        The commands in `tests/cli` and `tests/faults` use uvicorn's own shutdown.
        """
        del sockets  # closed with the servers
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with anyio.move_on_after(self.config.timeout_graceful_shutdown):
            while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.001)
        for task in self.server_state.tasks:
            task.cancel()
        await self.lifespan.shutdown()

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the thread of the server, and wait for its end."""

        async def call() -> None:
            function()

        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(call(), self._loop).result(60)

    def request_stop(self) -> None:
        assert self._loop is not None
        assert self._leaving is not None
        asyncio.run_coroutine_threadsafe(self._drain_and_leave(self._leaving), self._loop)

    async def _drain_and_leave(self, leaving: asyncio.Event) -> None:
        """Let the running turns end first, as the command does."""
        services = self.config.app.state.services  # type: ignore[union-attr]  # our FastAPI
        try:
            await services.drain()
        finally:
            leaving.set()
