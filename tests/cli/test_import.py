"""`mochi-server import`."""

from pathlib import Path

import pytest

from mochi_stub import StubServer
from tests.cli.commands import run_here
from tests.support.process import run
from tests.support.server import RunningServer

EXPORT = Path(__file__).parents[1] / "api/exports/librechat/tree.json"


def test_imported_file_is_in_the_data_directory(tmp_path: Path, stub: StubServer) -> None:
    code, output = run_here(
        "import", str(EXPORT), "--data-dir", str(tmp_path), "--ollama-host", stub.url, cwd=tmp_path
    )
    assert code == 0, output
    assert "Names for a boat\n" in output
    assert "Sessions with the model 'gpt-4-turbo': 1." in output
    with RunningServer(tmp_path, stub.url) as server:
        (session,) = server.api().ok(server.api().http.get("/sessions"))["sessions"]
        versions = server.api().session(session["session_id"])["versions"]
    assert list(versions.values()) == [{"count": 2, "shown": 2}]
    assert session["session_id"] in output
    assert (session["title"], session["message_count"]) == ("Names for a boat", 5)


def test_import_of_damaged_or_missing_file_names_the_reason(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.json"
    damaged.write_text('[{"chat_messages": null}]')
    code, output = run_here("import", str(damaged), cwd=tmp_path)
    assert (code, "Item 0 of the file cannot be imported: chat_messages" in output) == (1, True)
    code, output = run_here("import", "missing.json", cwd=tmp_path)
    assert (code, "cannot read missing.json" in output) == (1, True)
    assert not list(tmp_path.glob("chat_sessions/*.json"))


@pytest.mark.slow
def test_import_into_the_directory_of_a_running_server_is_refused(
    tmp_path: Path, stub: StubServer
) -> None:
    with RunningServer(tmp_path, stub.url):
        code, output = run(
            "mochi_server", "import", str(EXPORT), "--data-dir", str(tmp_path), cwd=tmp_path
        )
    assert code == 1, output
    assert "already uses the sessions" in output
