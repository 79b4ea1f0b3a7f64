"""The sample tools for files delete links, and never the files to which links lead."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mochi_server.agents.discovery import AgentDiscoveryService
from mochi_server.sessions.caller import Caller, acting_as
from mochi_server.tools.discovery import ToolDiscoveryService
from tests.support.agents import SAMPLES as SAMPLE_AGENTS
from tests.support.tools import SAMPLES as SAMPLE_TOOLS


@pytest.fixture(params=["delete_file", "delete_rename_file"])
def delete(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], str]:
    """A tool that deletes files in the folder `workspace`."""
    monkeypatch.setenv("MOCHI_FILES_ROOT", str(tmp_path / "workspace"))
    (tmp_path / "workspace").mkdir()
    tools = ToolDiscoveryService(SAMPLE_TOOLS).discover().tools
    agent_tools = AgentDiscoveryService(SAMPLE_AGENTS).get("coder").catalogue.tools
    function: Callable[[str], str] = {**tools, **agent_tools}[request.param].function
    return function


def test_deleting_a_link_keeps_its_target(delete: Callable[[str], str], tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    (workspace / "notes.txt").write_text("Keep this.")
    (workspace / "link").symlink_to("notes.txt")
    assert delete("link") == "Deleted link."
    assert [path.name for path in workspace.iterdir()] == ["notes.txt"]
    assert delete("./notes.txt/") == "Deleted ./notes.txt/."
    assert list(workspace.iterdir()) == []


def test_links_across_the_border_of_the_workspace_are_not_deleted(
    delete: Callable[[str], str], tmp_path: Path
) -> None:
    inside, outside = tmp_path / "workspace", tmp_path / "outside"
    outside.mkdir()
    for file in (inside / "file", outside / "file"):
        file.touch()
    (outside / "in").symlink_to(inside / "file")
    (inside / "out").symlink_to(outside / "file")
    for path in ("../outside/in", "out", str(outside / "in")):
        with pytest.raises(ValueError, match="outside the workspace"):
            delete(path)
    assert sorted(path.name for path in [*inside.iterdir(), *outside.iterdir()]) == [
        "file",
        "file",
        "in",
        "out",
    ]


def test_each_owner_has_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCHI_FILES_ROOT", str(tmp_path))
    tools = ToolDiscoveryService(SAMPLE_TOOLS).discover().tools
    owners = ["0123456789abcdef", "0123456789abcdef/../ann", "0123456789abcdef/ann", None]
    for owner in owners:
        with acting_as(Caller(owner=owner)):
            assert "notes.txt" not in tools["list_dir"].function()
            tools["write_file"].function("notes.txt", str(owner))
    for owner in owners:
        with acting_as(Caller(owner=owner)):
            assert tools["read_file"].function("notes.txt") == str(owner)
    assert len([*tmp_path.rglob("notes.txt")]) == 4
