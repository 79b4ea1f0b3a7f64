"""Health checks: liveness and readiness without an API key."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mochi_stub import StubServer
from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.server import RunningServer


def test_server_is_ready_without_ollama(tmp_path: Path) -> None:
    with RunningServer(tmp_path, "http://127.0.0.1:9") as server:
        api = server.api()
        assert api.ok(api.http.get("/health/live")) == {"status": "alive"}
        assert api.ok(api.http.get("/health/ready")) == {"status": "ready"}
        assert api.ok(api.http.get("/health"))["ollama_connected"] is False


def test_readiness_check_leaves_no_files(private_api: Api, tmp_path: Path) -> None:
    private_api.ok(private_api.http.get("/health/ready"))
    before = sorted(tmp_path.rglob("*"))
    private_api.ok(private_api.http.get("/health/ready"))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture(scope="module")
def server_with_keys(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    with RunningServer(
        tmp_path_factory.mktemp("keys"), shared_stub.url, api_keys=("key",)
    ) as server:
        yield server


@cases("path", ["/health/live", "/health/ready"])
def test_health_of_server_with_keys_needs_no_key(
    server_with_keys: RunningServer, path: str
) -> None:
    api, url = server_with_keys.client, server_with_keys.url
    assert set(api.ok(api.http.get(path))) == {"status"}
    assert set(api.ok(api.http.get(f"{url}{path}"))) == {"status"}
    assert api.http.get(f"{url}/health").status_code == 401
    for nearly in (path.upper(), f"{path}/x", "/health"):
        assert api.http.get(nearly).status_code == 401
    assert api.http.post(path).status_code == 401
    assert error_of(api.http.get(path, headers={"Origin": "https://foreign.example"}))[0] == 403
