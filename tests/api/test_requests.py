"""Requests that are rejected before they reach a route: shape, size, origin, host and API key."""

import gzip
import json
import re
import socket
from pathlib import Path

import httpx
import pytest
from starlette.middleware.base import RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from mochi_server.errors import OriginForbidden
from mochi_server.protocols.frontends import FrontendOptions
from mochi_server.schemas.chat import ChatRequest
from mochi_server.web.middleware import origin_check
from mochi_stub import StubServer
from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.server import RunningServer, ThreadedServer


@pytest.fixture
def session_id(api: Api) -> str:
    """An empty session."""
    return str(api.create_session("mochi")["session_id"])


def test_unknown_paths_and_wrong_methods_have_the_envelope(api: Api, server: RunningServer) -> None:
    assert error_of(api.http.get("/nothing")) == (404, "NOT_FOUND")
    assert error_of(httpx.get(server.url + "/nothing")) == (404, "NOT_FOUND")
    response = api.http.put("/sessions")
    assert error_of(response) == (405, "METHOD_NOT_ALLOWED")
    assert response.headers["allow"] == "GET, HEAD, POST"
    assert api.http.post("/sessions/0123456789").headers["allow"] == "DELETE, GET, HEAD, PATCH"


@cases(
    "body", [b"{", b'{"message": "x"', b"\xff\xfe", b'{"message": "\\ud800"}', b"[]", b"5", b'"x"']
)
def test_bodies_of_wrong_shape_are_422(api: Api, session_id: str, body: bytes) -> None:
    for path in (f"/chat/{session_id}", f"/chat/{session_id}/stream"):
        response = api.http.post(path, content=body, headers={"Content-Type": "application/json"})
        assert error_of(response) == (422, "VALIDATION_ERROR")
    assert api.messages(session_id) == []


NOT_JSON = [
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "text/json",
]
NOT_JSON += [
    "application/jsonp",
    "application/json, text/plain",
    "json",
    "image/svg+json",
    "application/octet-stream",
]


def test_every_route_refuses_body_not_declared_as_json(api: Api) -> None:
    from tests.support.openapi import routes

    session_id = api.create_session("mochi")["session_id"]
    for number, route in enumerate(route for route in routes() if route.schema is not None):
        path = route.path.removeprefix("/api/v1").format(
            session_id=session_id, message_index=0, filename="a.md", name="a"
        )
        for content_type in [NOT_JSON[number % len(NOT_JSON)], None]:
            headers = {} if content_type is None else {"Content-Type": content_type}
            response = api.http.request(
                route.method, path, content=json.dumps(route.body), headers=headers
            )
            assert error_of(response) == (422, "VALIDATION_ERROR"), (str(route), content_type)
            assert "application/json" in response.json()["error"]["message"], (
                str(route),
                content_type,
            )
    assert number >= len(NOT_JSON), "no route was sent some of the types"
    assert api.messages(session_id) == []


