"""Clients generated from the OpenAPI document: they compile, and each streams an answer and stops
it at its first text.

The generators for TypeScript need Node: `npm ci` in `ts`.
"""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from mochi_stub import StubServer
from tests.support.instructions import instruct, words
from tests.support.server import RunningServer

HERE = Path(__file__).parent / "ts"
ENDLESS = instruct(words(100_000))
"""A message whose answer takes so long that a client must read the stream before its end."""

pytestmark = pytest.mark.slow
needs_node = pytest.mark.skipif(
    not (HERE / "node_modules/orval").exists(), reason="`npm ci` has not been run"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with (
        StubServer(speed=10) as stub,
        RunningServer(
            tmp_path_factory.mktemp("data"), stub.url, summarization_enabled=False
        ) as server,
    ):
        yield server


@pytest.fixture(scope="module")
def document(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("document") / "openapi.json"
    file.write_bytes(
        server.client.http.get(server.client.http.base_url.join("/openapi.json")).content
    )
    return file


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def typescript(document: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the compiled programs.

    The compiler checks them and the clients that they use.
    """
    folder = tmp_path_factory.mktemp("typescript")
    run("node", HERE / "clients/generate.mjs", document, folder, cwd=HERE)
    run("node", HERE / "node_modules/typescript/bin/tsc", "-p", folder, cwd=folder)
    return folder


@needs_node
@pytest.mark.parametrize("client", ["openapi-fetch", "hey-api", "orval"])
def test_typescript_client_streams_and_stops(
    server: RunningServer, typescript: Path, client: str
) -> None:
    printed = run("node", typescript / f"js/{client}.js", server.url, ENDLESS, cwd=typescript)
    names: list[str] = json.loads(printed)
    assert names.count("content_delta") < 10_000
    assert names[-1] == "done"


@pytest.fixture(scope="module")
def python(
    server: RunningServer, document: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator["PythonClient"]:
    """The client that openapi-python-client generated."""
    pytest.importorskip("openapi_python_client", reason="it needs Python 3.11")
    folder = tmp_path_factory.mktemp("python")
    config = folder / "config.yaml"
    config.write_text("post_hooks: []\n")
    options = [
        "--path",
        document,
        "--meta",
        "none",
        "--output-path",
        folder / "generated_client",
        "--config",
        config,
    ]
    run(sys.executable, "-m", "openapi_python_client", "generate", *options, cwd=folder)
    sys.path.insert(0, str(folder))
    generated = PythonClient("generated_client", server.url)
    with generated.client:
        yield generated
    sys.path.remove(str(folder))


class PythonClient:
    """The modules of the client that openapi-python-client generated."""

    def __init__(self, package: str, url: str) -> None:
        self._package = package
        self.client = self._module("client").Client(base_url=url)
        self.models = self._module("models")

    def operation(self, name: str) -> Any:
        return self._module(f"api.{name}")

    def _module(self, name: str) -> Any:
        return importlib.import_module(f"{self._package}.{name}")

    def session_id(self) -> str:
        body = self.models.SessionCreate(model="mochi")
        return str(
            self.operation("sessions.create_session").sync(client=self.client, body=body).session_id
        )


def test_python_client_returns_a_stream_as_text(python: PythonClient) -> None:
    body = python.models.ChatRequest(message=instruct(words(2)))
    stream = python.operation("chat.stream_chat")
    text = stream.sync(python.session_id(), client=python.client, body=body)
    events = [
        dict(line.split(": ", 1) for line in frame.split("\n"))
        for frame in text.strip().split("\n\n")
    ]
    assert [events[0]["event"], events[-1]["event"]] == ["content_delta", "done"]
    delta = python.models.ContentDelta.from_dict(orjson.loads(events[0]["data"]))
    assert delta.content
    assert delta.role == "assistant"


def test_python_client_streams_and_stops(python: PythonClient) -> None:
    """The generated client has no streaming call, but its requests can be sent with httpx."""
    session_id, names = python.session_id(), []
    body = python.models.ChatRequest(message=ENDLESS)
    request = python.operation("chat.stream_chat")._get_kwargs(session_id, body=body)
    with python.client.get_httpx_client().stream(**request) as response:
        for line in response.iter_lines():
            if not line.startswith("event: "):
                continue
            names.append(line.removeprefix("event: "))
            if names.count("content_delta") == 1 and names[-1] == "content_delta":
                python.operation("chat.stop_chat").sync(session_id, client=python.client)
    assert names.count("content_delta") < 10_000
    assert names[-1] == "done"
