"""Generator of `docs/mistakes.md`: common mistakes, made for real, and the message of each.

`uv run python -m tests.docs_tooling.mistakes` writes the page. `tests/unit/test_mistakes.py`
compares each row.
"""

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mochi_stub import StubServer
from mochi_stub.models import Model
from tests.docs_tooling.pages import ROOT
from tests.support.agents import write_agent
from tests.support.api import Api
from tests.support.instructions import calls, instruct
from tests.support.keys import headers, write_keys
from tests.support.process import Command, run
from tests.support.server import RunningServer
from tests.support.tools import write_tools

PATH = ROOT / "docs" / "mistakes.md"
MODELS = (
    Model("qwen3:8b", capabilities=("completion", "tools", "thinking")),
    Model("llama3.1:8b", capabilities=("completion", "tools")),
    Model("nomic-embed-text", capabilities=("embedding",)),
)
TOOLS = {
    "__init__": """
        from .alarm import set_alarm
        from .notes import add_note, edit_note
        from .weather import get_weather
        __all__ = ["add_note", "get_weather", "set_alarm"]
    """,
    "weather": 'def get_weather(city: str) -> str:\n    """Get the weather."""\n    return "Sunny"\n',
    "notes": 'def add_note(text) -> str:\n    """Add a note."""\n    return "Added"\n',
    "alarm": 'import clock\n\ndef set_alarm(time: str) -> str:\n    """Set an alarm."""\n    return '
    "clock.set(time)\n",
    "dice": 'def roll(sides: int) -> int:\n    """Roll a die."""\n    return sides\n',
}
PAGE = """\
# Common mistakes

This page lists common mistakes and the message that each one causes. Search the page for the message that you see. Most
messages also say what to do. The tests make each of these mistakes and compare the message with this page.

{tables}
Browsers do not show a page the last two messages. The script gets `TypeError: Failed to fetch`, `NetworkError when
attempting to fetch resource` or `Load failed`, and the browser's console has one of these texts:

- **Chrome and Edge:** Access to fetch at 'http://localhost:8000/api/v1/sessions' from origin 'null' has been blocked by
  CORS policy: Response to preflight request doesn't pass access control check: No 'Access-Control-Allow-Origin' header
  is present on the requested resource.
- **Firefox:** Cross-Origin Request Blocked: The Same Origin Policy disallows reading the remote resource at
  http://localhost:8000/api/v1/sessions. (Reason: CORS header 'Access-Control-Allow-Origin' missing).
- **Safari:** Origin null is not allowed by Access-Control-Allow-Origin.

The log of the server has a WARNING for each refused origin.
"""


@dataclass(frozen=True)
class Result:
    """Result of a mistake: the place of the message, such as a status and an error code, and the
    message.
    """

    place: str
    message: str


@dataclass
class World:
    """Servers and directories in which mistakes are made."""

    directory: Path
    stub: StubServer
    server: RunningServer
    with_key: RunningServer
    stack: ExitStack

    @property
    def api(self) -> Api:
        return self.server.client

    @cached_property
    def banner(self) -> str:
        """The startup text of a command with wrong variables."""
        variables = {
            "MOCHI_DATADIR": "data",
            "MOCHI_ENV": "production",
            "MOCHI_OLLAMA_HOST": self.stub.url,
        }
        with Command("mochi_server", "--port", "0", cwd=self.directory, **variables) as command:
            command.read_until("curl -N")
            return "".join(command.output)

    def session(self, **fields: Any) -> str:
        return str(self.api.create_session("qwen3:8b", **fields)["session_id"])

    def general(self, text: str) -> str:
        """Return a message with the addresses and session IDs of the documentation."""
        text = text.replace(self.stub.url, "http://localhost:11434").replace(
            "127.0.0.1:9", "localhost:11434"
        )
        return re.sub(r"(?<=[/'])[0-9a-f]{10}(?=[/'])", "a1b2c3d4e5", text)


@dataclass(frozen=True)
class Mistake:
    """A mistake, as Markdown, and the function that makes it."""

    text: str
    make: Callable[[World], Result]

    def row(self, world: World) -> str:
        result = self.make(world)
        return f"| {self.text} | {result.place} | {_markdown(world.general(result.message))} |"


def _markdown(message: str) -> str:
    """Return a message as the text of a table cell. Code spans are kept."""
    parts = re.split(r"(`[^`]*`)", message.replace("|", "\\|"))
    return "".join(
        part if part.startswith("`") else re.sub(r"([_*<\[])", r"\\\1", part) for part in parts
    )


