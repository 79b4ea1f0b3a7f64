"""Small things that users meet: addresses, error lines, searches, titles and exports."""

import logging
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mochi_server import MochiServerSettings
from mochi_server.sessions.session import automatic_title, user_message
from mochi_stub import StubServer
from tests.support.api import Api
from tests.support.cases import cases
from tests.support.mcp import write_mcp
from tests.support.raw_ollama import RawOllama
from tests.support.server import RunningServer
from tests.support.waiting import until

PLAIN = b"an error was encountered while running the model: CUDA error\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n"


@cases(
    ("host", "url"),
    [
        ("::1", "http://[::1]:11434"),
        ("[::1]:11435", "http://[::1]:11435"),
        ('"http://localhost:11434"', "http://localhost:11434"),
        (" 'gpu' ", "http://gpu:11434"),
    ],
)
def test_address_of_ollama_can_be_written_as_users_write_it(host: str, url: str) -> None:
    assert MochiServerSettings(ollama_host=host).ollama_host == url


def test_plain_error_line_of_ollama_reaches_the_client_and_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        RawOllama(lambda connection: connection.sendall(HEAD + PLAIN)) as ollama,
        RunningServer(tmp_path, ollama.url) as server,
    ):
        session = server.client.create_session("raw")["session_id"]
        response = server.client.http.post(f"/chat/{session}", json={"message": "Hello!"})
    assert response.status_code == 502
    assert "CUDA error" in response.json()["error"]["message"]
    assert any("CUDA error" in record.getMessage() for record in caplog.records)


def test_http_to_a_tls_port_says_use_https(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate", tmp_path / "key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    files = ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *files], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with suppress(OSError), connection:
                    context.wrap_socket(connection, server_side=True)

        threading.Thread(target=accept, daemon=True).start()
        port = listener.getsockname()[1]
        with RunningServer(tmp_path / "data", f"http://127.0.0.1:{port}") as server:
            error = server.client.http.get("/models").json()["error"]
        listener.shutdown(socket.SHUT_RDWR)
    assert "use https://" in error["message"]


def test_http_to_a_web_server_with_tls_says_use_https(tmp_path: Path) -> None:
    body = b"Client sent an HTTP request to an HTTPS server.\n"
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(
        body
    )
    with (
        RawOllama(lambda connection: connection.sendall(head + body)) as ollama,
        RunningServer(tmp_path, ollama.url) as server,
    ):
        session = server.client.create_session("raw")["session_id"]
        response = server.client.http.post(f"/chat/{session}", json={"message": "Hello!"})
    assert "Use https://" in response.json()["error"]["message"]


def test_https_to_a_port_without_tls_says_use_http(stub: StubServer, tmp_path: Path) -> None:
    with RunningServer(tmp_path, stub.url.replace("http://", "https://")) as server:
        error = server.client.http.get("/models").json()["error"]
    assert "use http://" in error["message"]


def test_mcp_server_that_exits_says_why_in_the_log(
    stub: StubServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = "import sys; print('Starting.', 'No API key.', sep='\\n', file=sys.stderr)"
    write_mcp(tmp_path, broken={"command": sys.executable, "args": ["-c", code]})
    with RunningServer(tmp_path, stub.url) as server:
        server.client.http.get("/tools")
        until(lambda: "MCP server exited server=broken: No API key." in caplog.text)
    levels = {record.levelno for record in caplog.records if "No API key." in record.getMessage()}
    assert logging.WARNING in levels


def _found(api: Api, query: str) -> int:
    return len(api.ok(api.http.get("/sessions", params={"q": query}))["sessions"])


def test_search_finds_words_without_their_accents(server: RunningServer) -> None:
    api = server.client
    session = api.create_session("mochi")["session_id"]
    api.send_message(session, "Ein Café in München.")
    assert [_found(api, word) for word in ("munchen", "cafe", "München", "CAFÉ")] == [1] * 4
    assert _found(api, "munich") == 0


@cases(
    ("text", "end"),
    [
        ("x" * 76 + "👨‍👩‍👧" + "y" * 9, "x..."),
        ("x" * 76 + "e\u0301" + "y" * 9, "x..."),
        ("x" * 76 + "🇩🇪" + "y" * 9, "x..."),
        ("x" * 76 + "👍🏽" + "y" * 9, "x..."),
        ("x" * 75 + "🇩🇪" + "🇫🇷" + "y" * 9, "🇩🇪..."),
        ("x" * 90, "x..."),
    ],
)
def test_title_is_cut_at_a_grapheme(text: str, end: str) -> None:
    title = automatic_title([user_message(text)], None)
    assert title is not None
    assert title.endswith(end)
    assert len(title) <= 80


@cases(
    "attributes",
    [
        'type="tool_calls"',
        'type="tool_calls" done="true" name="a" arguments="&quot;{}&quot;" result="a > b < c"',
        'done="true" type="tool_calls"',
        'class="x"\n  type="tool_calls"',
    ],
)
def test_tool_calls_of_an_open_webui_export_are_left_out(
    server: RunningServer, attributes: str
) -> None:
    text = f"<details {attributes}>\n<summary>Tool Executed</summary>\n</details>\nSunny."
    chat: Any = {
        "chat": {
            "title": "Weather",
            "history": {
                "messages": {
                    "1": {"role": "user", "content": "Weather?", "parentId": None},
                    "2": {"role": "assistant", "content": text, "parentId": "1"},
                },
                "currentId": "2",
            },
        }
    }
    api = server.client
    response = api.http.post("/sessions/import", json=[chat])
    assert response.status_code in (200, 201), response.text
    (entry, *_) = api.ok(api.http.get("/sessions", params={"q": "weather"}))["sessions"]
    assert api.messages(entry["session_id"])[-1]["content"].strip() == "Sunny."
    api.http.delete(f"/sessions/{entry['session_id']}")
