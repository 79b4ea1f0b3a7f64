"""Keep-alive of the command: longer than the timeouts of proxies and clients that reuse
connections.
"""

import time
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from mochi_server import MochiServerSettings
from mochi_server.cli.server import uvicorn_config
from tests.faults.raw_client import RawClient
from tests.support.process import Command, run

DEFAULT_SECONDS = 75
LIVE = b"GET /api/v1/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_idle_connections_stay_open_for_75_seconds() -> None:
    assert uvicorn_config(FastAPI(), MochiServerSettings()).timeout_keep_alive == DEFAULT_SECONDS


def test_invalid_keep_alive_is_reported(tmp_path: Path) -> None:
    code, text = run("mochi_server", cwd=tmp_path, MOCHI_KEEP_ALIVE_SECONDS="0")
    assert (code, "MOCHI_KEEP_ALIVE_SECONDS" in text) == (2, True)


@pytest.mark.slow
def test_command_honours_the_setting(tmp_path: Path) -> None:
    settings = {"MOCHI_KEEP_ALIVE_SECONDS": "1"}
    with Command("mochi_server", "--test-mode", "--port", "0", cwd=tmp_path, **settings) as command:
        url = httpx.URL(str(command.api().http.base_url))
        with RawClient((url.host, url.port or 0)) as client:
            client.send(LIVE)
            client.read_until(b'{"status":"alive"}')
            idle_since = time.monotonic()
            client.send(b"\r\n")  # no request
            assert client.read(1) == b""
            assert 0.9 < time.monotonic() - idle_since < DEFAULT_SECONDS