def _command(*arguments: str, **environment: str) -> Callable[[World], Result]:
    def make(world: World) -> Result:
        code, text = run("mochi_server", *arguments, cwd=world.directory, **environment)
        return Result(f"exit code {code}", text.removeprefix("mochi-server: ").strip())

    return make


def _taken_port(world: World) -> Result:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = _command("--port", port)(world)
    return Result(result.place, result.message.replace(port, "8000"))


def _banner(variable: str) -> Callable[[World], Result]:
    def make(world: World) -> Result:
        line = next(line for line in world.banner.splitlines() if f"Problem  {variable}" in line)
        return Result("startup text", line.partition("Problem  ")[2])

    return make


def _request(method: str, path: str, **request: Any) -> Callable[[World], Result]:
    def make(world: World) -> Result:
        return _error(world.api, method, path.replace("{session_id}", world.session()), **request)

    return make


def _error(api: Api, method: str, path: str, **request: Any) -> Result:
    response = api.http.request(method, path, **request)
    error = response.json()["error"]
    return Result(f"{response.status_code} `{error['code']}`", error["message"])


def _session_warning(**fields: Any) -> Callable[[World], Result]:
    def make(world: World) -> Result:
        (warning,) = world.api.create_session("qwen3:8b", **fields)["warnings"]
        return Result(f"warning `{warning['code']}`", warning["message"])

    return make


def _turn_warning(model: str, **fields: Any) -> Callable[[World], Result]:
    def make(world: World) -> Result:
        session_id = world.api.create_session(model)["session_id"]
        (warning,) = world.api.send_message(session_id, "Hello!", **fields)["warnings"]
        return Result(f"warning `{warning['code']}`", warning["message"])

    return make


def _tool_problem(name: str) -> Callable[[World], Result]:
    def make(world: World) -> Result:
        problems = world.api.ok(world.api.http.get("/tools"))["problems"]
        (message,) = [problem["message"] for problem in problems if problem["name"] == name]
        return Result("`problems` of `GET /api/v1/tools`, startup text", f"{name}: {message}")

    return make


def _unreachable_ollama(world: World) -> Result:
    with RunningServer(world.directory / "unreachable", "http://127.0.0.1:9") as server:
        return _error(server.client, "POST", "/sessions", json={"model": "qwen3:8b"})


def _unreachable_hosts(world: World) -> Result:
    hosts = ("http://127.0.0.1:9",)
    with RunningServer(
        world.directory / "unreachable", world.stub.url, ollama_hosts=hosts
    ) as server:
        return _error(server.client, "POST", "/sessions", json={"model": "qwen3:8b"})


def _busy(world: World) -> Result:
    session_id = world.session(tool_settings={"tools": ["get_weather"]})
    with world.api.open_stream(session_id, instruct(calls("get_weather", city="Oslo"))) as events:
        next(event for event in events if event.type == "tool_call_confirmation_required")
        return _error(
            world.server.api(), "POST", f"/chat/{session_id}", json={"message": "And now?"}
        )


def _unapproved(world: World) -> Result:
    session_id = world.session(tool_settings={"tools": ["get_weather"]})
    (call,) = world.api.send_message(session_id, instruct(calls("get_weather", city="Oslo")))[
        "tool_calls_executed"
    ]
    return Result(f"`tool_calls_executed`: `{call['error_code']}`", call["error_message"])


def _future_file(world: World) -> Result:
    session_id = world.session()
    file = Path(world.server.settings.data_dir) / "chat_sessions" / f"{session_id}.json"
    file.write_text(file.read_text().replace('"format_version": "1.4"', '"format_version": "2.0"'))
    result = _error(world.api, "GET", f"/sessions/{session_id}")
    file.unlink()
    return result


def _misplaced(world: World) -> Result:
    return _error(
        world.server.api(base_url=world.server.url), "POST", "/sessions", json={"model": "qwen3:8b"}
    )


def _key(**headers: str) -> Callable[[World], Result]:
    return lambda world: _error(world.with_key.client, "GET", "/sessions", headers=headers)


