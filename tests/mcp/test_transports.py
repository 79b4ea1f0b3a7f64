"""MCP servers that other projects provide: streamable HTTP, and a reference server over stdio."""

import json
import signal
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mochi_stub import StubServer
from tests.mcp.patient_server import PATIENT, PatientServer
from tests.mcp.test_servers import called, problems
from tests.support.mcp import by_hand, has_socket, is_alive, started, write_mcp
from tests.support.mcp_http import HttpMcp
from tests.support.process import Command
from tests.support.waiting import until


def test_http_server_is_listed_called_and_listed_after_changes(
    stub: StubServer, tmp_path: Path
) -> None:
    with HttpMcp() as remote:
        write_mcp(tmp_path, hand=remote.entry)
        with PatientServer(tmp_path, stub.url) as server:
            api = server.api()
            body = api.ok(api.http.get("/tools"))
            assert body["groups"] == {"hand": ["shout", "much", "refuse", "learn"]}
            assert [tool["destructive"] for tool in body["tools"].values()] == [
                False,
                True,
                True,
                True,
            ]
            assert called(api, "shout", text="loud")["result"] == "LOUD"
            assert len(called(api, "much")["result"]) == 20_000
            assert "Wrong arguments" in called(api, "shout")["error_message"]
            assert called(api, "learn")["result"] == "learnt"
            until(lambda: "whisper" in api.ok(api.http.get("/tools"))["tools"])


@pytest.mark.parametrize("entry", [{}, {"type": "sse"}], ids=["found out", "named"])
def test_server_with_only_sse_is_listed_and_called(
    stub: StubServer, tmp_path: Path, entry: dict[str, str]
) -> None:
    with HttpMcp(over_sse=True) as remote:
        write_mcp(tmp_path, hand={**remote.entry, **entry})
        with PatientServer(tmp_path, stub.url) as server:
            api = server.api()
            assert api.ok(api.http.get("/tools"))["groups"] == {
                "hand": ["shout", "much", "refuse", "learn"]
            }
            assert called(api, "shout", text="loud")["result"] == "LOUD"
            assert called(api, "learn")["result"] == "learnt"
            until(lambda: "whisper" in api.ok(api.http.get("/tools"))["tools"])


@pytest.mark.parametrize("over_sse", [False, True], ids=["http", "sse"])
def test_error_answer_over_http_keeps_the_connection(
    stub: StubServer, tmp_path: Path, over_sse: bool
) -> None:
    with HttpMcp(over_sse=over_sse) as remote:
        write_mcp(tmp_path, hand=remote.entry)
        with PatientServer(tmp_path, stub.url) as server:
            api = server.api()
            for code in (-32000, -32600, -32603):
                outcome = called(api, "refuse", code=code)
                assert outcome["error_message"] == "refuse failed: Not today."
                assert problems(api) == {}, code


@pytest.mark.slow
def test_sse_server_is_reconnected_when_it_returns(stub: StubServer, tmp_path: Path) -> None:
    with HttpMcp(over_sse=True) as remote:
        port = remote.port
        write_mcp(tmp_path, hand=remote.entry)
        server = PatientServer(tmp_path, stub.url)
        server.__enter__()
        assert called(server.api(), "shout", text="one")["result"] == "ONE"
    try:
        until(lambda: "hand" in problems(server.api()))
        with HttpMcp(port, over_sse=True):
            assert called(server.api(), "shout", text="two")["result"] == "TWO"
    finally:
        server.__exit__()


@pytest.mark.parametrize("over_sse", [False, True], ids=["streamable HTTP", "SSE"])
def test_configured_headers_are_sent_with_each_request(
    stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over_sse: bool
) -> None:
    monkeypatch.setenv("DOCS_TOKEN", "a-secret-token")
    headers = {"Authorization": "Bearer ${DOCS_TOKEN}", "X-Team": "${TEAM:-blue}"}
    with HttpMcp(over_sse=over_sse) as remote:
        write_mcp(tmp_path, hand={**remote.entry, "headers": headers})
        with PatientServer(tmp_path, stub.url) as server:
            assert called(server.api(), "shout", text="loud")["result"] == "LOUD"
        assert {sent.get("authorization") for sent in remote.headers} == {"Bearer a-secret-token"}
        assert {sent.get("x-team") for sent in remote.headers} == {"blue"}


def test_too_large_message_over_http_fails_only_its_call(stub: StubServer, tmp_path: Path) -> None:
    limits = replace(PATIENT, message_bytes=500_000)
    with HttpMcp() as remote:
        write_mcp(tmp_path, hand=remote.entry)
        with PatientServer(tmp_path, stub.url, limits=limits) as server:
            api = server.api()
            message = (
                "it sent a message of more than 500,000 bytes, which is the limit. Request a "
                "smaller result."
            )
            assert called(api, "much")["error_message"] == f"much failed: {message}"
            assert problems(api) == {}
            assert called(api, "shout", text="still")["result"] == "STILL"