def test_empty_form_starts_no_turn(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    for path in (
        f"/chat/{session_id}",
        f"/chat/{session_id}/stream",
        f"/chat/{session_id}/stop",
        "/tools/reload",
    ):
        response = api.http.post(
            path, headers={"Content-Type": "application/x-www-form-urlencoded"}
        )
        assert error_of(response) == (422, "VALIDATION_ERROR")


@cases(
    "content_type",
    [
        "application/json",
        "APPLICATION/JSON",
        "application/json; charset=utf-8",
        "application/x.y+json",
    ],
)
def test_json_content_types_are_accepted(api: Api, content_type: str) -> None:
    response = api.http.post(
        "/sessions", content=b'{"model": "mochi"}', headers={"Content-Type": content_type}
    )
    assert response.status_code == 201


@cases("message", ["", "   \n\t", 5, ["x"], {"content": "x"}, "x" * 1_000_001])
def test_blank_and_too_long_messages_are_422(api: Api, session_id: str, message: object) -> None:
    assert error_of(api.http.post(f"/chat/{session_id}", json={"message": message})) == (
        422,
        "VALIDATION_ERROR",
    )


@cases(
    ("path", "body"),
    [
        ("models/test", {"modelIds": ["mochi"], "message": "Hello!", "chatHistory": [0] * 3}),
        ("chat/0123456789/ai-sdk", {"messages": [0] * 3}),
        ("chat/0123456789/ai-sdk", {"messages": [{"role": "user", "parts": [0] * 3}]}),
        ("chat/0123456789/ag-ui", {"threadId": "t", "runId": "r", "messages": [0] * 3}),
        (
            "chat/0123456789/ag-ui",
            {"threadId": "t", "runId": "r", "messages": [], "tools": [0] * 3},
        ),
        ("chat/0123456789/ag-ui", {"threadId": "t", "runId": "r", "messages": [{}] * 3}),
        (
            "chat/0123456789/ag-ui",
            {"threadId": "t", "runId": "r", "messages": [], "tools": [{"description": ""}] * 3},
        ),
        ("sessions/import", {"metadata": {"model": "m"}, "messages": [0] * 3}),
        (
            "sessions/import",
            {"metadata": {"model": "m"}, "messages": [], "blobs": dict.fromkeys("abc", 0)},
        ),
        ("sessions/import", {"chat": {"messages": [0] * 3}}),
        ("sessions/import", {"chat": {"history": {"messages": dict.fromkeys("abc", 0)}}}),
    ],
)
def test_invalid_list_has_one_problem(api: Api, path: str, body: dict[str, object]) -> None:
    """Each problem takes 1 kB of memory, and a body can contain 16 million invalid items."""
    assert len(api.http.post(path, json=body).json()["error"]["details"]["errors"]) == 1


def test_message_of_a_million_characters_is_accepted(api: Api) -> None:
    session_id = api.create_session("mochi-long")["session_id"]
    message = "word " * 200_000
    assert len(message) == 1_000_000
    api.http.post(f"/chat/{session_id}", json={"message": message})
    assert api.messages(session_id)[0]["content"] == message


def test_non_finite_numbers_are_refused(api: Api) -> None:
    for number in (b"NaN", b"1e999", b"-Infinity"):
        for path, body in (
            ("/sessions", b'{"model": "mochi", "options": {"temperature": %b}}'),
            (
                "/chat/0123456789/confirm-tool",
                b'{"confirmation_id": "c", "approved": true, "arguments": {"x": [%b]}}',
            ),
        ):
            response = api.http.post(
                path, content=body % number, headers={"Content-Type": "application/json"}
            )
            assert error_of(response) == (422, "VALIDATION_ERROR")


@cases(
    ("path", "body"),
    [
        ("/system-prompts", {"filename": "d.md", "content": "\ud800"}),
        ("/sessions", {"model": "mochi", "tool_settings": {"tools": ["\ud800"]}}),
        (
            "/sessions",
            {"model": "mochi", "agent_settings": {"selection_metadata": {"a": "\ud800"}}},
        ),
    ],
)
def test_lone_surrogates_are_refused_before_any_write(
    api: Api, server: RunningServer, path: str, body: dict[str, object]
) -> None:
    data_dir = Path(server.settings.data_dir)
    before = sorted(data_dir.rglob("*.[mj]*"))
    headers = {"Content-Type": "application/json"}
    response = api.http.post(path, content=json.dumps(body).encode(), headers=headers)
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert sorted(data_dir.rglob("*.[mj]*")) == before


def test_error_for_200000_invalid_items_is_short(api: Api) -> None:
    response = api.http.post(
        "/sessions", json={"model": "mochi", "tool_settings": {"tools": [1] * 200_000}}
    )
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert len(response.content) < 5000


def test_validation_error_names_the_field(api: Api) -> None:
    error = api.http.post("/sessions", json={"model": 5}).json()["error"]
    assert error["message"].startswith("model: ")
    assert error["details"]["errors"][0]["loc"] == ["body", "model"]


def test_null_as_model_of_a_session_names_the_field(api: Api) -> None:
    path = f"/sessions/{api.create_session('mochi')['session_id']}"
    error = api.http.patch(path, json={"model": None}).json()["error"]
    assert error["message"].startswith("model: cannot be null")
    assert error["details"]["errors"][0]["loc"] == ["body", "model"]


@cases(
    ("body", "place", "said"),
    [
        ({"model": "mochi", "options": {"top_k": "x"}}, ["options", "top_k"], "a number"),
        ({"model": "mochi", "options": {"stop": "x"}}, ["options", "stop"], "a list of strings"),
        ({"model": "mochi", "think": "a lot"}, ["think"], "'low', 'medium', 'high' or 'max'"),
        (
            {"model": "mochi", "format": 5},
            ["format"],
            "Input should be 'json'; Input should be a JSON object",
        ),
        (
            {"model": "mochi", "tool_settings": {"tools": ["a", 5]}},
            ["tool_settings", "tools", 1],
            "a valid string",
        ),
        ({}, ["model"], "Field required"),
        ({"model": "mochi", "body": 5}, ["body"], "unknown field"),
    ],
)
def test_error_names_union_field_as_it_was_sent(
    api: Api, body: dict[str, object], place: list[object], said: str
) -> None:
    error = api.http.post("/sessions", json=body).json()["error"]
    assert {tuple(each["loc"]) for each in error["details"]["errors"]} == {("body", *place)}
    assert error["message"].startswith(".".join(map(str, place)) + ": ")
    assert said in error["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [(b"", "The body is missing. Send a JSON object."), (b"[]", "Input should be a JSON object")],
    ids=["missing", "a list"],
)
def test_body_that_is_no_object_is_reported(api: Api, body: bytes, message: str) -> None:
    as_json = {"Content-Type": "application/json"}
    response = api.http.post("/sessions", content=body, headers=as_json)
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert response.json()["error"]["message"] == message
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/messages"):
        url = api.http.base_url.copy_with(path=path)
        response = api.http.post(url, content=body, headers=as_json)
        assert (response.status_code, response.json()["error"]["message"]) == (400, message)


def test_invalid_positions_and_keys_are_explained(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    for position in ("x", "-1", "5f5d36ccef:", "2\n"):
        response = api.http.get(f"/chat/{session_id}/stream", params={"after": position})
        assert error_of(response) == (422, "VALIDATION_ERROR")
        message = "query.after: must be the ID or the number of an event, such as 5f5d36ccef:2 or 2"
        assert response.json()["error"]["message"] == message
    for key in ("", "two words", "x" * 256):
        response = api.http.post(f"/chat/{session_id}", headers={"Idempotency-Key": key})
        assert error_of(response) == (422, "VALIDATION_ERROR")
        message = (
            "header.Idempotency-Key: must have 1 to 255 printable ASCII characters and no spaces"
        )
        assert response.json()["error"]["message"] == message


@cases(
    ("body", "message"),
    [
        (b"{", "Expecting property name enclosed in double quotes at line 1, column 2."),
        (b'{\n  "model": qwen3\n}', "Expecting value at line 2, column 12."),
        (
            b"{'model': 'qwen3'}",
            "Expecting property name enclosed in double quotes at line 1, column 2. Use double "
            "quotes (\") instead of single quotes (').",
        ),
        (b'{"message": "a}', "Unterminated string starting at line 1, column 13."),
        (
            b'{"message": "a\nb"}',
            "Invalid control character at line 1, column 15. Write a line break in a string as "
            "\\n, and a tab as \\t.",
        ),
    ],
)
def test_invalid_json_is_reported_with_its_place(api: Api, body: bytes, message: str) -> None:
    for path in ("/sessions", "/v1/chat/completions", "/v1/messages"):
        url = path if path == "/sessions" else str(api.http.base_url.copy_with(path=path))
        response = api.http.post(url, content=body, headers={"Content-Type": "application/json"})
        found = response.json()["error"]["message"]
        assert found == f"The body is not valid JSON: {message}", path


@cases("body", [b'{"model": "mochi",}', b'{"model": "mochi", "tags": ["a", ]}'])
def test_trailing_comma_is_named(api: Api, body: bytes) -> None:
    """Python 3.13 names it itself."""
    response = api.http.post(
        "/sessions", content=body, headers={"Content-Type": "application/json"}
    )
    assert re.search("trailing comma|Remove the comma", response.json()["error"]["message"])


@pytest.mark.parametrize(
    "body", [b'{"message": "\xff"}', b'{"message": ' + b"[" * 100_000], ids=["not UTF-8", "deep"]
)
def test_undecodable_json_is_reported(api: Api, body: bytes) -> None:
    session_id = api.create_session("mochi")["session_id"]
    response = api.http.post(
        f"/chat/{session_id}", content=body, headers={"Content-Type": "application/json"}
    )
    assert error_of(response) == (422, "VALIDATION_ERROR")
    message = "The body is not valid JSON: it is not UTF-8, or it nests values too deeply."
    assert response.json()["error"] == {
        "code": "VALIDATION_ERROR",
        "message": message,
        "details": {"errors": []},
    }


@cases(("path", "status"), [("/api/v1/sessions", 422), ("/v1/responses", 400)])
def test_compressed_body_is_reported(api: Api, path: str, status: int) -> None:
    response = api.http.post(
        api.http.base_url.copy_with(path=path),
        content=gzip.compress(b'{"model": "mochi"}'),
        headers={"Content-Type": "application/json", "Content-Encoding": "gzip"},
    )
    assert (response.status_code, response.json()["error"]["message"]) == (
        status,
        "The server does not support the header Content-Encoding: gzip. Send the body uncompressed.",
    )


def test_null_is_the_default_of_optional_fields(api: Api, session_id: str) -> None:
    optional = ChatRequest.model_fields.keys() - {"message"}
    body = {"message": "Hello!", **dict.fromkeys(optional)}
    answer = api.ok(api.http.post(f"/chat/{session_id}", json=body))
    assert answer["message"]["role"] == "assistant"
    assert api.http.post(f"/chat/{session_id}/stream", json=body).status_code == 200
    messages = [{"role": "user", "parts": [{"type": "text", "text": "Hello!"}]}]
    frontend = {"messages": messages, **dict.fromkeys(FrontendOptions.model_fields)}
    assert api.http.post(f"/chat/{session_id}/ai-sdk", json=frontend).status_code == 200


def test_bodies_over_the_limit_are_413(tmp_path: Path, stub: StubServer) -> None:
    data = b'{"model": "' + b"x" * 2000 + b'"}'
    headers = {"Content-Type": "application/json"}
    with RunningServer(tmp_path, stub.url, max_body_bytes=1000) as server:
        for path in ("/sessions", "/sessions/import"):
            declared = server.client.http.post(path, content=data, headers=headers)
            chunked = server.client.http.post(
                path, content=iter([data[:600], data[600:]]), headers=headers
            )
            assert error_of(declared) == error_of(chunked) == (413, "BODY_TOO_LARGE")


def test_chunked_body_within_limit_is_accepted(api: Api) -> None:
    content = iter([b'{"model":', b'"mochi"}'])
    response = api.http.post(
        "/sessions", content=content, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 201


def test_oversized_headers_are_431(api: Api) -> None:
    response = api.http.get("/health", headers={"X-Long": "x" * 70_000})
    assert error_of(response) == (431, "HEADERS_TOO_LARGE")


@cases("host", ["evil.example", "evil.example:8000", "192.168.1.5", "127.0.0.1.evil.example"])
def test_foreign_host_on_loopback_is_403(api: Api, host: str) -> None:
    assert error_of(api.http.get("/health", headers={"Host": host})) == (403, "HOST_FORBIDDEN")


@cases("host", ["localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000", "mochi.localhost"])
def test_loopback_host_names_are_accepted(api: Api, host: str) -> None:
    assert api.http.get("/health", headers={"Host": host}).status_code == 200


@cases(
    "origin",
    ["https://evil.example", "null", "http://localhost.evil.example", "file://", "http://["],
)
def test_foreign_origin_is_403(api: Api, session_id: str, origin: str) -> None:
    headers = {"Origin": origin}
    assert error_of(api.http.get("/health", headers=headers)) == (403, "ORIGIN_FORBIDDEN")
    response = api.http.post(f"/chat/{session_id}/stream", json={"message": "x"}, headers=headers)
    assert error_of(response) == (403, "ORIGIN_FORBIDDEN")
    preflight = api.http.options(
        "/sessions", headers=headers | {"Access-Control-Request-Method": "POST"}
    )
    assert preflight.status_code == 403
    assert "access-control-allow-origin" not in preflight.headers
    assert api.messages(session_id) == []


def test_page_from_a_file_is_to_be_served_and_null_not_to_be_allowed(api: Api) -> None:
    response = api.http.get("/sessions", headers={"Origin": "null"})
    assert error_of(response) == (403, "ORIGIN_FORBIDDEN")
    message = response.json()["error"]["message"]
    assert "web server" in message
    assert "MOCHI_ALLOWED_ORIGINS" not in message


def test_each_refused_origin_is_logged_once_with_its_setting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    check = origin_check([])
    origins = [f"https://{number}.example" for number in range(150)]
    for origin in origins * 2:
        scope = {"type": "http", "headers": [(b"origin", origin.encode()), (b"host", b"localhost")]}
        assert isinstance(check(scope), OriginForbidden)
    logged = [log.getMessage() for log in caplog.records if log.levelname == "WARNING"]
    assert len(logged) == 100  # many origins do not fill the log
    for text, origin in zip(logged, origins, strict=False):
        assert f"MOCHI_ALLOWED_ORIGINS={origin}" in text


@cases(
    ("origin", "host", "is_admitted"),
    [
        ("https://chat.example", "chat.example:443", True),
        ("http://chat.example", "Chat.Example:80", True),
        ("https://chat.example:443", "chat.example:443", True),
        ("https://chat.example:8443", "chat.example:8443", True),
        ("https://chat.example", "chat.example:80", False),
        ("https://chat.example", "chat.example:8443", False),
    ],
)
def test_origin_of_the_server_is_admitted_if_a_proxy_adds_the_default_port(
    origin: str, host: str, is_admitted: bool
) -> None:
    headers = [(b"origin", origin.encode()), (b"host", host.encode())]
    error = origin_check([])({"type": "http", "headers": headers})
    assert (error is None) == is_admitted


def test_request_embedded_by_foreign_page_is_403(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    embedded = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    for path in ("/tools", f"/chat/{session_id}/stream"):
        assert error_of(api.http.get(path, headers=embedded)) == (403, "ORIGIN_FORBIDDEN")
    for admitted in (
        {"Sec-Fetch-Mode": "navigate"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://localhost:3000"},
    ):
        assert api.http.get("/health", headers=embedded | admitted).status_code == 200


@cases("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
def test_preflight_allows_the_methods_of_all_routes(api: Api, method: str) -> None:
    headers = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": method}
    preflight = api.http.options(
        "/sessions", headers=headers | {"Access-Control-Request-Headers": "authorization"}
    )
    assert preflight.status_code == 200
    assert method in preflight.headers["access-control-allow-methods"].split(", ")


@cases("origin", ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:5173"])
def test_local_origins_are_accepted(api: Api, origin: str) -> None:
    assert (
        api.http.get("/health", headers={"Origin": origin}).headers["access-control-allow-origin"]
        == origin
    )
    preflight = api.http.options(
        "/sessions",
        headers={
            "Origin": origin,
            "Access-Control-Request-Method": "PATCH",
            "Access-Control-Request-Headers": "content-type, authorization",
        },
    )
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == origin
    assert "PATCH" in preflight.headers["access-control-allow-methods"]


def test_local_origin_may_read_a_stream(api: Api) -> None:
    path = f"/chat/{api.create_session('mochi')['session_id']}/stream"
    answer = api.http.post(
        path, json={"message": "Hello!"}, headers={"Origin": "http://localhost:3000"}
    )
    assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert answer.text.endswith("\n\n")
    assert "event: done" in answer.text


def test_added_middleware_sees_whole_stream(tmp_path: Path, stub: StubServer) -> None:
    server = ThreadedServer(str(tmp_path), stub.url)

    @server.app.middleware("http")
    async def shout(request: Request, proceed: RequestResponseEndpoint) -> Response:
        answer = await proceed(request)
        if not request.url.path.endswith("/stream"):
            return answer
        return StreamingResponse(part.upper() async for part in answer.body_iterator)  # type: ignore[attr-defined]  # set by the test

    with server, Api(server.url) as api:
        session_id = api.create_session("mochi")["session_id"]
        answer = api.http.post(f"/chat/{session_id}/stream", json={"message": "Hello!"})
    assert "EVENT: CONTENT_DELTA" in answer.text
    assert "EVENT: DONE" in answer.text


def test_asterisk_allows_all_origins_and_hosts(tmp_path: Path, stub: StubServer) -> None:
    with RunningServer(tmp_path, stub.url, allowed_origins=("*",)) as server:
        for headers in ({"Origin": "https://any.example"}, {"Host": "any.example:8000"}):
            assert server.client.http.get("/sessions", headers=headers).status_code == 200


def test_allowed_origins_and_their_hosts_are_accepted(tmp_path: Path, stub: StubServer) -> None:
    with RunningServer(
        tmp_path, stub.url, allowed_origins=("https://Chat.Example:443", "http://[fd00::1]:3000")
    ) as server:
        api = server.api()
        for origin, host in (
            ("https://chat.example", "chat.example"),
            ("http://[fd00::1]:3000", "[fd00::1]:9000"),
        ):
            response = api.http.get("/health", headers={"Origin": origin, "Host": host})
            assert response.headers["access-control-allow-origin"] == origin
        assert (
            error_of(api.http.get("/health", headers={"Origin": "https://other.example"}))[0] == 403
        )


def test_every_request_needs_a_key_if_keys_are_set(tmp_path: Path, stub: StubServer) -> None:
    with RunningServer(tmp_path, stub.url, api_keys=("first", "second")) as server:
        api = server.api()
        for headers in (
            {},
            {"Authorization": "Bearer"},
            {"Authorization": "Bearer firs"},
            {"Authorization": "Bearer first,second"},
            {"Authorization": "Bearer FIRST"},
            {"Authorization": "Bearer third"},
            {"Authorization": "Basic first"},
            {"Authorization": "first"},
        ):
            response = api.http.get("/health", headers=headers)
            assert error_of(response) == (401, "UNAUTHORIZED")
            assert response.headers["www-authenticate"] == "Bearer"
        assert error_of(api.http.get("/health", headers={"X-API-Key": "third"})) == (
            401,
            "UNAUTHORIZED",
        )
        for key in ("first", "second"):
            assert (
                api.http.get("/health", headers={"Authorization": f"bearer {key}"}).status_code
                == 200
            )
            assert api.http.get("/health", headers={"X-API-Key": key}).status_code == 200
        preflight = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"}
        assert api.http.options("/sessions", headers=preflight).status_code == 200


def test_key_in_query_is_ignored(tmp_path: Path, stub: StubServer) -> None:
    with RunningServer(tmp_path, stub.url, api_keys=("first",)) as server:
        assert error_of(server.api().http.get("/health?api_key=first"))[0] == 401
        for path in ("/openapi.json", "/nothing", "/models/test"):
            assert error_of(httpx.get(server.url + path))[0] == 401


def test_disconnect_during_body_is_harmless(api: Api, server: RunningServer) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(
            b"POST /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b'Content-Length: 100\r\n\r\n{"model":'
        )
    assert api.http.get("/health").status_code == 200


def test_upgrade_header_is_ignored_and_body_is_read(api: Api) -> None:
    upgrade = {
        "Connection": "Upgrade, HTTP2-Settings",
        "Upgrade": "h2c",
        "HTTP2-Settings": "AAMAAABkAAQAoAAA",
    }
    session_id = api.http.post("/sessions", json={"model": "mochi"}, headers=upgrade).json()[
        "session_id"
    ]
    for text in ("first", "second"):
        assert (
            api.http.post(
                f"/chat/{session_id}", json={"message": text}, headers=upgrade
            ).status_code
            == 200
        )
    assert [message["content"] for message in api.messages(session_id)][::2] == ["first", "second"]
