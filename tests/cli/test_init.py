"""`mochi-server init`: creates sample files and never overwrites existing ones."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mochi_server.agents import AgentDiscoveryService
from mochi_server.cli.init import scaffold
from mochi_server.config import SAMPLE_FOLDERS
from tests.cli.commands import run_here
from tests.faults.media import small_disk
from tests.support.cases import cases
from tests.support.process import Command, run

ROOT = Path(__file__).parents[2]


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_help_names_the_init_command(tmp_path: Path) -> None:
    assert re.search(
        r"commands:\s+COMMAND\s+init +create tools", run_here("--help", cwd=tmp_path)[1]
    )
    assert "DIR" in run_here("init", "--help", cwd=tmp_path)[1]


def test_initialized_directory_is_served_without_problems(tmp_path: Path) -> None:
    code, text = run("mochi_server", "init", "new/place", cwd=tmp_path)
    assert code == 0, text
    assert [line.split()[0] for line in text.splitlines()[1:5]] == [
        f"{folder}/" for folder in SAMPLE_FOLDERS
    ]
    assert "mochi-server --data-dir new/place --test-mode" in text
    with Command(
        "mochi_server", "--test-mode", "--port", "0", "--data-dir", "new/place", cwd=tmp_path
    ) as command:
        api = command.api()
        tools = api.ok(api.http.get("/tools"))
        assert {"add_numbers", "write_file"} <= {*tools["tools"]}
        assert tools["problems"] == []
        assert api.ok(api.http.get("/agents"))["agents"] == {}
        assert api.ok(api.http.get("/system-prompts"))
    assert (tmp_path / "new" / "place" / "chat_sessions").stat().st_mode & 0o077 == 0


def test_agents_that_run_code_are_copied_on_request_only(tmp_path: Path) -> None:
    code, text = run_here("init", cwd=tmp_path)
    assert code == 0
    assert [path.name for path in (tmp_path / "agents").iterdir()] == ["README.md"]
    assert (
        "coder and agent_builder run commands and write code. --with-code-agents adds them." in text
    )
    code, text = run_here("init", "--with-code-agents", cwd=tmp_path)
    assert code == 0
    assert "--with-code-agents" not in text
    agents = AgentDiscoveryService(tmp_path / "agents")
    assert [agents.get(name).valid for name in ("agent_builder", "coder")] == [True, True]


def test_init_keeps_existing_files_and_adds_missing_ones(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text("__all__ = []\n")
    elsewhere = tmp_path / "mine.md"
    elsewhere.write_text("mine")
    (tmp_path / "system_prompts").mkdir()
    (tmp_path / "system_prompts" / "helpful.md").symlink_to(elsewhere)
    code, text = run_here("init", cwd=tmp_path)
    assert code == 0
    assert "tools/           3 new, 1 existing" in text
    assert (tmp_path / "tools" / "__init__.py").read_text() == "__all__ = []\n"
    assert elsewhere.read_text() == "mine"
    before = contents(tmp_path)
    again = scaffold(tmp_path)
    assert (again[0], contents(tmp_path)) == ([], before)


@cases(
    ("arguments", "code", "said"),
    [
        (["init", "file"], 1, "cannot create file: File exists"),
        (["init", "file/below"], 1, "cannot create file/below: Not a directory"),
        (["init", "occupied"], 1, "cannot create occupied/tools: File exists"),
        (["init", "a", "b"], 2, "mochi-server: unrecognized arguments: b"),
        (["--port", "1", "init"], 2, "init does not accept --port"),
        (["--test-mode", "init"], 2, "init does not accept --test-mode"),
        (["--stub-speed", "2", "openapi"], 2, "openapi does not accept --stub-speed"),
        (["--insecure", "migrate"], 2, "migrate does not accept --insecure"),
        (["--port", "1", "store", "copy", "a", "b"], 2, "store does not accept --port"),
        (["init", "--data-dir", "a"], 2, "mochi-server: unrecognized arguments: --data-dir"),
        (["openapi", "--port", "1"], 2, "mochi-server: unrecognized arguments: --port 1"),
        (["-1x"], 2, "mochi-server: unrecognized arguments: -1x"),
        (["initialise"], 2, "invalid choice: 'initialise'"),
    ],
)
def test_init_error_is_one_line(tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "occupied").mkdir(exist_ok=True)
    (tmp_path / "occupied" / "tools").touch()
    ended, text = run_here(*arguments, cwd=tmp_path)
    assert (ended, text.count("\n")) == (code, 1)
    assert said in text


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_init_of_unwritable_directory_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    code, text = run("mochi_server", "init", "closed", cwd=tmp_path)
    assert (code, text) == (1, "mochi-server: cannot create closed/tools: Permission denied\n")


def test_init_after_full_disk_completes_the_files(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        with (
            disk.full(),
            pytest.raises(OSError, match=r"No space left on device: '.*__init__\.py'"),
        ):
            scaffold(disk.path)
        assert not [name for name, content in contents(disk.path).items() if not content]
        assert scaffold(disk.path)[1] == []


def test_wheel_contains_every_sample_and_no_conversation(tmp_path: Path) -> None:
    pyproject = (ROOT / "pyproject.toml").read_text()
    carried = dict(
        re.findall(
            r'^"([\w/.]+)" = "mochi_server/samples/([\w/.]+)"$', pyproject, flags=re.MULTILINE
        )
    )
    assert all(source == target and (ROOT / source).exists() for source, target in carried.items())
    ours, _ = scaffold(tmp_path, with_code_agents=True)
    assert [
        name for name in ours if not any(name == c or name.startswith(f"{c}/") for c in carried)
    ] == []
    assert "agents" not in carried, "which holds conversations where a server has run"


def test_init_succeeds_with_its_output_closed(tmp_path: Path) -> None:
    read, written = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "mochi_server", "init"]
    done = subprocess.run(
        command, cwd=tmp_path, stdout=written, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(written)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "tools" / "__init__.py").exists()
