"""HTML pages of the server: no other site may frame them, and browsers must not guess types."""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import httpx
from pydantic import BaseModel, GetJsonSchemaHandler

from mochi_server import __version__, create_app
from mochi_stub import StubServer
from tests.support.api import Api
from tests.support.cases import cases
from tests.support.server import RunningServer


@cases("method", ["GET", "HEAD"])
def test_docs_forbid_framing(api: Api, server: RunningServer, method: str) -> None:
    response = api.http.request(method, f"{server.url}/docs")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    assert response.headers["content-security-policy"] == "frame-ancestors 'none'"
    assert response.headers["x-content-type-options"] == "nosniff"


def test_page_after_an_authorization_forbids_framing(api: Api) -> None:
    response = api.http.get("/mcp/callback", params={"state": "x", "code": "y"})
    assert response.headers["content-type"].startswith("text/html")
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
    assert response.headers["x-content-type-options"] == "nosniff"


def test_entry_page_links_to_the_api(api: Api, server: RunningServer) -> None:
    content = api.ok(api.http.get(server.url))
    assert (content["name"], content["version"]) == ("mochi-server", __version__)
    assert set(content["links"].values()) == {"/docs", "/openapi.json", "/api/v1", "/api/v1/health"}
    assert {api.http.get(server.url + path).status_code for path in content["links"].values()} == {
        200
    }
    response = api.http.get(server.url, headers={"Accept": "text/html,application/xhtml+xml;q=0.9"})
    assert (response.status_code, response.headers["location"]) == (307, "/docs")


def test_docs_open_without_key(tmp_path: Path, stub: StubServer) -> None:
    with RunningServer(tmp_path, stub.url, api_keys=("key",)) as server:
        opened = {path: httpx.get(server.url + path) for path in ("/", "/docs", "/openapi.json")}
        assets = re.findall(r'(?:src|href)="(/docs/assets/[^"]+)', opened["/docs"].text)
        assert [httpx.get(server.url + path).status_code for path in assets] == [200, 200, 200]
    assert {path: response.status_code for path, response in opened.items()} == {
        "/": 200,
        "/docs": 200,
        "/openapi.json": 401,
    }


def test_unknown_pages_are_not_html(api: Api, server: RunningServer) -> None:
    for path in ("/docs/assets/none.html", "/none.html"):
        response = api.http.get(server.url + path, headers={"Accept": "text/html"})
        assert response.headers["content-type"] == "application/json", path


def test_simultaneous_requests_make_one_openapi_document(tmp_path: Path) -> None:
    together = Barrier(2)

    class Slow(BaseModel):
        """A model whose schema is made when another thread makes it too, or after 0.2 s."""

        @classmethod
        def __get_pydantic_json_schema__(
            cls, schema: Any, handler: GetJsonSchemaHandler
        ) -> dict[str, Any]:
            with suppress(BrokenBarrierError):
                together.wait(0.2)
            return handler(schema)

    app = create_app(data_dir=str(tmp_path))
    app.router.routes.clear()  # their schemas take longer than most tests
    app.add_api_route("/slow", Slow, response_model=Slow)
    with ThreadPoolExecutor() as pool:
        first, second = pool.map(lambda _: app.openapi(), range(2))
    assert first is second
    assert "/slow" in first["paths"]