@contextmanager
def _server_with_key_of(world: World, **fields: Any) -> Iterator[Api]:
    """A server with a keys file, and a client with its key `ann`, which has these fields."""
    with TemporaryDirectory(dir=world.directory) as folder:
        keys = write_keys(Path(folder) / "keys.yaml", ann=fields)
        with RunningServer(Path(folder), world.stub.url, api_keys_file=str(keys)) as server:
            yield server.api(headers=headers("ann"))


def _key_not_in_file(world: World) -> Result:
    with _server_with_key_of(world) as api:
        return _error(api, "GET", "/sessions", headers={"Authorization": "Bearer wrong"})


def _expired_key(world: World) -> Result:
    with _server_with_key_of(world, expires="2020-01-01") as api:
        return _error(api, "GET", "/sessions")


def _key_above_its_limit(world: World) -> Result:
    with _server_with_key_of(world, turns_per_minute=1) as api:
        session_id = api.create_session("qwen3:8b")["session_id"]
        api.send_message(session_id, "Hello!")
        result = _error(api, "POST", f"/chat/{session_id}", json={"message": "Hello!"})
    return Result(result.place, re.sub(r"in \d+ s", "in 60 s", result.message))


START, SESSIONS, CHAT, TOOL, ACCESS = (
    "Start the server",
    "Create a session",
    "Send a message",
    "Tools",
    "Access",
)
MISTAKES: dict[str, list[Mistake]] = {
    START: [
        Mistake("Another program uses the port", _taken_port),
        Mistake("`mochi-server serve`", _command("serve")),
        Mistake("`mochi-server --prot 8001`", _command("--prot", "8001")),
        Mistake("`mochi-server --port many`", _command("--port", "many")),
        Mistake("`MOCHI_DATADIR=data mochi-server`", _banner("MOCHI_DATADIR")),
        Mistake("`MOCHI_ENV=production mochi-server`", _banner("MOCHI_ENV")),
        Mistake(
            "`mochi-server store copy data postgres`", _command("store", "copy", "data", "postgres")
        ),
        Mistake("`mochi-server keys list` without `MOCHI_API_KEYS_FILE`", _command("keys", "list")),
        Mistake(
            "`MOCHI_API_KEYS_FILE=keys.yaml mochi-server` before the first `keys add`",
            _command(MOCHI_API_KEYS_FILE="keys.yaml"),
        ),
    ],
    SESSIONS: [
        Mistake("Ollama is not running", _unreachable_ollama),
        Mistake("The only host in `MOCHI_OLLAMA_HOSTS` is down", _unreachable_hosts),
        Mistake(
            '`{"model": "qwen3:8b", "tools": ["get_weather"]}`',
            _request("POST", "/sessions", json={"model": "qwen3:8b", "tools": ["get_weather"]}),
        ),
        Mistake(
            '`{"model": "qwen3"}`, if Ollama has `qwen3:8b`',
            _request("POST", "/sessions", json={"model": "qwen3"}),
        ),
        Mistake(
            '`{"model": "nomic-embed-text"}`',
            _request("POST", "/sessions", json={"model": "nomic-embed-text"}),
        ),
        Mistake(
            '`"tool_settings": {"tools": ["get_wether"]}`',
            _session_warning(tool_settings={"tools": ["get_wether"]}),
        ),
        Mistake(
            '`"agent_settings": {"enabled_agents": ["codr"]}`',
            _session_warning(agent_settings={"enabled_agents": ["codr"]}),
        ),
        Mistake(
            '`"options": {"num_ctx": 16384}`',
            _request(
                "POST", "/sessions", json={"model": "qwen3:8b", "options": {"num_ctx": 16384}}
            ),
        ),
        Mistake("A later version of mochi-server wrote the session file", _future_file),
    ],
    CHAT: [
        Mistake(
            '`{"content": "Hello!"}`',
            _request("POST", "/chat/{session_id}", json={"content": "Hello!"}),
        ),
        Mistake(
            '`{"message": "Hello!", "stream": true}`',
            _request("POST", "/chat/{session_id}", json={"message": "Hello!", "stream": True}),
        ),
        Mistake(
            '`{"message": "Hello!", "tools": ["get_weather"]}`',
            _request("POST", "/chat/{session_id}", json={"message": "Hi!", "tools": []}),
        ),
        Mistake(
            "`{'message': 'Hello!'}`, with single quotes",
            _request(
                "POST",
                "/chat/{session_id}",
                content=b"{'message': 'Hello!'}",
                headers={"Content-Type": "application/json"},
            ),
        ),
        Mistake(
            '`{"message": "Describe it.", "images": ["cat.png"]}`',
            _request(
                "POST", "/chat/{session_id}", json={"message": "Hello!", "images": ["cat.png"]}
            ),
        ),
        Mistake(
            "The session ID in the path is empty",
            _request("POST", "/chat//stream", json={"message": "Hello!"}),
        ),
        Mistake(
            '`{"message": "Hello!", "temperature": 0}`',
            _request("POST", "/chat/{session_id}", json={"message": "Hello!", "temperature": 0}),
        ),
        Mistake(
            "`curl` without `-H 'Content-Type: application/json'`",
            _request(
                "POST",
                "/chat/{session_id}",
                content=b'{"message": "Hello!"}',
                headers={"Content-Type": "application/x-www-form-urlencoded"},
            ),
        ),
        Mistake(
            "An empty body in a session without messages",
            _request("POST", "/chat/{session_id}", json={}),
        ),
        Mistake(
            "An unknown session ID",
            _request("POST", "/chat/0000000000", json={"message": "Hello!"}),
        ),
        Mistake("A second message before the answer has ended", _busy),
        Mistake(
            '`"think": true` with a model that cannot think',
            _turn_warning("llama3.1:8b", think=True),
        ),
    ],
    TOOL: [
        Mistake("`alarm.py` imports a module that does not exist", _tool_problem("alarm.py")),
        Mistake(
            "`__init__.py` imports `edit_note` from `notes.py`, which does not have it",
            _tool_problem("__init__.py"),
        ),
        Mistake("`def add_note(text) -> str` in a tool file", _tool_problem("add_note")),
        Mistake(
            "`dice.py` has a function that `__init__.py` does not export", _tool_problem("dice.py")
        ),
        Mistake(
            "A request without streaming, and the model calls a tool that needs approval",
            _unapproved,
        ),
    ],
    ACCESS: [
        Mistake("`POST /sessions` without `/api/v1`", _misplaced),
        Mistake("`POST` to the address of a session", _request("POST", "/sessions/a1b2c3d4e5")),
        Mistake("No API key", _key()),
        Mistake("A wrong API key", _key(Authorization="Bearer wrong")),
        Mistake("A wrong API key, and the server has a keys file", _key_not_in_file),
        Mistake("The API key of `ann` has expired", _expired_key),
        Mistake(
            "A second message in a minute, with a key with `turns_per_minute: 1`",
            _key_above_its_limit,
        ),
        Mistake(
            "A proxy that forwards the host name `chat.example`",
            _request("GET", "/sessions", headers={"Host": "chat.example"}),
        ),
        Mistake(
            "A proxy with TLS that forwards the host name `chat.example`",
            _request(
                "GET",
                "/sessions",
                headers={"Host": "chat.example", "X-Forwarded-Proto": "https"},
            ),
        ),
        Mistake(
            "A page of `https://app.example` calls the server",
            _request("GET", "/sessions", headers={"Origin": "https://app.example"}),
        ),
        Mistake(
            "A page that was opened from a file calls the server",
            _request("GET", "/sessions", headers={"Origin": "null"}),
        ),
    ],
}


