"""Stub servers. Each one runs in its own thread with its own event loop."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import cast

from aiohttp import web
from typing_extensions import Self

from mochi_stub.app import App, omit_default_headers
from mochi_stub.config import Config, packaged_config, reloading_config
from mochi_stub.connection import Connection
from mochi_stub.handlers import ModelRegistry, Stub
from mochi_stub.journal import Exchange, Journal
from mochi_stub.models import Model
from mochi_stub.models.scheduler import Machine, Scheduler
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Choice, Failure, Reply, Scripted, as_reply
from mochi_stub.resolver import resolve

logger = logging.getLogger("mochi_stub")
loops: ModuleType
try:
    import uvloop as loops
except ImportError:  # on Windows
    loops = asyncio

Resolve = Callable[[Prompt], "Scripted | None"]


@dataclass(kw_only=True, eq=False, repr=False)
class StubServer:
    """Deterministic LLM server.

    Args:
        port: Port to listen on; 0 selects a free port.
        models: Models to serve. Without `models` and `config`, the packaged models are served.
        config: YAML file of models and their replies, or a loaded configuration.
        resolve: Function that returns the reply to a prompt. If it returns None, the stub selects
            the reply.
        seed: Seed of generated values. Equal seeds and requests give equal responses.
        speed: Divisor of all delays: 2 halves them, 0 removes them.
        machine: Limits of the simulated Ollama scheduler. By default, requests do not wait for each
            other.
        load: Coroutine function that returns when a model is loaded, so that a test can end a load.
            It gets the `load_time` of the model in seconds. By default, a load takes this time
            divided by `speed`.

    Example:
        with StubServer(speed=0) as stub:
            ollama.Client(stub.url).chat("mochi", messages=[...])
    """

    host: str = "127.0.0.1"
    port: int = 0
    fall_back_to_free_port: bool = False
    models: Sequence[Model] | None = None
    config: Path | Config | None = None
    resolve: Resolve | None = None
    seed: int = 0
    speed: float = 1.0
    machine: Machine | None = None
    load: Callable[[float], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        self._config: Callable[[], Config | None] = lambda: None
        config = self.config
        if isinstance(config, Config):
            self._config = lambda: config
        elif config is not None:
            self._config = reloading_config(config)
        elif self.models is None:
            self._config = packaged_config
        self._journal = Journal()
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """URL of the server for clients on this machine."""
        all_addresses = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # only compared
        host = all_addresses.get(self.host, self.host)
        if ":" in host:
            host = f"[{host}]"
        return f"http://{host}:{self.port}"

    def start(self) -> Self:
        """Start the server and return it when it accepts requests.

        Raises OSError if the port is in use, or the error that ended the server before it accepted
        requests.
        """
        try:
            listener = _bind(self.host, self.port)
        except OSError:
            if not self.fall_back_to_free_port:
                raise
            listener = _bind(self.host, 0)
        self.port = listener.getsockname()[1]
        self._loop: asyncio.AbstractEventLoop = loops.new_event_loop()
        self._grace: asyncio.Future[float] = self._loop.create_future()
        running = Future[None]()
        self._thread = threading.Thread(
            target=self._run,
            args=(listener, running),
            name="mochi-stub",
            daemon=True,
        )
        self._thread.start()
        error = running.exception()  # waits until the server runs or fails
        if error is not None:
            self._thread.join()
            self._thread = None
            raise error
        return self

    def stop(self, grace: float = 0.0) -> None:
        """Stop the server and wait for its end.

        Replies that still run after `grace` seconds are aborted.
        """
        if self._thread is not None:
            if self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._grace.set_result, grace)
            self._thread.join()
        self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def exchanges(self) -> list[Exchange]:
        """Return the latest requests with their outcomes, oldest first."""
        return self._journal.exchanges()

    def wait_for(
        self, condition: Callable[[list[Exchange]], bool], timeout: float = 30
    ) -> list[Exchange]:
        """Return the exchanges once `condition(exchanges)` is true.

        Raises TimeoutError after `timeout` seconds.
        """
        return self._journal.wait_for(condition, timeout)

    def clear_exchanges(self) -> None:
        """Delete all exchanges from the journal, for example between tests that share a stub."""
        self._journal.clear()

    def _app(self) -> App:
        scheduler = Scheduler(self.machine, wait=self.load or self._wait_for_load)
        stub = Stub(
            registry=ModelRegistry(self._declared_models),
            resolve=self._resolve_reply,
            scheduler=scheduler,
            load=scheduler.acquire,
            journal=self._journal,
            seed=self.seed,
        )
        return App(stub, self.speed)

    def _declared_models(self) -> Sequence[Model]:
        models = list(self.models or ())
        config = self._config()
        if config:
            models += config.models
        return models

    async def _wait_for_load(self, seconds: float) -> None:
        if self.speed:
            await asyncio.sleep(seconds / self.speed)

    def _resolve_reply(self, prompt: Prompt, model: Model) -> Reply:
        """Return the scripted reply, or else the one that the stub selects.

        If an error occurs, log it and return a failure.
        """
        try:
            scripted = self.resolve(prompt) if self.resolve else None
            if scripted is None:
                reply = resolve(prompt, self._config(), model.source)
                return self._seeded(reply)
            return _scripted_reply(scripted, prompt)
        except Exception as error:
            logger.exception("reply failed: model=%s", prompt.model)
            failure = Failure(f"the stub failed: {error!r}")
            return Reply([failure], rule="script")

    def _seeded(self, reply: Reply) -> Reply:
        """Return the reply with a jitter that also depends on the seed of the server."""
        if reply.pace is None:
            return reply
        seed = reply.pace.seed + self.seed
        return replace(reply, pace=replace(reply.pace, seed=seed))

    def _run(self, listener: socket.socket, running: Future[None]) -> None:
        try:
            self._loop.run_until_complete(self._serve(listener, running))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        except Exception as error:
            if running.done():
                raise
            running.set_exception(error)
        finally:
            self._loop.close()
            listener.close()

    async def _serve(self, listener: socket.socket, running: Future[None]) -> None:
        application = web.Application(client_max_size=0)  # bodies of any size
        app = self._app()
        application.router.add_route("*", "/{path:.*}", app.respond)
        application.on_response_prepare.append(omit_default_headers)
        runner = web.AppRunner(application, handler_cancellation=True)
        await runner.setup()
        requests = cast(web.Server, runner.server)
        accept = partial(Connection, requests, self._loop)
        server = await self._loop.create_server(accept, sock=listener, backlog=2048)
        running.set_result(None)
        grace = await self._grace
        server.close()
        await asyncio.sleep(0)  # connections that were accepted last join the others
        connections = requests.connections
        aborting = self._loop.call_later(grace, _abort, connections)
        requests.pre_shutdown()
        await requests.shutdown()
        while any(connection.transport for connection in connections):  # noqa: ASYNC110  # connections have no event
            await asyncio.sleep(0.001)
        aborting.cancel()
        await runner.cleanup()


class ScriptedStub(StubServer):
    """Stub server without delays that sends queued replies.

    A stub without a script sends built-in replies. After the last reply of a script, requests fail.
    """

    def __init__(self) -> None:
        super().__init__(resolve=self._next, speed=0)
        self._queue: deque[Scripted | Resolve] = deque()
        self._current: Scripted | Resolve | None = None
        self._is_scripted = False
        self.unscripted: list[str] = []
        """User messages of the requests after the last scripted reply."""

    @property
    def requests(self) -> list[Exchange]:
        return self.exchanges()

    def script(self, *replies: Scripted | Resolve) -> None:
        """Queue replies for the next requests.

        A request with several prompts or choices takes one reply.

        A reply is a text, a `ToolCall`, a `Reply`, or a function. Raises TypeError for others.

        A function gets the prompt and returns a text, a `ToolCall`, a `Reply`, or None for the
        built-in reply. If it fails or returns another value, the request fails.
        """
        self._is_scripted = True
        checked: list[Scripted | Resolve] = []
        for reply in replies:
            if callable(reply):
                checked.append(reply)
            else:
                checked.append(as_reply(reply))
        self._queue.extend(checked)

    def _next(self, prompt: Prompt) -> Scripted | None:
        if not self._is_scripted:
            return None
        if prompt.index == 0:
            self._current = self._taken(prompt)
        scripted = self._current
        if scripted is None:
            raise LookupError("all scripted replies were sent; script another reply")
        if callable(scripted):
            return scripted(prompt)
        return scripted

    def _taken(self, prompt: Prompt) -> Scripted | Resolve | None:
        """Remove the first reply from the queue and return it, or None if the queue is empty."""
        if self._queue:
            return self._queue.popleft()
        self.unscripted.append(prompt.user_text)
        return None


def _scripted_reply(scripted: Scripted, prompt: Prompt) -> Reply:
    """Return the reply of a script.

    Raises ValueError if it has choices and the API has only one choice.
    """
    reply = as_reply(scripted)
    has_choices = any(isinstance(part, Choice) for part in reply.parts)
    if has_choices and not prompt.allows_choices:
        raise ValueError("this API has only one choice, so the reply must not contain a Choice")
    if reply.rule:
        return reply
    return replace(reply, rule="script")


def _abort(connections: Iterable[web.RequestHandler]) -> None:
    for connection in connections:
        if connection.transport is not None:
            connection.transport.abort()


def _bind(host: str, port: int) -> socket.socket:
    address = (host, port)
    if ":" not in host:
        return socket.create_server(address)
    has_dualstack = socket.has_dualstack_ipv6()
    return socket.create_server(address, family=socket.AF_INET6, dualstack_ipv6=has_dualstack)
