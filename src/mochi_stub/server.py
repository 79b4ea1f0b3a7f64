"""The server: the application behind a real socket, in a thread and an event loop of its own."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mochi_stub.answer import Stub
from mochi_stub.app import App
from mochi_stub.catalogue import DEFAULT_MODELS, Model
from mochi_stub.config import Config, packaged
from mochi_stub.journal import Exchange, Journal
from mochi_stub.library import Library
from mochi_stub.live import ConfiguredLibrary, LiveConfig
from mochi_stub.prompt import Prompt
from mochi_stub.remembered import Remembered
from mochi_stub.replay import Replay
from mochi_stub.reply import Reply
from mochi_stub.resolve import resolver
from mochi_stub.scheduler import Machine, Scheduler
from mochi_stub.wires import ROUTES

if TYPE_CHECKING:
    from mochi_stub.recorder import Recorder

DAY = 24 * 3600

Resolve = Callable[[Prompt], "Reply | str | None"]


class StubServer:
    """A deterministic LLM server.

    `config` names a file of models and what they answer; without it and without `models` there are the default ones.
    `resolve` scripts the replies; where it returns None the configuration answers, or the default behaviour. The same
    `seed` and request give the same bytes. `speed` 2 is twice as fast, 0 does not wait at all.
    `machine` is what Ollama's scheduler has to do with; by default nothing ever waits for anything else. `record`
    (made by `mochi_stub.recorder.record`) passes every request on to a real server and writes down what it says.

        with StubServer(speed=0) as stub:
            ollama.Client(stub.url).chat("mochi", messages=[...])
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        fall_back_to_free_port: bool = False,
        models: Sequence[Model] | None = None,
        config: Path | None = None,
        resolve: Resolve | None = None,
        seed: int = 0,
        speed: float = 1.0,
        machine: Machine | None = None,
        record: Recorder | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._fall_back = fall_back_to_free_port
        self._models = models
        self._live = None if config is None else LiveConfig(config)
        self._script = resolve
        self._seed = seed
        self._speed = speed
        self._record = record
        self.machine = machine or Machine()
        self._journal = Journal()
        self._thread: threading.Thread | None = None
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        """Where this machine finds the server; one that listens on all addresses is on the loopback too."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104  # not to listen on
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def start(self) -> StubServer:
        """Bind the socket and return when the server answers. Raises OSError where the port is taken."""
        bound = self._bind()
        self.port = bound.getsockname()[1]
        started = threading.Event()
        self._server = _Server(self._config(), started)
        self._thread = threading.Thread(target=_run, args=(self._server, bound), name="mochi-stub", daemon=True)
        self._thread.start()
        started.wait()
        return self

    def stop(self, grace: float = 0.0) -> None:
        """End open streams, after `grace` seconds without new requests, and wait until the server is gone."""
        if self._server is not None and self._thread is not None:
            if self._thread.is_alive():
                self._server.leave(grace)
            self._thread.join()
        self._server = self._thread = None

    def __enter__(self) -> StubServer:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def exchanges(self) -> list[Exchange]:
        """What was asked so far and how it went, oldest first; a snapshot."""
        return self._journal.exchanges()

    def wait_for(self, condition: Callable[[list[Exchange]], bool], timeout: float = 5) -> list[Exchange]:
        """Block until the condition holds of the exchanges. Raises TimeoutError."""
        return self._journal.wait_for(condition, timeout)

    def clear_exchanges(self) -> None:
        """Empty the journal, so that a test that shares the stub sees only its own requests."""
        self._journal.clear()

    def _configuration(self) -> Config | None:
        """What is in force."""
        if self._live is not None:
            return self._live.current
        return packaged() if self._models is None else None

    def _library(self) -> Library:
        if self._live is not None:
            return ConfiguredLibrary(self._live, self._models or ())
        return Library((*DEFAULT_MODELS, *packaged().models) if self._models is None else self._models)

    def _state(self, library: Library) -> tuple[object, int] | None:
        """What replies are made from; None where the same request may be answered otherwise, or takes its time."""
        if self._speed or self._script is not None:
            return None
        config = self._configuration()
        return None if config is not None and not config.is_whole else (config, library.changes)

    async def _load(self, seconds: float) -> None:
        if self._speed:
            await asyncio.sleep(seconds / self._speed)

    def _config(self) -> uvicorn.Config:
        scheduler = Scheduler(self.machine, wait=self._load)
        stub = Stub(self._library(), resolver(self._configuration, self._script), scheduler, self._journal, self._seed)
        remembered = Remembered(lambda: self._state(stub.library))
        app: Any = App(
            stub,
            ROUTES,
            self._journal,
            replay=Replay(self._configuration, ROUTES),
            remembered=remembered,
            speed=self._speed,
        )
        if self._record is not None:
            app = self._record.app(self._journal, app)
        return uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=DAY,  # Go's server does not close idle connections at all
        )

    def _bind(self) -> socket.socket:
        try:
            return _bound(self.host, self.port)
        except OSError:
            if not self._fall_back:
                raise
            return _bound(self.host, 0)


class _Protocol(HttpToolsProtocol):
    """HTTP/1.1 and nothing else.

    Without uvicorn's access log: the journal has it, and the logger may belong to another server of the process.
    A wish for another protocol is not granted, as in Go's server. Java's client asks for HTTP/2 with every request, and
    the parser takes the body of such a request for the other protocol's; so its head is read again without the wish.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.access_log = False

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as wish:
            if self.scope["method"] == "CONNECT":
                self.send_400_response("Invalid HTTP request received.")
                return
            self.parser = httptools.HttpRequestParser(self)
            self.data_received(self._head() + data[wish.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _should_upgrade(self) -> bool:
        """True keeps the base class from starting the request while its head has a wish in it."""
        return True

    def _head(self) -> bytes:
        """The request's head without its wish for another protocol."""
        left = [(name, value) for name, value in self.headers if name not in _WISH]
        closing = any(name == b"connection" and b"close" in value.lower() for name, value in self.headers)
        lines = [b"%s: %s" % header for header in (*left, *([(b"connection", b"close")] if closing else ()))]
        first = b"%s %s HTTP/%s" % (self.scope["method"].encode(), self.url, self.scope["http_version"].encode())
        return b"\r\n".join([first, *lines, b"", b""])


_WISH = (b"upgrade", b"http2-settings", b"connection")


class _Server(uvicorn.Server):
    """uvicorn's server, told to leave by an event and leaving without a wait."""

    def __init__(self, config: uvicorn.Config, running: threading.Event) -> None:
        super().__init__(config)
        self.running = running
        self._leaving = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._grace = 0.0

    def leave(self, grace: float) -> None:
        """From any thread. What is being answered is given `grace` seconds to end."""
        self._grace = grace
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._leaving.set)

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self.on_tick(0)
        self.running.set()
        while not self._leaving.is_set():
            try:
                await asyncio.wait_for(self._leaving.wait(), 1)
            except asyncio.TimeoutError:
                await self.on_tick(0)  # the Date header

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        del sockets  # closed by the thread that bound them
        for server in self.servers:
            server.close()
        if self._grace:
            await self._drain(time.monotonic() + self._grace)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        while self.server_state.tasks:
            await asyncio.wait(set(self.server_state.tasks), timeout=0.1)

    async def _drain(self, deadline: float) -> None:
        for connection in list(self.server_state.connections):
            connection.shutdown()
        while self.server_state.connections and time.monotonic() < deadline:  # noqa: ASYNC110  # nobody tells of it
            await asyncio.sleep(0.02)


def _run(server: _Server, bound: socket.socket) -> None:
    loop = (server.config.get_loop_factory() or asyncio.new_event_loop)()
    try:
        loop.run_until_complete(server.serve([bound]))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        server.running.set()  # also where it never came to run: nobody shall wait for it
        loop.close()
        bound.close()


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(2048)
    except OSError:
        bound.close()
        raise
    return bound
