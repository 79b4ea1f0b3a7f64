"""Server with countable descriptors, in front of a stub whose answers can be paused.

The first tier runs the server in a thread of this process, the second tier in a separate process.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from mochi_stub import StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Gate, Reply, Text
from tests.sessions.processes import DEADLINE
from tests.support.api import Api
from tests.support.process import Command
from tests.support.server import RunningServer
from tests.support.tools import write_tools
from tests.support.waiting import until

HEALTHY_SECONDS = 3.0
"""Maximum duration of `/health`."""

LONG = [f"{number:07} {'x' * 1000} " for number in range(3000)]
SETTINGS: dict[str, Any] = {
    "log_level": "ERROR",  # the output is not read; a full pipe would block the server
    "summarization_enabled": False,  # no background work
    "dynamic_context_window_enabled": False,  # no limit of the answer's length
}
HANGING = '''
    import asyncio

    async def hang() -> str:
        """Never come back."""
        await asyncio.Event().wait()
        return "never"

    __all__ = ["hang"]
'''


class World:
    """A server, the model behind it, and measurements of both."""

    def __init__(self, stub: StubServer, api: Api, process_id: int) -> None:
        self.stub, self.api = stub, api
        self.in_thread = process_id == os.getpid()
        self._process = Path("/proc") / str(process_id)
        self._stub_port = httpx.URL(stub.url).port or 0
        self.address = (api.http.base_url.host, api.http.base_url.port or 0)
        session_id = self.create_session()
        for _ in range(2):
            api.send_message(session_id, "Hello!")  # opens what stays open
        self.remember_idle()
        self.idle_connections = self.connections_to_stub()

    def create_session(self, policy: str = "always_confirm") -> str:
        """Create a session that has the tool `hang`, which never returns."""
        settings = {"tools": ["hang"], "execution_policy": policy}
        session_id: str = self.api.create_session("mochi", tool_settings=settings)["session_id"]
        return session_id

    def remember_idle(self) -> None:
        """Count the open files and sockets of the idle server.

        A world that begins later has some of its own in the process of the tests.
        """
        self._idle_descriptors = self.descriptors()

    def descriptors(self) -> int:
        """Return the number of open files and sockets, without connections to the stub."""
        sockets = self._sockets_of_stub(local=True, remote=True)
        return sum(target not in sockets for target in self._open_files())

    def connections_to_stub(self) -> int:
        """Return the number of connections to the stub; the server keeps idle ones for up
        to 30 s.
        """
        sockets = self._sockets_of_stub(remote=True)
        return sum(target in sockets for target in self._open_files())

    def memory(self) -> int:
        """Return the resident memory in bytes."""
        status = (self._process / "status").read_text()
        return 1024 * next(
            int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")
        )

    def is_healthy(self) -> bool:
        """Return whether `/health` answers quickly."""
        begun = time.monotonic()
        self.api.ok(self.api.http.get("/health"))
        return time.monotonic() - begun < HEALTHY_SECONDS

    def clear_journal(self) -> None:
        self.stub.clear_exchanges()

    def model_was_called(self) -> bool:
        """Return whether the journal has a chat request."""
        return any(exchange.path == "/api/chat" for exchange in self.stub.exchanges())

    def wait_until_idle(self) -> None:
        """Wait until no request runs at the stub and every descriptor of the test's clients is
        closed.
        """
        until(
            lambda: all(exchange.outcome != "running" for exchange in self.stub.exchanges()),
            DEADLINE,
        )
        until(
            lambda: self.descriptors() <= self._idle_descriptors + 1, DEADLINE
        )  # a database file may be open

    def wait_for_connections_to_stub(self, most: int) -> None:
        """Wait until there are at most so many connections to the stub."""
        until(lambda: self.connections_to_stub() <= most, 2 * DEADLINE)

    def state(self, session_id: str) -> str | None:
        state: str | None = self.api.ok(self.api.http.get(f"/chat/{session_id}/run"))["state"]
        return state

    def wait_until_ended(self, session_id: str, *states: str) -> None:
        """Wait until the session's run has left the state `running`, for one of the states if any
        are given.
        """
        until(
            lambda: (
                (found := self.state(session_id)) != "running" and (not states or found in states)
            ),
            DEADLINE,
        )

    def _open_files(self) -> list[str]:
        found = []
        for descriptor in (self._process / "fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                found.append(str(descriptor.readlink()))
        return found

    def _sockets_of_stub(self, *, local: bool = False, remote: bool = False) -> set[str]:
        """Return the sockets that have the stub's port on the local or on the remote side."""
        port = f":{self._stub_port:04X}"
        rows = [
            line.split() for line in (self._process / "net" / "tcp").read_text().splitlines()[1:]
        ]
        found = [
            row
            for row in rows
            if (local and row[1].endswith(port)) or (remote and row[2].endswith(port))
        ]
        return {f"socket:[{row[9]}]" for row in found}


@contextmanager
def world(directory: Path, *, in_thread: bool) -> Iterator[World]:
    """Run a server in front of a stub.

    The answer to "wait" and the text of a summary never come, the answer to "half" stops after its
    first chunk, and the answer to "long" is three megabytes at once.
    """
    never = Gate()

    def resolve(prompt: Prompt) -> Reply | None:
        parts: dict[str, list[Any]] = {
            "wait": [never, Text("late")],
            "half": [Text(["half "]), never, Text("late")],
            "long": [Text(LONG)],
        }
        return (
            Reply(found)
            if (found := parts.get("wait" if prompt.format else prompt.user_text))
            else None
        )

    write_tools(directory, HANGING)
    with (
        StubServer(speed=0, resolve=resolve) as stub,
        _started(directory, stub.url, in_thread) as (api, process_id),
    ):
        yield World(stub, api, process_id)
        never.open()


@contextmanager
def _started(directory: Path, ollama_host: str, in_thread: bool) -> Iterator[tuple[Api, int]]:
    """Start the server. Yield a client of it and the id of its process."""
    if in_thread:
        with RunningServer(directory, ollama_host, **SETTINGS) as server:
            yield server.api(), os.getpid()
        return
    environment = {f"MOCHI_{name.upper()}": str(value) for name, value in SETTINGS.items()}
    arguments = ["--port", "0", "--ollama-host", ollama_host]
    with (
        Command("mochi_server", *arguments, cwd=directory, **environment) as command,
        command.api() as api,
    ):
        yield api, command.process.pid
