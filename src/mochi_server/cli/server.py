"""Server processes: socket, signals, log and startup banner around uvicorn, and the supervisor of
several workers.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from functools import partial
from multiprocessing import connection, get_context, parent_process
from multiprocessing.context import SpawnProcess
from types import FrameType
from urllib.parse import parse_qs, unquote, urlsplit

import uvicorn
from fastapi import FastAPI

from mochi_server.app import create_app, with_key
from mochi_server.cli import print_text
from mochi_server.cli.banner import startup_banner
from mochi_server.config import MochiServerSettings
from mochi_server.container import Services, prepare_store
from mochi_server.ollama.endpoint import parse_endpoint
from mochi_server.services.keys import KeyRing
from mochi_server.storage.files.store import FileStores
from mochi_server.telemetry import logging as logs
from mochi_server.util.net import server_url
from mochi_server.util.platform import leave_terminal, on_hangup
from mochi_server.util.text import SecretMasker
from mochi_server.web.forwarded import with_forwarded_prefix
from mochi_server.web.http_protocol import StrictHttpProtocol

_CONNECTION_GRACE_SECONDS = 1
_EXIT_SECONDS = 2
"""Time that the process may take to exit after the shutdown.

Thread pools of tools could otherwise block the exit.
"""
_BACKLOG = 2048
_LISTENER_COPIES = 0 if sys.platform == "win32" else 7
"""Number of duplicates of each listening socket. On Windows, asyncio accepts all waiting
connections without them.
"""
_EARLY_SECONDS = 5.0
_MAX_EARLY_DEATHS = 5

Job = Callable[[socket.socket, bool], int]
"""Picklable function that serves on a socket and returns the exit code.

