"""The server: the application behind a real socket, in a thread and an event loop of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from mochi_stub.app import App
from mochi_stub.config.loader import Config, packaged_config
from mochi_stub.config.model_registry import ModelRegistry
from mochi_stub.config.reload import reloading_config
from mochi_stub.http.connection import Application, HttpConnection
from mochi_stub.http.http_result import Stub
from mochi_stub.http.response_cache import ResponseCache
from mochi_stub.journal import Exchange, Journal
from mochi_stub.models.catalogue import DEFAULT_MODELS, Model
from mochi_stub.models.scheduler import Machine, Scheduler
from mochi_stub.prompt import Prompt
from mochi_stub.recording.replay import replay
from mochi_stub.replies.resolver import resolver
from mochi_stub.reply import Reply

loops: ModuleType
try:
    import uvloop as loops
except ImportError:  # on Windows
    loops = asyncio

if TYPE_CHECKING:
    from mochi_stub.recording.recorder import Recorder

Resolve = Callable[[Prompt], "Reply | str | None"]


class StubServer:
    """A deterministic LLM server.

    `config` names a file of models and their replies; without it and without `models` the default models are served.
    `resolve` scripts the replies; if it returns None, the configuration or the default behaviour replies. The same
    `seed` and request give the same bytes. A `speed` of 2 halves all waiting, 0 removes it. `machine` sets the limits
    of Ollama's scheduler; by default no request waits for another. A `record` (see
    `mochi_stub.recording.recorder.record`) passes every request on to a real server and records its responses.

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
        self._config: Callable[[], Config | None] = lambda: None
        if config is not None:
            self._config = reloading_config(config)
        elif models is None:
            models, self._config = DEFAULT_MODELS, packaged_config
        self._models = models or ()
        self._script = resolve
        self._seed = seed
        self._speed = speed
        self._record = record
        self.machine = machine or Machine()
        self._journal = Journal()
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """URL of the server on this machine. A server on all addresses is reached over the loopback address."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104  # not to listen on
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def start(self) -> StubServer:
        """Bind the socket and return when the server answers. Raises OSError if the port is taken."""
        try:
            bound = _bound(self.host, self.port)
        except OSError:
            if not self._fall_back:
                raise
            bound = _bound(self.host, 0)
        self.port = bound.getsockname()[1]
        self._loop: asyncio.AbstractEventLoop = loops.new_event_loop()
        self._grace: asyncio.Future[float] = self._loop.create_future()
        running = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(bound, running), name="mochi-stub", daemon=True)
        self._thread.start()
        running.wait()
        return self

    def stop(self, grace: float = 0.0) -> None:
        """Close all connections and wait until the server has ended. Open streams have `grace` seconds to complete."""
        if self._thread is not None:
            if self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._grace.set_result, grace)
            self._thread.join()
        self._thread = None

    def __enter__(self) -> StubServer:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def exchanges(self) -> list[Exchange]:
        """Return a snapshot of all requests and their outcome, oldest first."""
        return self._journal.exchanges()

    def wait_for(self, condition: Callable[[list[Exchange]], bool], timeout: float = 5) -> list[Exchange]:
        """Block until the condition holds for the exchanges. Raises TimeoutError."""
        return self._journal.wait_for(condition, timeout)

    def clear_exchanges(self) -> None:
        """Empty the journal, so that a test that shares the stub sees only its own requests."""
        self._journal.clear()

    def _app(self) -> Application:
        library = ModelRegistry(self._models, self._config)

        def state() -> tuple[object, int] | None:
            """Return what replies depend on; None if equal requests may get different replies, or replies that wait."""
            config = self._config()
            whole = config is None or config.is_self_contained
            varies = self._speed or self._script or self.machine.prompt_speed
            return None if varies or not whole else (config, library.changes)

        async def load(seconds: float) -> None:
            if self._speed:
                await asyncio.sleep(seconds / self._speed)

        scheduler = Scheduler(self.machine, wait=load)
        stub = Stub(library, resolver(self._config, self._script), scheduler, self._journal, self._seed)
        app = App(stub, lambda stub, request: replay(self._config(), stub, request), ResponseCache(state), self._speed)
        return app if self._record is None else self._record.app(self._journal, app)

    def _run(self, bound: socket.socket, running: threading.Event) -> None:
        try:
            self._loop.run_until_complete(self._serve(bound, running))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            running.set()  # also after an error, so that `start` returns
            self._loop.close()
            bound.close()

    async def _serve(self, bound: socket.socket, running: threading.Event) -> None:
        app = self._app()
        connections: set[HttpConnection] = set()
        listener = await self._loop.create_server(lambda: HttpConnection(app, connections), sock=bound, backlog=2048)
        running.set()
        deadline = await self._grace + time.monotonic()
        listener.close()
        for connection in list(connections):
            connection.finish()
        while connections and time.monotonic() < deadline:  # noqa: ASYNC110  # connections report nothing
            await asyncio.sleep(0.02)
        answers = [connection.writers[0].task for connection in connections if connection.writers]
        for connection in list(connections):
            connection.transport.abort()
        if answers:
            await asyncio.wait(answers)


class ScriptedStub(StubServer):
    """A server that does not wait, with a queue of replies. Other requests get the default behaviour."""

    def __init__(self) -> None:
        super().__init__(resolve=self._next, speed=0)
        self._queue: deque[Reply | str | Resolve] = deque()

    @property
    def requests(self) -> list[Exchange]:
        """The requests and their outcomes, oldest first."""
        return self.exchanges()

    def script(self, *replies: Reply | str | Resolve) -> None:
        """Queue replies, one for each request to a model: a text, a reply, or a function that makes one of the prompt.

        A function may return None, which leaves the request to the default behaviour. Raises TypeError for all else.
        """
        for reply in replies:
            if not isinstance(reply, (Reply, str)) and not callable(reply):
                raise TypeError(f"a script is made of texts, replies and functions, not of {reply!r}")
        self._queue.extend(replies)

    def _next(self, prompt: Prompt) -> Reply | str | None:
        if not self._queue:
            return None
        scripted = self._queue.popleft()
        return scripted if isinstance(scripted, (Reply, str)) else scripted(prompt)


def _bound(host: str, port: int) -> socket.socket:
    if ":" not in host:
        return socket.create_server((host, port))
    dual = socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=dual)
