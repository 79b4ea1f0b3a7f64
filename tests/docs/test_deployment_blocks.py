"""The configurations for nginx, Caddy, systemd and Docker Compose, checked with these programs.

The proxies run in front of a real server.
"""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from mochi_server import MochiServerSettings
from tests.docs_tooling import proxies
from tests.docs_tooling.pages import ROOT, blocks
from tests.docs_tooling.proxies import SITE, Proxy, needed, replaced
from tests.support.holding import GatedStub
from tests.support.process import Command
from tests.support.waiting import until

pytestmark = pytest.mark.slow

HOW_TO = ROOT / "docs" / "how-to"
PROXY_PAGE = HOW_TO / "behind-a-proxy.md"
SCALE_PAGE = ROOT / "docs" / "scale.md"
KEY = "YOUR_KEY"
MAX_BODY_BYTES: int = MochiServerSettings.model_fields["max_body_bytes"].default
IDLE_SECONDS: int = MochiServerSettings.model_fields["keep_alive_seconds"].default
CADDY_IDLE_SECONDS = 120
"""Time after which Caddy closes an idle connection to a server by default."""


def only_block(page: Path, language: str, containing: str = "") -> str:
    """Return the only block of a page that has this language and contains this text."""
    (text,) = [
        block.text
        for block in blocks(page)
        if block.language == language and containing in block.text
    ]
    return text


def services(page: Path) -> dict[str, Any]:
    """Return the services of the Compose file on a page."""
    found: dict[str, Any] = yaml.safe_load(only_block(page, "yaml", "services:"))["services"]
    return found


@dataclass(frozen=True)
class Site:
    """A server behind a proxy."""

    proxy: Proxy
    server: Command
    model: GatedStub

    def curl(self, path: str, *arguments: str | Path) -> int:
        """Return the status of a response."""
        command = [
            "curl",
            "-o",
            os.devnull,
            "-w",
            "%{http_code}",
            "-H",
            f"Authorization: Bearer {KEY}",
        ]
        command += [*map(str, arguments), self.proxy.url + path]
        done = subprocess.run(
            command, env=self.proxy.environment, capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    def upload(self, directory: Path, size: int) -> int:
        """Return the status of the response to a body of this size, with an unknown field."""
        body = directory / "body.json"
        body.write_text('{"x": "'.ljust(size - 2, "x") + '"}')
        return self.curl(
            "/api/v1/sessions", "-H", "Content-Type: application/json", "--data-binary", f"@{body}"
        )

    @contextmanager
    def stream(self, output: Path) -> "Iterator[subprocess.Popen[bytes]]":
        """Check streaming with the commands of the page, and write the stream to a file.

        The model pauses after "three". The context begins when the client has received this word.
        """
        script = only_block(PROXY_PAGE, "bash", "curl -N")
        for old, new in (
            (f"https://{SITE}", self.proxy.url),
            ("qwen3:8b", "mochi"),
            ("Hello!", "hold"),
        ):
            script = replaced(script, old, new)
        self.model.reset()
        with output.open("wb") as file:
            client = subprocess.Popen(
                ["bash", "-euc", script], env=self.proxy.environment, stdout=file
            )
        try:
            until(lambda: "three" in output.read_text() or client.poll() is not None)
            assert "three" in output.read_text(), self.proxy.log
            yield client
        finally:
            client.kill()
            client.wait()


PROXIES = {
    "nginx": partial(proxies.nginx, only_block(PROXY_PAGE, "nginx")),
    "caddy": partial(proxies.caddy, only_block(PROXY_PAGE, "caddyfile")),
    "balancer": partial(proxies.caddy_command, services(SCALE_PAGE)["balancer"]["command"]),
}


@contextmanager
def running_site(directory: Path, start: Callable[[Path, str], Proxy]) -> Iterator[Site]:
    """A server behind a proxy that `start` creates from a directory and the address of the
    server.
    """
    settings = {
        "MOCHI_API_KEYS": KEY,
        "MOCHI_ALLOWED_ORIGINS": f"https://{SITE}",
        "MOCHI_LOG_FORMAT": "json",
    }
    model = GatedStub()
    with (
        model.stub,
        Command(
            "mochi_server",
            "--port",
            "0",
            "--ollama-host",
            model.stub.url,
            cwd=directory,
            **settings,
        ) as server,
        server.api() as api,
        start(directory, f"127.0.0.1:{api.http.base_url.port}") as proxy,
    ):
        yield Site(proxy, server, model)
        model.reset()


@pytest.fixture(scope="module", params=PROXIES)
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp(request.param), PROXIES[request.param]) as running:
        yield running