If the flag is true, it prints the banner.
"""

logger = logging.getLogger(__name__)


def serve(settings: MochiServerSettings, *, insecure: bool = False) -> int:
    """Serve until a signal stops the server, and return the exit code.

    Raises ``OSError`` if the address cannot be used, ``StorageFailed`` if the sessions cannot be
    read or the database cannot be migrated, ``DirectoryInUse`` if another process uses the
    sessions, and ``KeysFileInvalid``.
    """
    keys = [key.get_secret_value() for key in settings.api_keys]
    KeyRing(keys, settings.keys_path)  # raises KeysFileInvalid before workers start
    settings, generated_key = with_key(settings, insecure=insecure)
    _configure_log(settings)
    if settings.store_url:
        asyncio.run(prepare_store(settings))
    listener = listen(settings.host, settings.port)
    # A partial, because it can be pickled.
    job = partial(_serve_on, settings, generated_key=generated_key, insecure=insecure)
    if settings.workers > 1:
        return supervise(settings.workers, job, listener)
    return job(listener, True)


def _serve_on(
    settings: MochiServerSettings,
    listener: socket.socket,
    prints_banner: bool,
    *,
    generated_key: str | None,
    insecure: bool,
) -> int:
    """Serve on a socket, like a ``Job``. Return 1 if the server could not start."""
    settings = settings.model_copy(update={"port": listener.getsockname()[1]})
    listeners = [listener]
    if settings.workers > 1:
        _configure_log(settings)  # of this worker's process
        # Other servers reach this worker at a socket of its own. The socket is on loopback unless
        # another host is configured.
        own_listener = listen(settings.host if settings.advertise_url else "127.0.0.1", 0)
        listeners.append(own_listener)
        address, port = own_listener.getsockname()[:2]
        own_host = urlsplit(settings.advertise_url).hostname or address
        settings = settings.model_copy(update={"advertise_url": server_url(own_host, port)})
    app = create_app(settings, insecure=insecure)
    services: Services = app.state.services
    if isinstance(services.stores, FileStores):
        services.stores.lock()  # before uvicorn, which would log a traceback
    banner = partial(
        startup_banner,
        local_url(settings.host, settings.port) + settings.root_path,
        settings,
        services,
        generated_key,
    )
    server = _Server(uvicorn_config(app, settings), services, banner if prints_banner else None)
    # Uvicorn raises a signal again after the shutdown. These handlers let the caller clean up.
    signal.signal(signal.SIGTERM, server.handle_exit)
    signal.signal(signal.SIGINT, server.handle_exit)
    on_hangup(lambda: server.handle_exit(signal.SIGTERM, None))
    sockets = []
    for each in listeners:
        sockets += duplicates(each)
    server.run(sockets=sockets)
    return 0 if server.started else 1


def duplicates(listener: socket.socket) -> list[socket.socket]:
    """Return the socket and duplicates of it.

    In each iteration of its loop, uvloop accepts one connection for each socket.
    """
    listener.setblocking(False)  # the duplicates and the other workers share this mode
    copies = [listener.dup() for _ in range(_LISTENER_COPIES)]
    return [listener, *copies]


def local_url(host: str, port: int) -> str:
    """Return the URL of a server that listens on ``host``, for clients on the same machine."""
    local_addresses = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared
    return server_url(local_addresses.get(host, host), port)


def uvicorn_config(app: FastAPI, settings: MochiServerSettings) -> uvicorn.Config:
    return uvicorn.Config(
        with_forwarded_prefix(app, os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1")),
        proxy_headers=False,  # the wrapper reads them
        root_path=settings.root_path,
        http=StrictHttpProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=_CONNECTION_GRACE_SECONDS,
    )


def _configure_log(settings: MochiServerSettings) -> None:
    """Configure the log.

    Log lines mask the keys and passwords of this server, of its database and of Ollama.
    """
    logs.configure(settings.log_level, settings.log_format, SecretMasker(_secrets(settings)))
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request
    # The banner replaces uvicorn's startup lines.
    uvicorn_log = logging.getLogger("uvicorn.error")
    uvicorn_log.setLevel(max(logging.WARNING, logging.getLevelName(settings.log_level)))
    # One line counts the requests that a shutdown cancels, so their tracebacks are omitted.
    uvicorn_log.addFilter(_is_not_cancellation)


def _is_not_cancellation(log: logging.LogRecord) -> bool:
    return not log.exc_info or not isinstance(log.exc_info[1], asyncio.CancelledError)


def _secrets(settings: MochiServerSettings) -> Iterator[str]:
    for secret in (*settings.api_keys, settings.webhook_secret):
        yield secret.get_secret_value()
    yield os.environ.get("OLLAMA_API_KEY", "")
    hosts = [host.url for host in settings.hosts()]
    others = [settings.store_url.get_secret_value(), settings.webhook_url.get_secret_value()]
    for url in hosts + others:
        parts = urlsplit(url)
        password = parts.password or ""
        yield password
        yield unquote(password)
        yield from parse_qs(parts.query).get("password", ())
    for host in hosts:
        for value in parse_endpoint(host).headers.values():
            yield value.partition(" ")[2]


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ``OSError`` if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # On Windows, this option lets a second process use the same address.
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)  # until then, a second process could bind the same address
    except OSError:
        listener.close()
        raise
    return listener


class _Server(uvicorn.Server):
    """Uvicorn server that prints a banner when it is ready, and drains the app before it shuts
    down.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        services: Services,
        banner: Callable[[], Awaitable[str]] | None,
    ) -> None:
        super().__init__(config)
        self._services = services
        self._banner = banner
        self._loop: asyncio.AbstractEventLoop | None = None
        self._signals = 0
        self._shutdown_tasks: list[asyncio.Future[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._loop = asyncio.get_running_loop()
            # Scanning the imported modules would block the event loop for up to a second.
            gc.freeze()
            gc.set_threshold(50_000, 5, 25)  # saves a tenth of the CPU time of an event
            gc.enable()  # the command disables garbage collection while it imports modules
            # A storage thread then writes three times as fast while the event loop is busy.
            sys.setswitchinterval(0.0005)
            if self._banner is not None and not self.should_exit:
                print_text(await self._banner())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        exit_timer = threading.Timer(_EXIT_SECONDS, os._exit, (0,))
        exit_timer.daemon = True
        exit_timer.start()
        # The event loop waits for its pool when it closes. With a new pool, the caller can clean up
        # before the exit timer ends the process, although tools hang in the old one.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """On the first signal, refuse new turns, wait for others for the grace period at most, and
        stop.

        On the second, end them at once. On the third, stop without waiting. Before the startup has
        ended, stop on the first signal.
        """
        self._signals += 1
        loop = self._loop
        if loop is None or loop.is_closed() or self._signals > 2:
            super().handle_exit(sig, frame)
            return
        # An empty context, so that log lines about the shutdown have no ID or key of the request
        # that the signal interrupts.
        context = Context()
        if self._signals == 1:
            loop.call_soon_threadsafe(self._drain, sig, context=context)
        else:
            loop.call_soon_threadsafe(self._end_turns, context=context)

    def _drain(self, sig: int) -> None:
        draining = asyncio.ensure_future(self._services.drain())
        draining.add_done_callback(lambda _: super(_Server, self).handle_exit(sig, None))
        self._shutdown_tasks.append(draining)

    def _end_turns(self) -> None:
        ending = asyncio.ensure_future(self._services.end_turns())
        self._shutdown_tasks.append(ending)


def supervise(worker_count: int, job: Job, listener: socket.socket) -> int:
    """Run workers until a signal stops them, and return the exit code.

    Dead workers are replaced. After five in a row that died within seconds of their start, all are
    stopped, and the exit code is 1.
    """
    workers: dict[SpawnProcess, float] = {}  # with their start times
    early_deaths = 0
    stopping = False

    def start(*, prints_banner: bool = False) -> None:
        arguments = (job, listener, prints_banner)
        process = get_context("spawn").Process(target=_run_worker, args=arguments)
        # Ctrl-C must not interrupt the imports of the process.
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        process.start()
        signal.signal(signal.SIGINT, interrupt)
        workers[process] = time.monotonic()
        if stopping:  # the signal arrived before the process was in the dictionary
            process.terminate()

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        for worker in workers:
            worker.terminate()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    for index in range(worker_count):
        start(prints_banner=index == 0)
    while workers:
        connection.wait([worker.sentinel for worker in workers])
        dead = [worker for worker in workers if not worker.is_alive()]
        for worker in dead:
            lifetime = time.monotonic() - workers.pop(worker)
            if stopping:
                continue
            logger.error("worker died: pid=%s exit_code=%s", worker.pid, worker.exitcode)
            early_deaths = early_deaths + 1 if lifetime < _EARLY_SECONDS else 0
            if early_deaths < _MAX_EARLY_DEATHS:
                start()
            else:
                logger.critical(
                    "stopping, because workers die at their start; see their errors above"
                )
                stop()
    return 0 if early_deaths < _MAX_EARLY_DEATHS else 1


def _run_worker(job: Job, listener: socket.socket, prints_banner: bool) -> None:
    leave_terminal()  # the supervisor ends its workers after a signal of the terminal
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    sys.exit(job(listener, prints_banner))


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
