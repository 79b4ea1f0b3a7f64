"""A server in a process of its own, whose descriptors can be counted, before a stub whose answers wait when told to."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from mochi_stub import StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Gate, Reply, Text
from tests.sessions.processes import DEADLINE
from tests.support.api import Api
from tests.support.process import Command
from tests.support.tools import write_tools
from tests.support.waiting import until

HEALTHY_SECONDS = 3.0
"""How long ``/health`` may take, whatever goes on."""

LONG = [f"{number:07} {'x' * 1000} " for number in range(3000)]
SETTINGS = {
    "MOCHI_LOG_LEVEL": "ERROR",  # nobody reads what it prints, and a full pipe would stop it
    "MOCHI_SUMMARIZATION_ENABLED": "false",  # nothing in the background
    "MOCHI_DYNAMIC_CONTEXT_WINDOW_ENABLED": "false",  # no limit of the answer's length
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
    """The server, the model behind it, and what can be seen of both."""

    def __init__(self, stub: StubServer, command: Command, api: Api) -> None:
        self.stub, self.api = stub, api
        self._process = Path("/proc") / str(command.process.pid)
        self.address = (api.http.base_url.host, api.http.base_url.port or 0)
        session_id = self.session()
        for _ in range(2):
            api.send_message(session_id, "Hello!")  # whatever is opened once is open from here on
        self._rests_with = self.descriptors()

    def session(self, policy: str = "always_confirm") -> str:
        """A new session that may use the tool which never comes back."""
        settings = {"tools": ["hang"], "execution_policy": policy}
        session_id: str = self.api.create_session("mochi", tool_settings=settings)["session_id"]
        return session_id

    def descriptors(self) -> int:
        return len(list((self._process / "fd").iterdir()))

    def memory(self) -> int:
        """Bytes in use."""
        status = (self._process / "status").read_text()
        return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))

    def is_healthy(self) -> bool:
        """Whether the server answers, and quickly."""
        begun = time.monotonic()
        self.api.ok(self.api.http.get("/health"))
        return time.monotonic() - begun < HEALTHY_SECONDS

    def nothing_asked(self) -> None:
        """From now on: the journal is bounded, so what is new in it cannot be counted for ever."""
        httpx.delete(f"{self.stub.url}/stub/requests").raise_for_status()

    def asked(self) -> bool:
        """Whether the model has had a request."""
        return any(exchange.path == "/api/chat" for exchange in self.stub.exchanges())

    def comes_to_rest(self) -> None:
        """Nothing runs any more, here or in Ollama, and what was opened is closed."""
        until(lambda: all(exchange.outcome != "running" for exchange in self.stub.exchanges()), DEADLINE)
        # Pooled connections to Ollama are closed when they have been idle for up to half a minute; one may come or go.
        until(lambda: self.descriptors() <= self._rests_with + 1, 2 * DEADLINE)

    def state(self, session_id: str) -> str | None:
        state: str | None = self.api.ok(self.api.http.get(f"/chat/{session_id}/run"))["state"]
        return state


@contextmanager
def world(directory: Path) -> Iterator[World]:
    """Answers to "wait" never come, "half" waits after its first piece, "long" is three megabytes at once."""
    never = Gate()

    def resolve(prompt: Prompt) -> Reply | None:
        parts: dict[str, list[Any]] = {
            "wait": [never, Text("late")],
            "half": [Text(["half "]), never, Text("late")],
            "long": [Text(LONG)],
        }
        return Reply(found) if (found := parts.get(prompt.user_text)) else None

    write_tools(directory, HANGING)
    with StubServer(speed=0, resolve=resolve) as stub:
        arguments = ["--port", "0", "--ollama-host", stub.url]
        with (
            Command("mochi_server", *arguments, cwd=directory, **SETTINGS) as command,
            command.api() as api,
        ):
            yield World(stub, command, api)
        never.open()
