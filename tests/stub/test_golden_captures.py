"""Captures of the real server: each is reproduced byte for byte or listed here with the reason why
not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse

import pytest

from mochi_stub import StubServer
from tests.stub.captures import (
    Capture,
    PartialCapture,
    matches,
    normalized,
    read_captures,
    read_partial_captures,
)
from tests.stub.golden import MODELS, PARTIAL_MODELS, script, short_reply
from tests.support.cases import cases

PROVIDERS_OWN = "/v1/"
"""The stub follows the providers' own specifications instead of Ollama's version of them."""
MALFORMED = "malformed JSON is refused with a sentence of the stub"
TEMPLATE = "templates are not parsed"
FILES = "the stub stores no files, and creates models only from other models"
CREATE_FIELDS = ("files", "adapters", "quantize", "license", "messages")
LLAMA_CPP = "with a real llama.cpp, Ollama refuses the format after it has started the stream"
REGISTRY = "the stub contacts no registry"
DIGITS = "the stub sends its invented vectors with eight digits"
PREFLIGHT = "the stub allows the requested headers, and does not list the methods of the path"
ORIGINS = "the stub allows the pages of all origins and all host names"
THINKING = "the stub refuses the format before the thinking"
BOUNDARY = "the stub sends no lines or tags where thinking begins or ends"
CAPITALS = "field names are compared with their case"
DIFFERENT = {
    "GET /api/version": "the captured server was built without a version number; the stub has one",
    "POST /api/chat {": MALFORMED,
    'POST /api/chat {"model":"plain","format":"xml","messages":[{"role":"user","content":"hi"}]}': LLAMA_CPP,
    'POST /api/create {"model":"z","from":"plain","template":"{{ .Bad"}': TEMPLATE,
    'POST /api/generate {"model":"plain","prompt":"hi","template":"{{ .Prompt","stream":false}': TEMPLATE,
    'POST /api/embed {"model":"emb","input":["a","b"],"dimensions":2}': DIGITS,
    'POST /api/pull {"model":"http://127.0.0.1:9/library/x","insecure":true}': REGISTRY,
    'POST /api/pull {"model":"http://127.0.0.1:9/library/x","insecure":true,"stream":false}': REGISTRY,
    **{
        f"OPTIONS /api/chat {origin} POST content-type,authorization": PREFLIGHT
        for origin in (
            "http://localhost:3000",
            "http://127.0.0.1",
            "app://x",
            "https://example.com",
            "null",
        )
    },
    "OPTIONS /api/chat localhost": PREFLIGHT,
    "GET /api/tags http://127.0.0.1": ORIGINS,
    "GET /api/tags app://x": ORIGINS,
    "GET /nope https://example.com": ORIGINS,
    "GET /api/tags http://[::1]": ORIGINS,
    "GET /api/tags chrome-extension://x": ORIGINS,
    "GET /api/tags evil.example.com": ORIGINS,
    "POST /api/chat "
    '{"model":"gothink","messages":[{"role":"user","content":"usethink"}],"format":{"type":"object"}}': (
        BOUNDARY
    ),
    'POST /api/generate {"model":"full","prompt":"usethink"}': BOUNDARY,
    'POST /api/generate {"model":"gothink","prompt":"usethink"}': BOUNDARY,
    r'POST /api/chat {"model":"gothink","messages":[{"role":"user","content":"hello there\nReason: be polite"}],'
    '"format":"xml"}': THINKING,
    'POST /api/chat {"Model":"plain","MESSAGES":[{"ROLE":"USER","Content":"hi"}],"stream":false}': CAPITALS,
}
CREATE = '{"model":"plain3","from":"plain","system":"S"}'
COPY = '{"source":"plain","destination":"plain2"}'
BEFORE = {
    ("GET /api/ps", 200): [
        ("POST", "/api/chat", '{"model":"plain"}'),
        ("POST", "/api/chat", '{"model":"full"}'),
    ],
    (f"POST /api/create {CREATE}", 200): [("POST", "/api/create", CREATE)],
    ('DELETE /api/delete {"model":"plain2"}', 200): [("POST", "/api/copy", COPY)],
}
"""Requests that were sent before the request with this answer."""


def reason_to_skip(capture: Capture | PartialCapture) -> str:
    """Return the reason why the capture is not reproduced, or ""."""
    if capture.path.startswith(PROVIDERS_OWN):
        return "follows the provider"
    if capture.path.startswith(("/api/blobs/", "/api/push")):
        return FILES
    before = capture.before if isinstance(capture, PartialCapture) else []
    requests = [(capture.method, capture.path, capture.request), *before]
    if any(
        path == "/api/create" and f'"{field}"' in body
        for _, path, body in requests
        for field in CREATE_FIELDS
    ):
        return FILES
    return DIFFERENT.get(capture.title, "")


CAPTURES = read_captures()
ALL_PARTIAL = read_partial_captures()
PARTIAL = [capture for capture in ALL_PARTIAL if not reason_to_skip(capture)]
REPRODUCED = [capture for capture in CAPTURES if not reason_to_skip(capture)]


STATEFUL = ("/api/copy", "/api/create", "/api/delete", "/api/ps", "/api/tags", "/v1/models")
"""Paths whose answers depend on earlier requests, or change later answers."""


def golden_stub() -> StubServer:
    """Return a stub with the models and the script of the captured server."""
    return StubServer(models=MODELS, resolve=script, speed=0)


def partial_stub() -> StubServer:
    """Return a stub with the models of the partial captures."""
    return StubServer(models=PARTIAL_MODELS, resolve=short_reply, speed=0)


@pytest.fixture(scope="module")
def shared_golden_stub() -> Iterator[StubServer]:
    with golden_stub() as stub:
        yield stub


@pytest.fixture(scope="module")
def shared_partial_stub() -> Iterator[StubServer]:
    with partial_stub() as stub:
        yield stub


@contextmanager
def stub_for(
    capture: Capture | PartialCapture, shared: StubServer, own: Callable[[], StubServer]
) -> Iterator[StubServer]:
    """Return the shared stub, or one for this capture if its answer depends on other requests."""
    if capture.path not in STATEFUL and not getattr(capture, "before", ()):
        yield shared
        return
    with own() as stub:
        yield stub


def exchange(
    stub: StubServer, method: str, path: str, body: str, headers: Mapping[str, str] | None = None
) -> tuple[HTTPResponse, str]:
    connection = HTTPConnection(stub.host, stub.port, timeout=5)
    try:
        connection.request(method, path, body.encode() or None, dict(headers or {}))
        response = connection.getresponse()
        return response, response.read().decode()
    finally:
        connection.close()


def test_all_captures_are_read() -> None:
    assert len(CAPTURES) == 128
    assert len(REPRODUCED) == 81
    assert len(PARTIAL) == 52


def test_table_names_only_existing_captures() -> None:
    titles = {capture.title for capture in CAPTURES} | {capture.title for capture in ALL_PARTIAL}
    assert set(DIFFERENT) <= titles
    assert {title for title, _ in BEFORE} <= titles


@cases("capture", REPRODUCED, ids=lambda capture: capture.title)
def test_capture_is_reproduced_byte_for_byte(
    capture: Capture, shared_golden_stub: StubServer
) -> None:
    with stub_for(capture, shared_golden_stub, golden_stub) as stub:
        for method, path, request in BEFORE.get((capture.title, capture.status), ()):
            assert exchange(stub, method, path, request)[0].status == 200
        response, body = exchange(stub, capture.method, capture.path, capture.request)
        assert f"HTTP/1.1 {response.status} {response.reason}" == capture.status_line
        headers = {name.lower(): value for name, value in response.getheaders()}
        del headers["date"]
        assert headers.keys() == capture.headers.keys()
        for name, value in headers.items():
            assert value == (
                str(len(body.encode())) if name == "content-length" else capture.headers[name]
            )
        assert normalized(body if not body or body.endswith("\n") else f"{body}\n") == normalized(
            capture.body
        )


@cases("capture", PARTIAL, ids=lambda capture: capture.title)
def test_known_parts_of_an_answer_are_reproduced(
    capture: PartialCapture, shared_partial_stub: StubServer
) -> None:
    with stub_for(capture, shared_partial_stub, partial_stub) as stub:
        for method, path, request in capture.before:
            assert exchange(stub, method, path, request)[0].status in (200, 201)
        response, body = exchange(stub, capture.method, capture.path, capture.request, capture.sent)
        assert response.status == capture.status
        for name, value in capture.headers.items():
            found = response.getheader(name, "(absent)")
            assert found.isdigit() if value == "num" else found == value
        if capture.lines:
            lines = body.rstrip("\n").split("\n")
            assert len(lines) == len(capture.lines)
            for line, expected in zip(lines, capture.lines, strict=True):
                assert (
                    matches(json.loads(expected), json.loads(line))
                    if expected.startswith("{")
                    else line == expected
                )
