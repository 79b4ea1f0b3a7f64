"""The app of one server: its routes, its document, and requests that it rejects."""

import hmac
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

import httpx
from fastapi.routing import APIRoute

from mochi_server.services.keys import KeyRing, hash_of
from mochi_server.web.middleware import check_requests, key_check
from mochi_stub import StubServer
from tests.support.api import Api
from tests.support.openapi import routes
from tests.support.server import RunningServer


def test_server_answers_while_it_makes_its_openapi_document(
    tmp_path: Path, stub: StubServer
) -> None:
    with RunningServer(tmp_path, stub.url) as server, ThreadPoolExecutor() as pool:
        begun, answered = Event(), Event()

        def openapi() -> dict[str, Any]:
            begun.set()
            assert answered.wait(60)
            return {"openapi": "3.1.0"}

        server.app.openapi = openapi  # type: ignore[method-assign]
        server.app.root_path = "/chat"
        document = pool.submit(httpx.get, f"{server.url}/chat/openapi.json", timeout=60)
        assert begun.wait(60)
        assert httpx.get(f"{server.url}/health/live").status_code == 200
        answered.set()
        assert document.result().json() == {"openapi": "3.1.0", "servers": [{"url": "/chat"}]}


def test_no_other_route_serves_html(api: Api, server: RunningServer) -> None:
    for path in sorted(
        {route.path for route in routes() if route.method == "GET" and "{" not in route.path}
        - {"/api/v1/mcp/callback"}  # browsers open it
    ):
        response = api.http.get(server.url + path, headers={"Accept": "text/html"})
        assert not response.headers["content-type"].startswith("text/html"), path
    assert not any(
        isinstance(r, APIRoute) and "html" in str(r.response_class) for r in server.app.routes
    )


def test_path_prefix_of_a_proxy_is_ignored(tmp_path: Path, stub: StubServer) -> None:
    with RunningServer(tmp_path, stub.url, api_keys=("first",)) as server:
        server.app.root_path = "/chat"  # as uvicorn's option --root-path
        assert httpx.get(f"{server.url}/chat/health/live").status_code == 200
        assert httpx.get(f"{server.url}/chat/docs").status_code == 200
        assert httpx.get(f"{server.url}/chat/health").status_code == 401
        assert (
            httpx.get(f"{server.url}/chat/v1/models").json()["error"]["code"] == "invalid_api_key"
        )


@contextmanager
def counted_calls(function: Callable[..., Any]) -> Iterator[list[None]]:
    """Count the calls of a function that is written in C, by this thread.

    The length of the list is their number.
    """
    counted: list[None] = []

    def profile(_: FrameType, event: str, called: object) -> None:
        if event == "c_call" and called is function:
            counted.append(None)

    before = sys.getprofile()
    sys.setprofile(profile)
    yield counted
    sys.setprofile(before)


async def test_every_key_is_compared_in_constant_time() -> None:
    keys = KeyRing(("first", "a much longer second one"))
    guard = check_requests(_app, [key_check(lambda: keys, insecure=False)])
    for given in ("first", "a much longer second one", "x", "none of them, and longer than all"):
        headers = [(b"authorization", f"Bearer {given}".encode())]
        with counted_calls(hmac.compare_digest) as compared:
            await guard(
                {"type": "http", "method": "GET", "path": "/health", "headers": headers},
                _receive,
                _send,
            )
        assert len(compared) == 2
        assert len(hash_of(given.encode())) == len(hash_of(b""))  # what is compared


async def _app(scope: object, receive: object, send: object) -> None: ...


async def _receive() -> dict[str, object]:
    return {"type": "http.disconnect"}


async def _send(message: object) -> None: ...


def test_connect_method_is_refused(server: RunningServer) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"CONNECT x:80 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 400")
