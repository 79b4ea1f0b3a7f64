"""Requests of web pages: all origins, and preflight requests."""

from __future__ import annotations

from mochi_stub import StubServer
from tests.stub.requests import send_request
from tests.support.cases import cases

PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "content-type,x-mine",
}


@cases(
    "origin",
    ["http://localhost:3000", "https://example.com", "null", "file://", "vscode-webview://x"],
)
@cases(("path", "status"), [("/api/tags", 200), ("/nope", 404)])
def test_pages_of_all_origins_are_allowed(
    stub: StubServer, origin: str, path: str, status: int
) -> None:
    headers = {"Origin": origin, "Host": "stub.example.com"}
    answer = send_request(stub, "GET", path, headers=headers)
    assert answer.status == status
    assert answer.headers["access-control-allow-origin"] == "*"


def test_requests_without_a_foreign_origin_have_no_cors_headers(stub: StubServer) -> None:
    for headers in ({}, {"Origin": stub.url}, {"Origin": stub.url.replace("http:", "https:")}):
        answer = send_request(stub, "GET", "/api/version", headers=headers)
        assert answer.status == 200
        assert "access-control-allow-origin" not in answer.headers


def test_preflight_request_allows_the_requested_headers(stub: StubServer) -> None:
    headers = {"Origin": "https://example.com", **PREFLIGHT}
    answer = send_request(stub, "OPTIONS", "/api/chat", headers=headers)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == "*"
    assert (
        answer.headers["access-control-allow-methods"] == "GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS"
    )
    assert answer.headers["access-control-allow-headers"] == "content-type,x-mine"
    assert answer.headers["access-control-max-age"] == "43200"
