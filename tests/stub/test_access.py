"""Requests of web pages: allowed origins, preflight requests, and host names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mochi_stub import StubServer
from tests.stub.commands import call_command
from tests.stub.requests import send_request
from tests.support.cases import cases

FOREIGN = {"Origin": "https://example.com"}
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "content-type,x-mine",
}


@pytest.fixture(scope="module")
def open_stub() -> Iterator[StubServer]:
    with StubServer(speed=0) as stub:
        yield stub


@pytest.fixture(scope="module")
def stub() -> Iterator[StubServer]:
    """A stub that allows only the origins that Ollama allows by default."""
    with StubServer(cors="", speed=0) as stub:
        yield stub


@cases(
    "origin",
    [
        *("http://localhost:3000", "https://localhost", "http://127.0.0.1", "https://0.0.0.0:1"),
        *("app://x", "file://", "tauri://localhost", "vscode-webview://x", "vscode-file://x"),
    ],
)
def test_local_origin_is_echoed(stub: StubServer, origin: str) -> None:
    answer = send_request(stub, "GET", "/api/tags", headers={"Origin": origin})
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == origin
    assert answer.headers["vary"] == "Origin"
    unknown = send_request(stub, "GET", "/nope", headers={"Origin": origin})
    assert (unknown.status, unknown.headers["access-control-allow-origin"]) == (404, origin)


@cases(
    "origin",
    [
        "https://example.com",
        "null",
        "http://[::1]",
        "chrome-extension://x",
        "http://localhost.example.com",
    ],
)
@cases(
    ("method", "path"), [("GET", "/api/tags"), ("OPTIONS", "/api/chat"), ("POST", "/v1/messages")]
)
def test_foreign_origin_is_refused(stub: StubServer, method: str, path: str, origin: str) -> None:
    refused = send_request(stub, method, path, headers={"Origin": origin, **PREFLIGHT})
    assert (refused.status, refused.body, refused.headers["content-length"]) == (403, b"", "0")
    assert not [
        name
        for name in refused.headers
        if name.startswith(("access-control", "vary", "content-type"))
    ]


def test_requests_without_a_foreign_origin_have_no_cors_headers(stub: StubServer) -> None:
    for headers in ({}, {"Origin": stub.url}, {"Origin": stub.url.replace("http:", "https:")}):
        answer = send_request(stub, "GET", "/api/version", headers=headers)
        assert answer.status == 200
        assert not {"access-control-allow-origin", "vary"} & answer.headers.keys()


def test_preflight_request_allows_the_requested_headers(stub: StubServer) -> None:
    answer = send_request(
        stub, "OPTIONS", "/api/chat", headers={"Origin": "http://localhost:3000", **PREFLIGHT}
    )
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert (
        answer.headers["access-control-allow-methods"] == "GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS"
    )
    assert answer.headers["access-control-allow-headers"] == "content-type,x-mine"
    assert answer.headers["access-control-max-age"] == "43200"
    assert answer.headers["vary"] == "Origin"


def test_all_pages_and_hosts_are_allowed_by_default(open_stub: StubServer) -> None:
    answer = send_request(
        open_stub, "GET", "/api/tags", headers={**FOREIGN, "Host": "evil.example.com"}
    )
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")
    preflight = send_request(open_stub, "OPTIONS", "/api/chat", headers={**FOREIGN, **PREFLIGHT})
    assert (preflight.status, preflight.headers["access-control-allow-headers"]) == (
        204,
        "content-type,x-mine",
    )


def test_origins_can_be_added() -> None:
    with StubServer(cors="https://example.com, https://*.example.org", speed=0) as stub:
        for origin, status in (
            ("https://example.com", 200),
            ("https://a.example.org", 200),
            ("http://localhost", 200),
            ("https://example.org", 403),
            ("https://example.com.evil", 403),
        ):
            assert send_request(stub, "GET", "/", headers={"Origin": origin}).status == status


@cases("origins", ["example.com", "https://*.*", "https://a.b,c"])
def test_invalid_origin_is_refused(origins: str) -> None:
    with pytest.raises(
        ValueError, match=r"invalid origin .*: use an origin such as https://example.com"
    ):
        StubServer(cors=origins)


def test_command_takes_origins_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_ORIGINS", "example.com")
    ran = call_command("run", "--port", "0")
    assert (ran.returncode, "invalid origin 'example.com'" in ran.stderr) == (1, True)


@cases(
    ("host", "status"),
    [
        *(
            ("localhost:1", 200),
            ("127.0.0.1", 200),
            ("[::1]:80", 200),
            ("192.168.1.2:80", 200),
            ("[::]", 403),
        ),
        *(
            ("a.localhost", 200),
            ("host.docker.internal:11434", 200),
            ("PRINTER.local", 200),
            ("", 200),
        ),
        *(
            ("evil.example.com", 403),
            ("evil.example.com:80", 403),
            ("8.8.8.8", 200),
            ("8.8.8.8.evil", 403),
            ("localhost.evil", 403),
        ),
    ],
)
def test_unknown_host_is_refused(stub: StubServer, host: str, status: int) -> None:
    answer = send_request(stub, "GET", "/", headers={"Host": host})
    assert (answer.status, answer.body == b"") == (status, status == 403)


def test_host_is_not_checked_on_a_public_address() -> None:
    with StubServer(host="0.0.0.0") as stub:  # noqa: S104 - the address is the subject of the test
        assert send_request(stub, "GET", "/", headers={"Host": "mochi.example.com"}).status == 200
