"""Names that lead out of a directory and ambiguous request heads: each is refused, and no file is
touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

import pytest

from mochi_server.services.system_prompts import is_prompt_name
from mochi_stub import StubServer
from tests.support.agents import write_agent
from tests.support.api import Api, error_of
from tests.support.attacks import (
    CANARY,
    DECOMPOSED,
    NAMES,
    NAMES_OF_EACH_KIND,
    SEGMENTS,
    SEGMENTS_OF_EACH_KIND,
    FilesOutside,
)
from tests.support.cases import cases
from tests.support.raw_http import send_request, send_requests
from tests.support.server import RunningServer

if TYPE_CHECKING:
    from tests.support.openapi import Route


@pytest.fixture(scope="module")
def shared_outside(tmp_path_factory: pytest.TempPathFactory) -> FilesOutside:
    """The data directory of the shared server, and files around it. Tests take `outside`."""
    return FilesOutside(tmp_path_factory.mktemp("attacks"))


@pytest.fixture(scope="module")
def shared_stub() -> Iterator[StubServer]:
    with StubServer(speed=0) as stub:
        yield stub


@pytest.fixture(scope="module")
def shared_server(shared_stub: StubServer, shared_outside: FilesOutside) -> Iterator[RunningServer]:
    with RunningServer(shared_outside.data, shared_stub.url, summarization_enabled=False) as server:
        yield server


@pytest.fixture
def outside(shared_outside: FilesOutside) -> FilesOutside:
    """The files around the data directory of `server`."""
    return shared_outside


@pytest.fixture
def private_outside(tmp_path: Path) -> FilesOutside:
    """The files around the data directory of `private_server`."""
    return FilesOutside(tmp_path)


@pytest.fixture
def private_server(
    private_stub: StubServer, private_outside: FilesOutside
) -> Iterator[RunningServer]:
    """A server for one test."""
    with RunningServer(private_outside.data, private_stub.url) as server:
        yield server


@pytest.fixture(scope="module")
def session_id(shared_server: RunningServer) -> str:
    """A session that the tests do not change."""
    return str(shared_server.client.create_session("mochi")["session_id"])


def request_of(route: Route, segment: str) -> bytes:
    """Return a request whose path has this segment in the place of every parameter."""
    path = re.sub(r"\{\w+\}", lambda _: segment, route.path)
    body = b"" if route.body is None else json.dumps(route.body).encode()
    head = f"{route.method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Content-Type: application/json\r\n\r\n" + body


def routes_with_names() -> list[Route]:
    from tests.support.openapi import routes

    return [route for route in routes() if "{" in route.path]


def assert_refused(server: RunningServer, route: Route, segments: list[str]) -> None:
    answers = send_requests(server.url, (request_of(route, segment) for segment in segments))
    for segment, answer in zip(segments, answers, strict=True):
        assert 400 <= answer.status < 500, (str(route), segment)
        assert answer.error, (str(route), segment)
        assert CANARY.encode() not in answer.body, (str(route), segment)


def test_no_name_in_path_leaves_data_directory(
    server: RunningServer, outside: FilesOutside
) -> None:
    """Send names of each kind to one route of each parameter, and two of them to all other
    routes.
    """
    attacked: set[str] = set()
    for route in routes_with_names():
        parameters = set(re.findall(r"\{\w+\}", route.path))
        is_first = not parameters <= attacked
        assert_refused(
            server, route, SEGMENTS_OF_EACH_KIND if is_first else SEGMENTS_OF_EACH_KIND[:3:2]
        )
        attacked |= parameters
    assert outside.is_untouched()


@pytest.mark.nightly
def test_no_name_of_many_in_path_leaves_data_directory(
    server: RunningServer, outside: FilesOutside
) -> None:
    for route in routes_with_names():
        assert_refused(server, route, SEGMENTS)
    assert outside.is_untouched()


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(NAMES_OF_EACH_KIND, id="of each kind"),
        pytest.param(NAMES, id="all", marks=pytest.mark.nightly),
    ],
)
def test_no_name_in_body_leaves_data_directory(
    api: Api, server: RunningServer, outside: FilesOutside, names: list[str]
) -> None:
    from tests.support.openapi import routes

    for route in routes():
        for field in route.fields:
            session_id = api.create_session("mochi-long")["session_id"]
            values = {
                "session_id": session_id,
                "message_index": "0",
                "filename": "none.md",
                "name": "none",
            }
            url = server.url + route.path.format_map(values)
            for name in names:
                response = api.http.request(
                    route.method, url, json={**(route.body or {}), field: name}
                )
                assert response.status_code < 500, (str(route), field, name)
                assert CANARY not in response.text, (str(route), field, name)
    assert outside.is_untouched()


def test_unsafe_prompt_file_names_are_refused(
    api: Api, outside: FilesOutside, session_id: str
) -> None:
    # A decomposed name can be that of a file from macOS, but a client cannot create it.
    assert [name for name in NAMES if is_prompt_name(name)] == [DECOMPOSED]
    before = list(outside.data.glob("system_prompts/*"))
    for name in NAMES_OF_EACH_KIND:
        response = api.http.post("/system-prompts", json={"filename": name, "content": "x"})
        assert error_of(response) == (422, "VALIDATION_ERROR")
        session = {"model": "mochi", "system_prompt_source_file": name}
        assert error_of(api.http.post("/sessions", json=session)) == (404, "PROMPT_NOT_FOUND")
        response = api.http.put(f"/sessions/{session_id}/system-prompt", json={"source_file": name})
        assert error_of(response) == (404, "PROMPT_NOT_FOUND")
    assert outside.is_untouched()
    assert list(outside.data.glob("system_prompts/*")) == before


def test_names_in_other_scripts_are_accepted(api: Api) -> None:
    for name in ("été.md", "日本語.txt", "Привет мир.md", "a.b.md"):
        api.ok(api.http.post("/system-prompts", json={"filename": name, "content": "x"}), 201)
        assert api.ok(api.http.get(f"/system-prompts/{name}"))["filename"] == name


def test_symlinks_to_other_prompts_are_not_followed(
    private_api: Api, private_outside: FilesOutside
) -> None:
    prompts = private_outside.data / "system_prompts"
    prompts.mkdir()
    (prompts / "link.md").symlink_to(private_outside.root / "canary.md")
    (prompts / "dangling.md").symlink_to(private_outside.root / "new.md")
    assert private_api.ok(private_api.http.get("/system-prompts")) == {"prompts": []}
    for name in ("link.md", "dangling.md"):
        assert error_of(private_api.http.get(f"/system-prompts/{name}"))[0] == 404
        assert (
            error_of(private_api.http.put(f"/system-prompts/{name}", json={"content": "x"}))[0]
            == 404
        )
        assert error_of(private_api.http.delete(f"/system-prompts/{name}"))[0] == 404
        private_api.http.post("/system-prompts", json={"filename": name, "content": "x"})
    assert private_outside.is_untouched()


@cases("linked", ["__init__.py", "helper.py", "package"])
def test_symlinks_to_other_tools_are_not_followed(
    private_api: Api, private_outside: FilesOutside, linked: str
) -> None:
    elsewhere = private_outside.root / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    code = f"def canary() -> str:\n    'Sing.'\n    return '{CANARY}'\n__all__ = ['canary']\n"
    for name in ("__init__.py", "helper.py"):
        (elsewhere / name).write_text(code)
    tools = private_outside.data / "tools"
    rmtree(tools, ignore_errors=True)
    tools.mkdir()
    if linked != "__init__.py":
        module = linked.removesuffix(".py")
        (tools / "__init__.py").write_text(f"from .{module} import canary\n__all__ = ['canary']\n")
    (tools / linked).symlink_to(elsewhere if linked == "package" else elsewhere / linked)

    listed = private_api.ok(private_api.http.post("/tools/reload"))
    assert listed["tools"] == {}
    assert "a link that leads out" in str(listed)
    assert str(private_outside.root) not in str(listed)


def test_symlinks_to_other_agents_are_not_followed(
    private_api: Api, private_outside: FilesOutside
) -> None:
    for agent, linked in (("one", "SKILL.md"), ("two", "__init__.py"), ("three", "three.py")):
        file = write_agent(private_outside.data, agent) / linked
        file.rename(private_outside.root / f"{agent}-{linked}")
        file.symlink_to(private_outside.root / f"{agent}-{linked}")

    agents = private_api.ok(private_api.http.post("/agents/reload"))["agents"]
    assert set(agents) == {"one", "two", "three"}
    for agent in agents.values():
        assert not agent["valid"]
        assert "a link that leads out" in agent["error_message"]
        assert str(private_outside.root) not in agent["error_message"]


def test_tool_problem_names_file_without_its_path(
    private_api: Api, private_outside: FilesOutside
) -> None:
    tools = private_outside.data / "tools"
    tools.mkdir()
    (tools / "__init__.py").write_text("from .helper import missing\n__all__ = ['missing']\n")
    (tools / "helper.py").write_text("")
    listed = str(private_api.ok(private_api.http.get("/tools")))
    assert "helper.py" in listed
    assert str(private_outside.root) not in listed


HEALTH = b"GET /api/v1/health HTTP/1.1\r\n"
CHAT = b"POST /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@cases(
    ("request_bytes", "status"),
    [
        (HEALTH + b"\r\n", 400),
        (HEALTH + b"Host: localhost\r\nHost: localhost\r\n\r\n", 400),
        (HEALTH + b"Host: localhost\r\nHost: evil.example\r\n\r\n", 400),
        (
            HEALTH
            + b"Host: localhost\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
            400,
        ),
        (
            HEALTH
            + b"Host: localhost\r\nOrigin: http://localhost\r\nOrigin: https://evil.example\r\n\r\n",
            400,
        ),
        (HEALTH + b"Host: localhost\r\nX-Folded: one\r\n two\r\n\r\n", 400),
        (HEALTH + b"Host: localhost\r\nX-Bare: one\nX-Other: two\r\n\r\n", 400),
        (HEALTH + b"Host: localhost\r\nX-Nul: a\0b\r\n\r\n", 400),
        (HEALTH + b"Host: localhost\r\nX Space: a\r\n\r\n", 400),
        (HEALTH + b"Host : localhost\r\n\r\n", 400),
        (HEALTH + b"Host: localhost\r\nX-Long: " + b"x" * 70_000 + b"\r\n\r\n", 431),
        (HEALTH + b"Host: localhost\r\n" + b"X-Many: x\r\n" * 10_000 + b"\r\n", 431),
        (HEALTH + b"Host: localhost\r\nX-Endless: " + b"x" * 300_000, 431),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"GET /api/v1/health?" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (
            CHAT + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            400,
        ),
        (
            CHAT + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            400,
        ),
        (
            CHAT
            + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            400,
        ),
        (CHAT + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (CHAT + b"Content-Length: -1\r\n\r\n{}", 400),
        (CHAT + b"Content-Length: +2\r\n\r\n{}", 400),
        (CHAT + b"Content-Length: 0x2\r\n\r\n{}", 400),
        (CHAT + b"Content-Length: two\r\n\r\n{}", 400),
        (CHAT + b"Content-Length: \xb2\r\n\r\n{}", 400),
        (CHAT + b"Content-Length: 99999999999999999999999\r\n\r\n{}", 400),
        (CHAT + b"Content-Length: 9999999999\r\n\r\n{}", 413),
        (CHAT + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400),
        (b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /a b HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /a\0b HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    ],
    ids=lambda value: repr(value[:60]) if isinstance(value, bytes) else None,
)
def test_invalid_or_ambiguous_head_is_refused(
    server: RunningServer, request_bytes: bytes, status: int
) -> None:
    answer = send_request(server.url, request_bytes)
    assert answer.status == status
    assert answer.error in {"BAD_REQUEST", "HEADERS_TOO_LARGE", "BODY_TOO_LARGE"}
    assert answer.headers["x-request-id"]


@cases("query", [b"?a=%ff", b"?%zz=%", b"?a=\xff\xfe", b"?" + b"&" * 1000, b"?a=%00"])
def test_undecodable_query_is_harmless(server: RunningServer, query: bytes) -> None:
    answer = send_request(
        server.url, b"GET /api/v1/sessions" + query + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    assert answer.status in (200, 400, 422)