@contextmanager
def world() -> Iterator[World]:
    """Start the servers."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        directory = Path(folder)
        data = {name: directory / name for name in ("data", "with_key")}
        for path in data.values():
            path.mkdir()
        write_tools(
            data["data"],
            TOOLS["__init__"],
            **{name: TOOLS[name] for name in TOOLS if name != "__init__"},
        )
        write_agent(data["data"], "coder")
        stub = stack.enter_context(StubServer(models=MODELS, speed=0))
        quiet: dict[str, Any] = {"summarization_enabled": False}
        server = stack.enter_context(RunningServer(data["data"], stub.url, **quiet))
        with_key = stack.enter_context(
            RunningServer(data["with_key"], stub.url, api_keys=("right",), **quiet)
        )
        yield World(directory, stub, server, with_key, stack)


def page(world: World) -> str:
    """Make all mistakes and return the page."""
    tables = []
    for heading, mistakes in MISTAKES.items():
        rows = [mistake.row(world) for mistake in mistakes]
        tables.append(
            "\n".join(
                [f"## {heading}", "", "| Mistake | Where | Message |", "|---|---|---|", *rows, ""]
            )
        )
    return PAGE.format(tables="\n".join(tables))


if __name__ == "__main__":
    with world() as everything:
        PATH.write_text(page(everything))