def test_events_arrive_while_the_answer_is_generated(site: Site, tmp_path: Path) -> None:
    output = tmp_path / "stream"
    with site.stream(output) as client:
        assert "four" not in output.read_text()
        site.model.gate.open()
        assert client.wait(60) == 0
    assert "four" in output.read_text()
    assert "event: done" in output.read_text()


def test_disconnect_of_the_client_cancels_the_turn(site: Site, tmp_path: Path) -> None:
    with site.stream(tmp_path / "stream") as client:
        client.kill()
        assert site.model.chats("cancelled")


def test_server_accepts_the_site_and_no_other_origin(site: Site) -> None:
    assert site.curl("/api/v1/sessions", "-H", f"Origin: https://{SITE}") == 200
    assert site.curl("/api/v1/sessions", "-H", "Origin: https://other.example") == 403


@pytest.mark.parametrize("site", ["nginx", "caddy"], indirect=True)
def test_server_logs_the_address_of_the_client(site: Site) -> None:
    forged = ["-H", "X-Forwarded-For: 192.0.2.1", "-H", "X-Request-ID: mine"]
    assert site.curl("/api/v1/sessions", "--interface", "127.0.0.2", *forged) == 200
    assert json.loads(site.server.read_until('"mine"'))["client"] == "127.0.0.2"


def test_proxy_accepts_the_largest_body_that_the_server_accepts(site: Site, tmp_path: Path) -> None:
    assert site.upload(tmp_path, MAX_BODY_BYTES) == 422


@pytest.mark.parametrize("site", ["nginx"], indirect=True)
def test_nginx_refuses_larger_bodies(site: Site, tmp_path: Path) -> None:
    assert site.upload(tmp_path, MAX_BODY_BYTES + 1) == 413
    assert "client intended to send too large body" in site.proxy.log


def test_nginx_limits_the_requests_of_a_client(tmp_path: Path) -> None:
    block = replaced(
        only_block(PROXY_PAGE, "nginx"), "limit_conn clients 100;", "limit_conn clients 1;"
    )
    with running_site(tmp_path, partial(proxies.nginx, block)) as site:
        with site.stream(tmp_path / "stream"):
            assert site.curl("/api/v1/sessions") == 429
            assert site.curl("/api/v1/sessions", "--interface", "127.0.0.2") == 200
        until(lambda: site.curl("/api/v1/sessions") == 200)


def test_caddyfile_is_formatted() -> None:
    block = only_block(PROXY_PAGE, "caddyfile")
    assert output_of(needed("caddy"), "fmt", "-", text=block) == block


def test_caddy_closes_idle_connections_before_the_server(tmp_path: Path) -> None:
    file = tmp_path / "Caddyfile"
    file.write_text(only_block(PROXY_PAGE, "caddyfile"))
    adapted = output_of(needed("caddy"), "adapt", "--config", str(file))
    (idle,) = re.findall(r'"idle_timeout":(\d+)', adapted)
    assert int(idle) / 1e9 < IDLE_SECONDS
    balanced = services(SCALE_PAGE)["mochi"]["environment"]
    assert balanced["MOCHI_KEEP_ALIVE_SECONDS"] > CADDY_IDLE_SECONDS


@pytest.mark.parametrize("page", [HOW_TO / "docker.md", SCALE_PAGE], ids=lambda page: page.stem)
def test_docker_compose_accepts_the_file_and_requires_its_secrets(page: Path) -> None:
    command = [needed("docker-compose"), "--project-directory", str(ROOT), "--file", "-", "config"]
    file = only_block(page, "yaml", "services:")
    secrets = {"MOCHI_API_KEYS": "key", "POSTGRES_PASSWORD": "password"}
    found = yaml.safe_load(output_of(*command, text=file, **secrets))
    assert Path(found["services"]["mochi"]["build"]["context"]) == ROOT
    assert found["services"].keys() == services(page).keys()
    refused = subprocess.run(command, input=file, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "set a " in refused.stderr


def output_of(*command: str, text: str = "", **environment: str) -> str:
    """Return what a successful command prints."""
    done = subprocess.run(
        command,
        input=text,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
