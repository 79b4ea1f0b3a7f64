"""MCP servers that send malformed, huge and endless answers."""

import gzip
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from tests.mcp.test_servers import called, problems
from tests.support import hostile_mcp
from tests.support.api import Api
from tests.support.mcp import by_hand, write_mcp
from tests.support.process import Command
from tests.support.server import RunningServer
from tests.support.waiting import until

FAULTS = {
    "surrogate": "its response is not valid MCP: it contains text that is not valid Unicode",
    "bytes": "its response is not valid MCP: it contains text that is not valid Unicode",
    "null": "its response is not valid MCP: result: Input should be a valid dictionary",
    "number": "its response is not valid MCP: result: Input should be a valid dictionary",
    "deep": "its response is not valid MCP: it is nested deeper than 200 levels",
    "digits": "its response is not valid MCP: it is not valid JSON",
    "cut": "its response is not valid MCP: it is not valid JSON",
    "values": "its response is not valid MCP: it has more than 50,000 values",
    "blocks": "its response is not valid MCP: content: Input should be a valid list",
}


def hostile(data_dir: Path, *tools: str, seed: int = 0) -> dict[str, Any]:
    """Return a configuration entry for the MCP server in `hostile_mcp.py`."""
    assert hostile_mcp.__file__
    arguments = [hostile_mcp.__file__, str(data_dir / f"hostile-{seed}"), str(seed), *tools]
    return {"command": sys.executable, "args": ["-S", *arguments]}


class HostileHttp(BaseHTTPRequestHandler):
    """MCP server over HTTP that answers as `hostile_mcp.py`."""

    hostile: hostile_mcp.Hostile
    body_type = "application/json"
    encodings: tuple[str, ...] = ()

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answers = self.hostile.answers(message)
        self.send_response(200 if answers else 202)
        self.send_header("Content-Type", self.body_type)
        self.send_header("Mcp-Session-Id", "1")
        compresses = message.get("params", {}).get("name") == "compressed"
        for encoding in self.encodings if compresses else ():
            self.send_header("Content-Encoding", encoding)
        events = b"".join(b"data: %s\n\n" % each for each in answers)
        body = events if "event" in self.body_type else b"".join(answers[-1:])
        content = gzip.compress(b" " * 100_000_000) if compresses else body
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        self.send_error(405)

    def do_DELETE(self) -> None:
        """Answer nothing, until the client closes the connection."""
        self.rfile.read()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def hostile_http(data_dir: Path, *tools: str, seed: int = 0, **attributes: Any) -> Iterator[dict[str, Any]]:
    """Run an MCP server over HTTP and yield its configuration entry."""
    answers = hostile_mcp.Hostile(str(data_dir / f"hostile-{seed}"), seed, [*tools])
    handler = type("Handler", (HostileHttp,), {"hostile": answers, **attributes})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {"url": f"http://127.0.0.1:{server.server_port}/mcp"}
        server.shutdown()


def assert_faults(api: Api) -> None:
    began = time.monotonic()
    for name, message in FAULTS.items():
        assert called(api, name)["error_message"].startswith(f"{name} failed: {message}"), name
        assert problems(api) == {}
    assert called(api, "echo")["result"] == "echo"
    assert time.monotonic() - began < 30


def test_malformed_answer_fails_its_call_at_once(stub: StubServer, tmp_path: Path) -> None:
    write_mcp(tmp_path, hand=hostile(tmp_path, "echo", *FAULTS))
    with RunningServer(tmp_path, stub.url) as server:
        assert_faults(server.api())


@pytest.mark.parametrize("body_type", ["application/json", "text/event-stream"])
def test_malformed_answer_over_http_fails_its_call_at_once(stub: StubServer, tmp_path: Path, body_type: str) -> None:
    with hostile_http(tmp_path, "echo", *FAULTS, body_type=body_type) as entry:
        write_mcp(tmp_path, hand=entry)
        with RunningServer(tmp_path, stub.url) as server:
            assert_faults(server.api())


@pytest.mark.parametrize("encodings", [("gzip",), ("br",), ("gzip, gzip",), ("identity", "deflate")])
@pytest.mark.parametrize("body_type", ["application/json", "text/event-stream"])
def test_compressed_answer_is_refused(
    stub: StubServer, tmp_path: Path, body_type: str, encodings: tuple[str, ...]
) -> None:
    with hostile_http(tmp_path, "echo", "compressed", body_type=body_type, encodings=encodings) as entry:
        write_mcp(tmp_path, hand=entry)
        with RunningServer(tmp_path, stub.url) as server:
            api = server.api()
            refused = "compressed failed: it sent a compressed response, although the request forbids it"
            assert called(api, "compressed")["error_message"] == refused
            assert called(api, "echo")["result"] == "echo"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("surrogate", "its tool 'bad' cannot be used: it contains text that is not valid Unicode"),
        ("deep", "its tool 'bad' cannot be used: it is nested deeper than 200 levels"),
        ("null", "its tool without a name cannot be used: its definition is not valid MCP: : Input should be"),
        ("many", "it offers more than 1000 tools; the others are ignored"),
    ],
)
def test_malformed_tool_hides_no_other_tool(stub: StubServer, tmp_path: Path, kind: str, message: str) -> None:
    write_mcp(tmp_path, hand=hostile(tmp_path, "echo", f"list_{kind}"))
    with RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        assert "echo" in api.ok(api.http.get("/tools"))["tools"]
        assert message in problems(api)["hand"]
        assert called(api, "echo")["result"] == "echo"


def test_slow_pattern_in_an_output_schema_is_not_evaluated(stub: StubServer, tmp_path: Path) -> None:
    write_mcp(tmp_path, hand=hostile(tmp_path, "list_slow_pattern"))
    with RunningServer(tmp_path, stub.url) as server:
        assert "aaa" in called(server.api(), "slow_pattern")["result"]


@pytest.mark.parametrize("kind", ["flood", "flood_stderr"])
def test_endless_output_delays_neither_requests_nor_the_end(tmp_path: Path, kind: str) -> None:
    write_mcp(tmp_path, flood=hostile(tmp_path, "echo", kind), hand=by_hand(tmp_path, "note"))
    with Command("mochi_server", "--port", "0", "--ollama-host", "http://127.0.0.1:9", cwd=tmp_path) as command:
        api = command.api()
        until(lambda: {"echo", "note"} <= set(api.ok(api.http.get("/tools"))["tools"]))
        assert max(latencies(api, 50)) < 0.25
        began = time.monotonic()
        assert {"echo", "note"} <= set(api.ok(api.http.post("/tools/reload"))["tools"])
        command.end()
        assert time.monotonic() - began < 10


def latencies(api: Api, count: int) -> list[float]:
    """Return the durations of some health checks, in seconds."""
    durations = []
    for _ in range(count):
        began = time.monotonic()
        api.ok(api.http.get("/health/live"))
        durations.append(time.monotonic() - began)
    return durations
