"""A disk whose fsync fails: a change is acknowledged only if it is durable."""

from pathlib import Path

import pytest

from mochi_stub import StubServer
from tests.faults.changes import CHANGES, FAILED, Client
from tests.support.process import Command, run

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
ENVIRONMENT = {"PYTHONPATH": str(REPOSITORY), "MOCHI_SUMMARIZATION_ENABLED": "false"}


def test_failing_fsync_fails_changes_and_keeps_stored_state(
    stub: StubServer, tmp_path: Path
) -> None:
    code, output = run(
        "tests.faults.failing_fsync", "--probe", cwd=tmp_path, PYTHONPATH=str(REPOSITORY)
    )
    if code:
        pytest.skip(f"the kernel cannot be made to fail: {output}")
    arguments = ["--port", "0", "--ollama-host", stub.url]
    with (
        Command("mochi_server", *arguments, cwd=tmp_path, **ENVIRONMENT) as command,
        command.api() as api,
    ):
        client = Client(api)
        before = client.stored_state()
    files = contents_of(tmp_path)

    with (
        Command("tests.faults.failing_fsync", *arguments, cwd=tmp_path, **ENVIRONMENT) as command,
        command.api() as client.api,
    ):
        assert client.outcomes(CHANGES) == dict.fromkeys(CHANGES, FAILED)
        assert client.stored_state() == before
    assert contents_of(tmp_path) == files

    with (
        Command("mochi_server", *arguments, cwd=tmp_path, **ENVIRONMENT) as command,
        command.api() as client.api,
    ):
        assert client.stored_state() == before
        assert FAILED not in client.outcomes(CHANGES).values()


def contents_of(directory: Path) -> dict[str, bytes]:
    """Return the files of sessions and prompts, and temporary files beside them."""
    return {
        path.name: path.read_bytes()
        for part in ("chat_sessions", "system_prompts")
        for path in (directory / part).iterdir()
        if path.is_file() and path.name not in (".index.sqlite", ".lock-owner")
    }
