"""Remote MCP servers and authorization servers whose OAuth metadata is hostile."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mochi_server.mcp.addresses import check_named_url
from mochi_server.mcp.session import UnsafeAddress
from mochi_stub import StubServer
from tests.mcp.patient_server import PatientServer
from tests.support.cases import cases
from tests.support.mcp import write_mcp

SECRET = "a-secret-that-only-the-client-knows"
PRM = "/.well-known/oauth-protected-resource/mcp"
ASM = "/.well-known/oauth-authorization-server"
Answer = dict[str, Any] | bytes | str | None
"""A JSON body, a body, the target of a redirect, or None for an endless body."""


class Hostile(ThreadingHTTPServer):
    """Server that answers as its `answers` say, by path, and records the paths of its requests.

    The path `/mcp` answers with 401.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.answers: dict[str, Answer] = {}
        self.requested: list[str] = []
        self.bodies: list[str] = []

    def resource(self, issuer: str) -> dict[str, Any]:
        return {"resource": f"{self.url}/mcp", "authorization_servers": [issuer]}

    def metadata(self, **changes: str) -> dict[str, Any]:
        endpoints = ("authorization", "token", "registration")
        named = {f"{name}_endpoint": f"{self.url}/{name}" for name in endpoints}
        return {"issuer": self.url, **named, **changes}


