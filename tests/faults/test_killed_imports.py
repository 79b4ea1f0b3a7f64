"""A server that ends during an import has stored all of its sessions or none."""

import signal
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import anyio
import httpx
import orjson
import pytest

from mochi_stub import StubServer
from tests.support.process import Command

pytestmark = pytest.mark.slow

SESSION = {"metadata": {"model": "mochi"}, "messages": [{"role": "user", "content": "Hello"}]}
COUNT = 3000


async def wait_for_staged_files(sessions_dir: Path, response: "Future[httpx.Response]") -> None:
    """Wait until the import has begun to write files."""
    with anyio.fail_after(30):
        while not list(sessions_dir.glob(".import-*/*")) and not response.done():  # noqa: ASYNC110 - another process writes them
            await anyio.sleep(0.001)


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
async def test_ended_server_has_imported_all_or_nothing(
    tmp_path: Path, private_stub: StubServer, sig: signal.Signals
) -> None:
    environment = {"MOCHI_OLLAMA_HOST": private_stub.url, "MOCHI_PORT": "0"}
    with ThreadPoolExecutor(1) as threads:
        with Command("mochi_server", cwd=tmp_path, **environment) as command:
            content = orjson.dumps([SESSION] * COUNT)
            headers = {"Content-Type": "application/json"}
            api = command.api(timeout=60)
            response = threads.submit(
                api.http.post, "/sessions/import", content=content, headers=headers
            )
            await wait_for_staged_files(tmp_path / "chat_sessions", response)
            command.process.send_signal(sig)
            command.process.wait(60)
        if sig is signal.SIGTERM:
            assert response.result().status_code in (201, 503)
    with Command("mochi_server", cwd=tmp_path, **environment) as command:
        page = command.api(timeout=60).http.get("/sessions").json()
        assert len(page["sessions"]) in (0, COUNT)
        assert not list((tmp_path / "chat_sessions").glob(".import-*"))
