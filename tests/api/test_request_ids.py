"""Request IDs in responses and log lines."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mochi_server.telemetry.logging import REQUEST_ID
from mochi_stub import StubServer
from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.holding import GatedStub
from tests.support.instructions import instruct, words
from tests.support.raw_http import connect, send_request
from tests.support.server import RunningServer
from tests.support.tools import write_tools

HEADER = "X-Request-ID"


class RequestLog(logging.Handler):
    """Log handler that collects the server's lines about requests."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[dict[str, Any]] = []
        self._written = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._written:
            fields = getattr(record, "fields", {})
            self._lines.append(
                fields | {"request_id": REQUEST_ID.get(), "message": record.getMessage()}
            )
            self._written.notify_all()

    def wait_for(self, request_id: str) -> dict[str, Any]:
        """Wait for the line of a request and return it."""
        with self._written:
            assert self._written.wait_for(lambda: self._find(request_id), 60), (
                f"no line for {request_id}"
            )
            (line,) = self._find(request_id)
            return line

    def _find(self, request_id: str) -> list[dict[str, Any]]:
        return [line for line in self._lines if line["request_id"] == request_id]


@contextmanager
def logged_by(name: str) -> Iterator[RequestLog]:
    handler, logger = RequestLog(), logging.getLogger(name)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.fixture
def lines() -> Iterator[RequestLog]:
    with logged_by("mochi_server.web.request_log") as lines:
        yield lines


@cases("given", ["a", "0af7651916cd43dd8448eb211c80319c", "web-1/2:3_4.5~6=7+8@9", "x" * 128])
def test_valid_request_id_is_kept(api: Api, given: str) -> None:
    assert api.http.get("/health", headers={HEADER: given}).headers.get_list(HEADER) == [given]


@cases(
    "given", ["", "x" * 129, "a b", "a\tb", '"', "<script>", "a;b", b"\xe9", b"\xc3\xa9", "a\\b"]
)
def test_invalid_request_id_is_replaced(api: Api, given: str | bytes) -> None:
    (answered,) = api.http.get(
        "/health", headers=[(HEADER.encode(), _bytes(given))]
    ).headers.get_list(HEADER)
    assert len(answered) == 32
    assert answered.isalnum()


def test_two_requests_have_two_ids(api: Api) -> None:
    first, second = (api.http.get("/health").headers[HEADER] for _ in range(2))
    assert first != second


def test_every_error_has_request_id(tmp_path: Path, stub: StubServer) -> None:
    with RunningServer(tmp_path, stub.url, api_keys=("the key",), max_body_bytes=100) as server:
        http = server.api(headers={"Authorization": "Bearer the key", HEADER: "mine"}).http
        refused = {
            401: http.get("/health", headers={"Authorization": "Bearer another"}),
            403: http.get("/health", headers={"Origin": "https://evil.example"}),
            404: http.get("/sessions/0123456789"),
            405: http.put("/sessions"),
            413: http.post("/sessions", json={"model": "x" * 200}),
            422: http.post("/sessions", data={"model": "mochi"}),
            431: http.get("/health", headers={"X-Long": "x" * 70_000}),
        }
        for status, response in refused.items():
            assert error_of(response)[0] == status
            assert response.headers.get_list(HEADER) == ["mine"]
        assert http.get(server.url + "/nothing").headers[HEADER] == "mine"
        assert http.get("/health", headers={"Host": "evil.example"}).headers[HEADER] == "mine"


def test_preflight_and_exposed_headers_have_request_id(api: Api) -> None:
    page = {"Origin": "http://localhost:3000", HEADER: "mine"}
    preflight = api.http.options(
        "/sessions", headers=page | {"Access-Control-Request-Method": "POST"}
    )
    assert preflight.headers[HEADER] == "mine"
    exposed = api.http.get("/health", headers=page).headers["access-control-expose-headers"]
    assert {HEADER, "request-id", "Content-Disposition"} <= set(exposed.split(", "))


def test_unexpected_error_and_its_traceback_have_request_id(
    private_server: RunningServer, private_api: Api, lines: RequestLog
) -> None:
    @private_server.app.get("/breaks")
    async def fail() -> None:
        raise RuntimeError("a defect")

    with logged_by("uvicorn.error") as tracebacks:
        response = private_api.http.get(private_server.url + "/breaks", headers={HEADER: "mine"})
        assert "Exception in ASGI application" in tracebacks.wait_for("mine")["message"]
    assert error_of(response) == (500, "INTERNAL_ERROR")
    assert "defect" not in response.text
    assert response.headers[HEADER] == "mine"
    line = lines.wait_for("mine")
    assert (line["status"], line["ended"]) == (500, "failed")


