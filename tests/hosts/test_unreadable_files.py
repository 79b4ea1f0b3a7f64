"""Files of hosts that are not regular files, or whose file system hangs."""

import os
import threading
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint

from mochi_server.config import HostAddress
from mochi_server.inference.gateway import ModelGateway
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_stub import StubServer
from tests.hosts.conftest import Start

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no FIFOs")


def _replace(file: Path, kind: str) -> None:
    file.unlink()
    if kind == "FIFO":
        os.mkfifo(file)
    elif kind == "directory":
        file.mkdir()
    elif kind == "device":
        file.symlink_to("/dev/zero")
    else:
        file.write_text("#" * 2_000_000)


@pytest.mark.parametrize("kind", ["FIFO", "directory", "device", "large file"])
def test_known_hosts_stay_if_their_file_is_replaced(
    start: Start,
    stubs: list[StubServer],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    kind: str,
) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"a={stubs[0].url}")
    api = start(ollama_hosts=[f"@{file}"]).api(timeout=60)
    session_id = api.create_session("mochi")["session_id"]
    _replace(file, kind)
    for _ in range(2):
        api.send_message(session_id, "Hello!")
        assert [host["name"] for host in api.ok(api.http.get("/hosts"))["hosts"]] == ["a"]
    assert sum("Ollama hosts not changed" in record.getMessage() for record in caplog.records) == 1
    file.rmdir() if kind == "directory" else file.unlink()
    file.write_text(f"b={stubs[1].url}")
    assert [host["name"] for host in api.ok(api.http.get("/hosts"))["hosts"]] == ["b"]


class Addresses:
    """Reader of a file whose file system hangs until it is released."""

    def __init__(self, file: Path) -> None:
        self.reads = 0
        self.released = threading.Event()
        self._file = file
        file.write_text("a")

    def read(self) -> list[HostAddress]:
        self.reads += 1
        if self.reads > 1:
            self.released.wait(60)
        return [HostAddress(name, f"http://{name}") for name in self._file.read_text().split(",")]


async def test_file_that_hangs_does_not_block_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    addresses = Addresses(tmp_path / "hosts")
    fleet = ModelGateway(
        AsyncOllamaClient, hosts=addresses.read, hosts_file=tmp_path / "hosts"
    ).fleet
    (tmp_path / "hosts").write_text("a,b")
    for _ in range(3):
        await fleet.refresh(0.05)
        assert [host.name for host in fleet.active] == ["a"]
    assert addresses.reads == 2
    assert sum("does not respond" in record.getMessage() for record in caplog.records) == 1
    addresses.released.set()
    with anyio.fail_after(60):
        while [host.name for host in fleet.active] != ["a", "b"]:
            await checkpoint()
    await fleet.aclose()
