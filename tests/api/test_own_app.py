"""The app inside another app: mounted under a prefix, with its lifespan and the other app's check
of access.
"""

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from mochi_server import create_app
from mochi_server.ollama import AsyncOllamaClient
from mochi_server.protocols.openai_chat import routes as openai_chat
from mochi_server.routers import sessions
from mochi_stub import StubServer
from tests.support.instructions import instruct, words
from tests.support.ports import free_port
from tests.support.waiting import until


class LoggedIn:
    """Middleware of the other app that checks access."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (b"x-user", b"me") not in scope["headers"]:
            await PlainTextResponse("Log in first.", 401)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def outer_app(first: Path, second: Path, ollama_host: str) -> FastAPI:
    """Return an app with two servers under prefixes, and routers without a server."""
    one, two = (
        create_app(data_dir=str(path), ollama_host=ollama_host, insecure=True)
        for path in (first, second)
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with one.router.lifespan_context(one), two.router.lifespan_context(two):
            yield

    app = FastAPI(lifespan=lifespan)
    app.state.services = "those of the other app"
    app.add_middleware(LoggedIn)
    app.mount("/one", one)
    app.mount("/two", two)
    for router in (sessions.router, openai_chat.router):
        app.include_router(router, prefix="/alone")
    return app


@pytest.fixture(scope="module")
def url(shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data_dir = tmp_path_factory.mktemp("own")
    app = outer_app(data_dir / "one", data_dir / "two", shared_stub.url)
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(app, port=port, log_config=None, timeout_graceful_shutdown=5)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


def test_two_servers_in_one_app(url: str) -> None:
    with httpx.Client(base_url=url, headers={"X-User": "me"}) as client:
        assert httpx.get(f"{url}/one/api/v1/sessions").text == "Log in first."
        created = client.post("/one/api/v1/sessions", json={"model": "mochi"}).json()
        body = {"message": instruct(words(3))}
        stream = client.post(f"/one/api/v1/chat/{created['session_id']}/stream", json=body).text
        assert "event: message_complete" in stream
        assert len(client.get("/one/api/v1/sessions").json()["sessions"]) == 1
        assert client.get("/two/api/v1/sessions").json()["sessions"] == []
        assert client.get("/one/docs").status_code == 200
        missing = client.get("/one/nothing").json()["error"]["message"]
        assert missing == "There is no route '/one/nothing'. /one/openapi.json lists all routes."


@pytest.mark.parametrize("path", ["/alone/sessions", "/alone/chat/completions"])
def test_router_alone_says_what_is_missing(
    url: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    method = "GET" if path.endswith("sessions") else "POST"
    body = {"model": "mochi", "messages": [{"role": "user", "content": "Hi"}]}
    response = httpx.request(method, url + path, headers={"X-User": "me"}, json=body)
    assert response.status_code == 500
    reason = (
        "This app has no services of mochi-server. A router works only in the app of create_app()"
    )
    until(lambda: reason in caplog.text)  # the error is logged after the response


async def test_client_of_ollama_is_a_context_manager(stub: StubServer) -> None:
    async with AsyncOllamaClient(stub.url) as client:
        assert await client.list_models()