def test_invalid_http_gets_request_id_and_is_logged(
    server: RunningServer, lines: RequestLog
) -> None:
    answer = send_request(server.url, b"complete nonsense\r\n\r\n")
    assert answer.status == 400
    assert answer.error == "BAD_REQUEST"
    assert lines.wait_for(answer.headers[HEADER.lower()])["status"] == 400


def test_access_log_has_path_but_not_query(api: Api, lines: RequestLog) -> None:
    api.http.get("/health?token=hidden", headers={HEADER: "mine"})
    line = lines.wait_for("mine")
    assert line["message"].startswith("GET /api/v1/health 200 ")
    assert line["message"].endswith(" ms 127.0.0.1")
    assert (line["method"], line["path"], line["status"], line["client"]) == (
        "GET",
        "/api/v1/health",
        200,
        "127.0.0.1",
    )
    assert line["duration_ms"] >= 0
    assert line["ended"] is None
    assert "hidden" not in str(line)


def test_stream_is_logged_when_it_ends(api: Api, lines: RequestLog) -> None:
    session_id = api.create_session("mochi")["session_id"]
    body = {"message": instruct(words(5))}
    with api.http.stream(
        "POST", f"/chat/{session_id}/stream", json=body, headers={HEADER: "mine"}
    ) as response:
        assert response.headers[HEADER] == "mine"
        response.read()
    line = lines.wait_for("mine")
    assert (line["path"], line["status"], line["ended"]) == (
        f"/api/v1/chat/{session_id}/stream",
        200,
        None,
    )


def test_disconnect_from_stream_is_logged(
    holding: GatedStub, holding_server: RunningServer, lines: RequestLog
) -> None:
    api = holding_server.client
    session_id = api.create_session("mochi")["session_id"]
    body = {"message": "hold"}
    with api.http.stream(
        "POST", f"/chat/{session_id}/stream", json=body, headers={HEADER: "mine"}
    ) as response:
        next(response.iter_raw())
    assert lines.wait_for("mine")["ended"] == "client_left"


def test_disconnect_from_collected_turn_is_logged(
    holding: GatedStub, holding_server: RunningServer, lines: RequestLog
) -> None:
    session_id = holding_server.client.create_session("mochi")["session_id"]
    head = f"POST /api/v1/chat/{session_id} HTTP/1.1\r\nHost: localhost\r\n{HEADER}: mine\r\n"
    body = b'Content-Type: application/json\r\nContent-Length: 19\r\n\r\n{"message": "hold"}'
    with connect(holding_server.url) as connection:
        connection.sendall(head.encode() + body)
        holding.stub.wait_for(lambda exchanges: any(each.path == "/api/chat" for each in exchanges))
    assert lines.wait_for("mine")["ended"] == "client_left"


def test_tool_runs_with_request_id_of_its_request(private_api: Api, tmp_path: Path) -> None:
    write_tools(
        tmp_path,
        """
        from mochi_server.telemetry.logging import REQUEST_ID

        def which() -> str:
            "Say which request this is."
            return REQUEST_ID.get()

        __all__ = ["which"]
        """,
    )
    settings = {"tools": ["which"], "execution_policy": "never_confirm"}
    session_id = private_api.create_session("mochi", tool_settings=settings)["session_id"]
    body = {"message": instruct({"tool_call": [{"name": "which", "args": {}}]}, words(3))}
    private_api.ok(
        private_api.http.post(f"/chat/{session_id}", json=body, headers={HEADER: "mine"})
    )
    assert [m["content"] for m in private_api.messages(session_id) if m["role"] == "tool"] == [
        "mine"
    ]


def test_pipelined_requests_keep_their_ids_apart(server: RunningServer, lines: RequestLog) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    request = "GET /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: {}\r\n{}\r\n"
    with socket.create_connection((host, int(port)), 10) as connection:
        last = request.format("second", "Connection: close\r\n")
        connection.sendall((request.format("first", "") + last).encode())
        answers = b"".join(iter(lambda: connection.recv(65536), b"")).lower()
    assert answers.index(b"x-request-id: first") < answers.index(b"x-request-id: second")
    assert lines.wait_for("first")["status"] == lines.wait_for("second")["status"] == 200


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
