"""Directories from which the server imports tools and agents: only those that are named, marked or
its own.
"""

from pathlib import Path
from typing import Any

import pytest

from mochi_server.config import DATA_DIR_MARKER, MochiServerSettings
from mochi_server.container import build_services
from mochi_stub import StubServer
from tests.support.agents import write_agent
from tests.support.process import Command, run
from tests.support.tools import write_tools

TOOL = """
    from pathlib import Path
    Path("imported.txt").write_text("imported")
    __all__ = ["add"]

    def add(a: int, b: int) -> int:
        '''Add two numbers.'''
        return a + b
"""


def catalogue(command: Command) -> tuple[list[str], list[str]]:
    """Wait until a server is ready, and return the names of its tools and agents."""
    with command.api() as api:
        tools, agents = (
            api.ok(api.http.get("/tools"))["tools"],
            api.ok(api.http.get("/agents"))["agents"],
        )
    return list(tools), list(agents)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with folders named `tools` and `agents` that are not for the server."""
    write_tools(tmp_path, TOOL)
    write_agent(tmp_path)
    (tmp_path / DATA_DIR_MARKER).unlink()
    return tmp_path


def test_code_of_an_unrelated_project_is_not_imported(project: Path, stub: StubServer) -> None:
    with Command("mochi_server", "--port", "0", "--ollama-host", stub.url, cwd=project) as command:
        command.read_until("stream an answer")
        banner = "".join(command.output)
        assert (
            "tools, which is not used. To use it, start with `mochi-server --data-dir ." in banner
        )
        assert catalogue(command) == ([], [])
    assert not (project / "imported.txt").exists()


@pytest.mark.parametrize(
    "environment",
    [{"MOCHI_DATA_DIR": "."}, {"MOCHI_TOOLS_DIR": "tools", "MOCHI_AGENTS_DIR": "agents"}],
    ids=["data", "code"],
)
async def test_code_that_a_setting_names_is_imported(
    project: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option --data-dir is shown by the test of a directory that `mochi-server init`
    has made.
    """
    monkeypatch.chdir(project)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    given: dict[str, Any] = {}
    services = build_services(MochiServerSettings(**given))
    await services.open()
    tools, agents = await services.tools.catalogue(), await services.agents.agents()
    await services.aclose()
    assert (list(tools.tools), list(agents)) == (["add"], ["helper"])


def test_code_beside_the_mark_of_init_is_imported(project: Path, stub: StubServer) -> None:
    run("mochi_server", "init", cwd=project)
    with Command("mochi_server", "--port", "0", "--ollama-host", stub.url, cwd=project) as command:
        tools, agents = catalogue(command)
    assert tools == ["add"]
    assert agents == ["helper"]


def test_test_mode_has_the_samples_in_an_empty_directory(tmp_path: Path) -> None:
    with Command("mochi_server", "--test-mode", "--port", "0", cwd=tmp_path) as command:
        tools, agents = catalogue(command)
        with command.api() as api:
            prompts = api.ok(api.http.get("/system-prompts"))["prompts"]
    assert "add_numbers" in tools
    assert agents == ["agent_builder", "coder"]
    assert prompts
    assert not any(
        (tmp_path / name).exists()
        for name in ("tools", "agents", "system_prompts", ".mochi-server")
    )


def test_test_mode_imports_no_code_of_an_unrelated_project(project: Path) -> None:
    with Command("mochi_server", "--test-mode", "--port", "0", cwd=project) as command:
        assert "add" not in catalogue(command)[0]
    assert not (project / "imported.txt").exists()
