"""Server behind a path prefix: the pages, their links and the API."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mochi_server.testing import ThreadedServer
from mochi_stub import StubServer

FORWARDED = {"X-Forwarded-Prefix": "/proxied"}


def get(url: str, headers: dict[str, str]) -> httpx.Response:
    return httpx.get(url, headers=headers, timeout=60)


@pytest.fixture(scope="module")
def url(stub: StubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("data")
    settings = {"data_dir": str(folder), "ollama_host": stub.url, "root_path": "/mochi"}
    with ThreadedServer(**settings) as server:
        yield server.url


@pytest.mark.parametrize(
    ("headers", "prefix"), [({}, "/mochi"), (FORWARDED, "/proxied")], ids=["setting", "header"]
)
def test_docs_and_links_have_the_prefix(url: str, headers: dict[str, str], prefix: str) -> None:
    page = get(f"{url}/docs", headers=headers).text
    assets = re.findall(r'(?:src|href)="([^"]*/docs/assets/[^"]*)"', page)
    assert len(assets) >= 3
    for asset in assets:
        assert asset.startswith(prefix)
        assert get(url + asset.removeprefix(prefix), headers=headers).status_code == 200
    assert f'"{prefix}/openapi.json"' in page
    document = get(f"{url}/openapi.json", headers=headers).json()
    assert document["servers"] == [{"url": prefix}]
    links = get(f"{url}/", headers=headers).json()["links"]
    assert links["docs"] == f"{prefix}/docs"
    assert get(f"{url}/api/v1/health", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("headers", "prefix"), [({}, "/mochi"), (FORWARDED, "/proxied")], ids=["setting", "header"]
)
def test_links_work_if_a_proxy_keeps_the_prefix(
    url: str, headers: dict[str, str], prefix: str
) -> None:
    links = get(url + prefix, headers=headers).json()["links"]
    assert links["docs"] == f"{prefix}/docs"
    for link in (links["docs"], links["openapi"], links["health"], f"{prefix}/v1/models"):
        assert get(url + link, headers=headers).status_code == 200


def test_prefix_can_begin_as_a_route_does(stub: StubServer, tmp_path: Path) -> None:
    with ThreadedServer(data_dir=str(tmp_path), ollama_host=stub.url, root_path="/api") as server:
        for path in ("/api/v1/health", "/api/api/v1/health", "/docs", "/api/docs"):
            assert get(f"{server.url}{path}", headers={}).status_code == 200


@pytest.mark.parametrize("trusted", ["10.0.0.1", ""])
def test_prefix_of_an_untrusted_address_has_no_effect(
    stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: str
) -> None:
    monkeypatch.setitem(os.environ, "FORWARDED_ALLOW_IPS", trusted)
    with ThreadedServer(data_dir=str(tmp_path), ollama_host=stub.url) as server:
        links = get(f"{server.url}/", headers=FORWARDED).json()["links"]
    assert links["docs"] == "/docs"


def test_prefix_that_is_no_path_has_no_effect(url: str) -> None:
    links = get(f"{url}/", headers={"X-Forwarded-Prefix": "//evil.example"}).json()["links"]
    assert links["docs"] == "/mochi/docs"