class _Handler(BaseHTTPRequestHandler):
    server: Hostile

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.requested.append(path)
        length = int(self.headers.get("Content-Length", "0"))
        self.server.bodies.append(self.rfile.read(length).decode())
        if path in ("/mcp", "http://8.8.8.8/mcp"):
            self._send(401, b"{}")
            return
        match self.server.answers.get(path, ""):
            case None:
                self._send_endlessly()
            case bytes(body):
                self._send(200, body)
            case "":
                self._send(404, b"{}")
            case str(target):
                self.send_response(307)
                self.send_header("Location", target)
                self.send_header("Content-Length", "0")
                self.end_headers()
            case answer:
                self._send(200, json.dumps(answer).encode())

    do_POST = do_GET

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_endlessly(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(b" " * 100_000)
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def running(server: Hostile) -> Iterator[Hostile]:
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    """The hostile MCP server."""
    with Hostile() as server, running(server):
        yield server


@pytest.fixture
def other() -> Iterator[Hostile]:
    """Another server, which answers like a valid authorization server."""
    with Hostile() as server, running(server):
        server.answers = {ASM: server.metadata(), "/registration": {"client_id": "x"}}
        yield server


def refusal(stub: StubServer, tmp_path: Path, entry: dict[str, Any]) -> str:
    """Begin an authorization at the server, and return the error."""
    write_mcp(tmp_path, hand=entry)
    with PatientServer(tmp_path, stub.url) as server:
        response = server.api().http.post("/mcp/servers/hand/authorize")
        assert response.status_code == 502, response.text
        error = response.json()["error"]
        assert error["code"] == "MCP_AUTHORIZATION_FAILED"
        return str(error["message"])


def test_metadata_of_another_issuer_is_refused(
    stub: StubServer, tmp_path: Path, hostile: Hostile, other: Hostile
) -> None:
    hostile.answers = {
        PRM: hostile.resource(hostile.url),
        ASM: hostile.metadata(issuer=other.url),
    }
    error = refusal(stub, tmp_path, {"url": f"{hostile.url}/mcp"})
    assert "issuer mismatch" in error
    assert "/registration" not in hostile.requested


def test_metadata_of_another_resource_is_refused(
    stub: StubServer, tmp_path: Path, hostile: Hostile, other: Hostile
) -> None:
    hostile.answers = {PRM: {**hostile.resource(other.url), "resource": "https://bank.example/mcp"}}
    error = refusal(stub, tmp_path, {"url": f"{hostile.url}/mcp"})
    assert "does not match" in error
    assert other.requested == []


@pytest.mark.parametrize("path", [PRM, ASM, "/registration"])
def test_redirect_to_another_host_is_not_followed(
    stub: StubServer, tmp_path: Path, hostile: Hostile, other: Hostile, path: str
) -> None:
    hostile.answers = {
        PRM: hostile.resource(hostile.url),
        ASM: hostile.metadata(),
        "/registration": {"client_id": "x"},
        path: f"{other.url}/stolen",
    }
    write_mcp(tmp_path, hand={"url": f"{hostile.url}/mcp"})
    with PatientServer(tmp_path, stub.url) as server:
        server.api().http.post("/mcp/servers/hand/authorize")
    assert path in hostile.requested
    assert other.requested == []


@pytest.mark.parametrize("path", [PRM, ASM, "/registration"])
def test_endless_response_is_refused(
    stub: StubServer, tmp_path: Path, hostile: Hostile, path: str
) -> None:
    hostile.answers = {
        PRM: hostile.resource(hostile.url),
        ASM: hostile.metadata(),
        "/registration": {"client_id": "x"},
        path: None,
    }
    error = refusal(stub, tmp_path, {"url": f"{hostile.url}/mcp"})
    assert "it sent a message of more than 262,144 bytes" in error


@pytest.mark.parametrize(
    "answer",
    [b"", b"[1, 2]", b'{"client_id": null}', b'{"client_secret": "' + SECRET.encode() + b'"}'],
)
def test_invalid_registration_is_refused_without_its_values(
    stub: StubServer,
    tmp_path: Path,
    hostile: Hostile,
    answer: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hostile.answers = {
        PRM: hostile.resource(hostile.url),
        ASM: hostile.metadata(),
        "/registration": answer,
    }
    error = refusal(stub, tmp_path, {"url": f"{hostile.url}/mcp"})
    assert "does not register this client" in error
    assert SECRET not in error + caplog.text


@pytest.mark.parametrize("grant", ["client_credentials", "authorization_code"])
def test_client_secret_is_sent_only_to_its_issuer(
    stub: StubServer, tmp_path: Path, hostile: Hostile, other: Hostile, grant: str
) -> None:
    hostile.answers = {PRM: hostile.resource(other.url)}
    oauth = {
        "grant": grant,
        "client_id": "x",
        "client_secret": SECRET,
        "issuer": "https://login.example",
    }
    write_mcp(tmp_path, hand={"url": f"{hostile.url}/mcp", "oauth": oauth})
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        listed = api.ok(api.http.get("/mcp/servers"))["servers"][0]
        api.http.post("/mcp/servers/hand/authorize")
    assert listed["state"] != "connected"
    assert not any(SECRET in body for body in [*hostile.bodies, *other.bodies])


def test_public_server_that_names_a_private_address_gets_no_request_there(
    stub: StubServer,
    tmp_path: Path,
    hostile: Hostile,
    other: Hostile,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hostile server is the proxy of this server, so that it can have a public address."""
    monkeypatch.setenv("HTTP_PROXY", hostile.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    hostile.answers = {
        f"http://8.8.8.8{PRM}": {
            "resource": "http://8.8.8.8/mcp",
            "authorization_servers": [other.url],
        }
    }
    error = refusal(stub, tmp_path, {"url": "http://8.8.8.8/mcp"})
    assert "http://8.8.8.8/mcp" in hostile.requested
    assert "names the private address" in error
    assert other.requested == []


@cases(
    ("server", "named"),
    [
        ("https://8.8.8.8/mcp", "https://127.0.0.1/token"),
        ("https://8.8.8.8/mcp", "https://localhost/token"),
        ("https://8.8.8.8/mcp", "https://10.0.0.1/token"),
        ("https://8.8.8.8/mcp", "https://[::1]/token"),
        ("https://8.8.8.8/mcp", "https://[::ffff:10.0.0.1]/token"),
        ("https://8.8.8.8/mcp", "https://[2002:0a00:0001::]/token"),
        ("https://8.8.8.8/mcp", "https://2130706433/token"),
        ("https://8.8.8.8/mcp", "https://0.0.0.0/token"),
        ("https://8.8.8.8/mcp", "http://9.9.9.9/token"),
        ("http://8.8.8.8/mcp", "http://9.9.9.9/token"),
        ("http://8.8.8.8/mcp", "http://unknown.invalid/token"),
        ("http://10.0.0.1/mcp", "http://169.254.169.254/latest"),
        ("http://unknown.invalid/mcp", "http://10.0.0.1/token"),
    ],
)
async def test_unsafe_address_is_refused(server: str, named: str) -> None:
    with pytest.raises(UnsafeAddress, match="it names"):
        await check_named_url(server, named)


@cases(
    ("server", "named"),
    [
        ("https://8.8.8.8/mcp", "https://8.8.8.8/token"),
        ("https://8.8.8.8/mcp", "https://9.9.9.9/token"),
        ("http://10.0.0.1/mcp", "http://10.0.0.2/token"),
        ("http://127.0.0.1/mcp", "http://localhost:8080/token"),
        ("https://10.0.0.1/mcp", "https://8.8.8.8/token"),
    ],
)
async def test_other_addresses_are_accepted(server: str, named: str) -> None:
    await check_named_url(server, named)
