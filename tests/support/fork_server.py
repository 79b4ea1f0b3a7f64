"""Process that has imported the server and forks for each command, like the fork server of
`multiprocessing`.

A forked command needs a tenth of the CPU time of a new interpreter, because it imports nothing. It
is a separate process with its own arguments, environment, working directory, output, signals and
exit code.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from importlib import import_module
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, TextIO

from mochi_server import protocols

OF_A_SERVER = (
    "aiohttp",
    "anyio._backends._asyncio",
    "docstring_parser",
    "encodings.idna",
    "fastapi.telemetry._runtime",
    "fastapi_offline",
    "httpcore",
    "mochi_server.ollama.library",
    "tests.support.built_routes",
    "uvicorn.lifespan.on",
    "yaml",
)
"""Modules that a server imports while it runs, and its routes."""
PRELOADED = (
    *OF_A_SERVER,
    "frontmatter",
    "mochi_server.cli.init",
    "mochi_server.cli.main",
    "mochi_server.cli.replay",
    "mochi_server.cli.server",
    "mochi_server.mcp.connection",
    "mochi_server.util.schema_worker",
    *(f"mochi_server.protocols.{name}.routes" for name in protocols.NAMES),
    "mochi_stub.cli",
    "mochi_stub.server",
    "multiprocessing.popen_fork",
    "ollama_instructor.ollama_instructor",
    "tests.support.process",
    "uvicorn.loops.auto",
    "uvicorn.loops.uvloop",
)
"""Modules that are imported before the first fork."""
AVAILABLE = sys.platform == "linux"
_MESSAGE_BYTES = 200_000
_READY = b"ready"


class ForkedProcess:
    """A running command, with the methods of ``subprocess.Popen`` that tests use."""

    def __init__(self, server: "ForkServer", pid: int, stdout: TextIO | None = None) -> None:
        self._server = server
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None if the process is running."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float = 60) -> int:
        """Return the exit code.

        Raise ``subprocess.TimeoutExpired`` if the process is still running.
        """
        if self.returncode is None:
            self.returncode = self._server.request(wait=self.pid, seconds=timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """Client side of the forking process.

    The constructor returns when the process has imported everything.
    """

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        self._process = subprocess.Popen(
            command,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._control.recv(len(_READY))
        self._lock = threading.Lock()
        atexit.register(self.close)

    def start(
        self, module: str, arguments: tuple[str, ...], cwd: str, environment: dict[str, str]
    ) -> ForkedProcess:
        """Run ``python -m <module> <arguments>``."""
        read, write = os.pipe()
        try:
            pid = self.request(
                [write], module=module, arguments=arguments, cwd=cwd, environment=environment
            )
        finally:
            os.close(write)
        assert pid is not None
        return ForkedProcess(self, pid, os.fdopen(read, encoding="utf-8"))

    def connect(self, module: str) -> tuple[ForkedProcess, socket.socket]:
        """Run ``python -m <module>`` with a socket as its input and output.

        Return the other end of the socket.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            place = {"cwd": str(Path.cwd()), "environment": dict(os.environ)}
            pid = self.request([theirs.fileno()], module=module, arguments=(), reads=True, **place)
        assert pid is not None
        return ForkedProcess(self, pid), ours

    def request(self, descriptors: list[int] | None = None, **message: Any) -> int | None:
        with self._lock:
            socket.send_fds(self._control, [json.dumps(message).encode()], descriptors or [])
            answer: int | None = json.loads(self._control.recv(_MESSAGE_BYTES))
        return answer

    def close(self) -> None:
        """End the process and the commands that still run."""
        self._control.close()
        self._process.wait()


def _serve(control: socket.socket) -> None:
    """Answer requests until the connection closes, then kill the commands that still run."""
    control.send(_READY)
    commands: dict[int | None, ForkProcess] = {}
    while True:
        data, descriptors, *_ = socket.recv_fds(control, _MESSAGE_BYTES, 1)
        if not data:
            break
        message: dict[str, Any] = json.loads(data)
        if "wait" in message:
            command = commands[message["wait"]]
            command.join(message["seconds"])
            answer = command.exitcode
        else:
            command = ForkProcess(target=_run, args=(control, descriptors[0], message))
            command.start()
            os.close(descriptors[0])
            commands[command.pid] = command
            answer = command.pid
        control.send(json.dumps(answer).encode())
    for command in commands.values():
        command.kill()
        command.join()


def _run(control: socket.socket, output: int, command: dict[str, Any]) -> None:
    control.close()
    for descriptor in (0, 1, 2) if command.get("reads") else (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(command["cwd"])
    os.environ.clear()
    os.environ.update(command["environment"])
    tempfile.tempdir = None  # TMPDIR of the command may differ
    sys.argv = [command["module"], *command["arguments"]]
    sys.path[0] = command["cwd"]
    gc.enable()
    runpy.run_module(command["module"], run_name="__main__", alter_sys=True)


def _share_routes() -> None:
    """Let all commands use the routes that are built already, as `tests.support.server` does for
    servers in threads.
    """
    from mochi_server import testing
    from mochi_server.app import create_app as create
    from mochi_server.cli import main, server

    def create_app(*arguments: Any, **options: Any) -> Any:
        app = create(*arguments, **options)
        testing.share_routes(app)
        return app

    server.create_app = create_app  # type: ignore[attr-defined]
    main._parser()  # compiles patterns


def _main(descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    for module in PRELOADED:
        import_module(module)
    _share_routes()
    assert threading.active_count() == 1, "a fork copies one thread only"
    gc.freeze()
    _serve(socket.socket(fileno=descriptor))


if __name__ == "__main__":
    _main(int(sys.argv[1]))
