"""HTML pages of the server: no other site may frame them, and browsers must not guess types."""

import pytest
from fastapi.routing import APIRoute

from tests.support.api import Api
from tests.support.openapi import routes
from tests.support.server import RunningServer


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("page", ["/docs", "/redoc"])
def test_pages_forbid_framing(api: Api, server: RunningServer, page: str, method: str) -> None:
    response = api.http.request(method, server.url + page)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    assert response.headers["content-security-policy"] == "frame-ancestors 'none'"
    assert response.headers["x-content-type-options"] == "nosniff"


def test_unknown_pages_are_not_html(api: Api, server: RunningServer) -> None:
    for path in ("/docs/assets/none.html", "/none.html"):
        response = api.http.get(server.url + path, headers={"Accept": "text/html"})
        assert response.headers["content-type"] == "application/json", path


@pytest.mark.one_process("reads the app's routes")
def test_no_other_route_serves_html(api: Api, server: RunningServer) -> None:
    for path in sorted({route.path for route in routes() if route.method == "GET" and "{" not in route.path}):
        response = api.http.get(server.url + path, headers={"Accept": "text/html"})
        assert not response.headers["content-type"].startswith("text/html"), path
    assert not any(isinstance(r, APIRoute) and "html" in str(r.response_class) for r in server.app.routes)