@pytest.mark.slow
def test_http_server_is_reconnected_when_it_returns(stub: StubServer, tmp_path: Path) -> None:
    with HttpMcp() as remote:
        port = remote.port
        write_mcp(tmp_path, hand=remote.entry)
        server = PatientServer(tmp_path, stub.url)
        server.__enter__()
        api = server.api()
        assert called(api, "shout", text="one")["result"] == "ONE"
    try:
        assert called(api, "shout", text="two")["success"] is False
        until(lambda: "hand" in problems(api))
        assert "cannot be reached" in called(api, "shout", text="three")["error_message"]
        with HttpMcp(port):
            assert called(api, "shout", text="four")["result"] == "FOUR"
            assert problems(api) == {}
    finally:
        server.__exit__()


def test_http_server_that_starts_later_is_connected(
    stub: StubServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = replace(PATIENT, retry_seconds=0.02, max_retry_seconds=0.1)
    attempts = 0

    class Refusing(FailingMcp):
        """MCP server that answers every request with an error, and counts the attempts to
        connect.
        """

        def do_POST(self) -> None:
            nonlocal attempts
            attempts += 1
            self.send_error(503)

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as starting:
        threading.Thread(target=starting.serve_forever, args=(0.02,), daemon=True).start()
        port = starting.server_port
        write_mcp(tmp_path, hand={"url": f"http://127.0.0.1:{port}/mcp"})
        server = PatientServer(tmp_path, stub.url, limits=limits)
        server.__enter__()
        until(lambda: attempts >= 5)
        assert "HTTP status 503" in problems(server.api())["hand"]
        starting.shutdown()
    try:
        with HttpMcp(port):
            until(lambda: problems(server.api()) == {})
            assert called(server.api(), "shout", text="late")["result"] == "LATE"
    finally:
        server.__exit__()
    assert caplog.text.count("it responded with HTTP status 503") == 1


class FailingMcp(BaseHTTPRequestHandler):
    """MCP server without the protocol version of this client, whose list of tools fails."""

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "", "version": ""},
        }
        answer = (
            {"result": result}
            if message["method"] == "initialize"
            else {"error": {"code": -32603, "message": "No."}}
        )
        self.send_response(200 if message["method"] in ("initialize", "tools/list") else 400)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"jsonrpc": "2.0", "id": message.get("id"), **answer}).encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class RefusingSse(FailingMcp):
    """MCP server over SSE that ends its stream at once, or refuses the first message."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        if self.path == "/refusing":
            self.wfile.write(b"event: endpoint\ndata: /messages\n\n")
            self.wfile.flush()
            self.rfile.read(1)  # until the client has closed the connection

    def do_POST(self) -> None:
        self.send_error(500)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("ending", "the server ended the connection without a response"),
        ("refusing", "it responded with HTTP status 500"),
    ],
)
def test_failure_of_a_server_over_sse_is_reported(
    stub: StubServer, tmp_path: Path, path: str, problem: str
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), RefusingSse) as remote:
        threading.Thread(target=remote.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{remote.server_port}/{path}"
        write_mcp(tmp_path, hand={"url": url, "type": "sse"})
        with PatientServer(tmp_path, stub.url) as server:
            until(lambda: problem in problems(server.api()).get("hand", ""))
        remote.shutdown()


def test_error_message_is_reported_despite_an_earlier_error_status(
    stub: StubServer, tmp_path: Path
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), FailingMcp) as remote:
        threading.Thread(target=remote.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{remote.server_port}/mcp"
        write_mcp(tmp_path, hand={"url": url})
        with PatientServer(tmp_path, stub.url) as server:
            assert problems(server.api()) == {
                "hand": f"MCP server {url}: the connection failed: No."
            }
        remote.shutdown()


@pytest.mark.slow
def test_reference_server_is_listed_and_called(stub: StubServer, tmp_path: Path) -> None:
    command = str(Path(sys.executable).with_name("mcp-server-time"))
    write_mcp(tmp_path, hand={"command": command, "args": ["--local-timezone", "UTC"]})
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        until(lambda: problems(api) == {})
        tools = api.ok(api.http.get("/tools"))["tools"]
        assert {name: tool["destructive"] for name, tool in tools.items()} == {
            "get_current_time": False,
            "convert_time": False,
        }
        assert '"timezone": "UTC"' in called(api, "get_current_time", timezone="UTC")["result"]


@pytest.mark.slow
def test_mcp_servers_end_when_the_process_is_killed(tmp_path: Path) -> None:
    """This includes a server that ignores the end of its input, and child processes.

    None of them blocks the port.
    """
    write_mcp(tmp_path, hand=by_hand(tmp_path, "stubborn"))
    arguments = ["--port", "0", "--ollama-host", "http://127.0.0.1:9"]
    with Command("mochi_server", *arguments, cwd=tmp_path) as command:
        said = command.read_until("  MCP  ")
        api = command.api()
        until(lambda: "echo" in api.ok(api.http.get("/tools"))["tools"])
        pids = started(tmp_path)
        assert all(map(is_alive, pids))
        assert api.http.base_url.port is not None
        assert [has_socket(pid, api.http.base_url.port) for pid in pids] == [False, False]
        command.end(signal.SIGKILL)
    until(lambda: not any(map(is_alive, pids)))
    assert len(pids) == 2
    assert said == "  MCP      1 server in tools/mcp.json; GET /tools lists their problems\n"
