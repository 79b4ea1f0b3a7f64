"""FIFOs, devices and huge files in place of the files that users write: each is a problem, and none
blocks.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mochi_server.agents import AgentDiscoveryService
from mochi_server.agents.config import SkillError, read_skill
from mochi_server.agents.prompt_loader import PromptLoader
from mochi_server.config import read_hosts
from mochi_server.mcp.config import read_config
from mochi_server.services.keys import KeyRing, hash_of
from mochi_server.services.system_prompts import SystemPromptService
from mochi_server.tools import ToolDiscoveryService
from mochi_server.util import regular_files
from tests.support.tools import write_tools

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no FIFOs")

Make = Callable[[Path], None]


def fifo(path: Path) -> None:
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.mkdir()


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(100 * 1024 * 1024)


@pytest.fixture(params=[fifo, directory, device, huge])
def make(request: pytest.FixtureRequest) -> Make:
    """A function that makes something at a path that is no usable file."""
    made: Make = request.param
    return made


def test_special_file_cannot_be_read(tmp_path: Path, make: Make) -> None:
    make(tmp_path / "file")
    with pytest.raises(OSError, match=r"regular|directory|bytes"):
        regular_files.read_bytes(tmp_path / "file")


def test_links_and_line_ends_are_read(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"a\r\nb\rc\n")
    (tmp_path / "link").symlink_to("target")
    assert regular_files.read_text(tmp_path / "link") == "a\nb\nc\n"


def test_special_hosts_file_is_an_error(tmp_path: Path, make: Make) -> None:
    make(tmp_path / "hosts")
    with pytest.raises(ValueError, match=r"cannot read .*hosts: "):
        read_hosts(["@hosts"], str(tmp_path))


def test_keys_stay_valid_if_their_file_is_replaced(
    tmp_path: Path, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys"
    path.write_text(f"- name: ada\n  hash: {hash_of(b'secret')}\n")
    ring = KeyRing(path=path)
    path.unlink()
    make(path)
    caller = ring.find([b"secret"])
    assert caller is not None
    assert "the earlier keys stay valid" in caplog.text


def test_special_mcp_file_is_a_problem(tmp_path: Path, make: Make) -> None:
    make(tmp_path / "mcp.json")
    (problem,) = read_config(tmp_path).problems
    assert problem.name == "mcp.json"


def test_special_skill_file_is_an_error(tmp_path: Path, make: Make) -> None:
    (tmp_path / "agent").mkdir()
    make(tmp_path / "agent" / "SKILL.md")
    with pytest.raises(SkillError):
        read_skill(tmp_path / "agent")
    assert not AgentDiscoveryService(tmp_path).discover()["agent"].valid


def test_packaged_prompt_replaces_a_special_file(
    tmp_path: Path, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    make(tmp_path / "planning.md")
    assert PromptLoader(tmp_path / "planning.md").planning() == PromptLoader().planning()
    assert "using the packaged prompt" in caplog.text


def test_special_tool_file_affects_no_other_file(tmp_path: Path, make: Make) -> None:
    source = "def good(a: int) -> str:\n    'Be good.'\n    return str(a)\n__all__ = ['good']"
    tools = write_tools(tmp_path, source)
    make(tools / "special.py")
    assert list(ToolDiscoveryService(tools).discover().tools) == ["good"]


def test_special_init_file_is_a_problem(tmp_path: Path, make: Make) -> None:
    (tmp_path / "tools").mkdir()
    make(tmp_path / "tools" / "__init__.py")
    catalogue = ToolDiscoveryService(tmp_path / "tools").discover()
    assert "__init__.py" in [problem.name for problem in catalogue.problems]


def test_special_prompt_files_are_omitted(tmp_path: Path, make: Make) -> None:
    (tmp_path / "good.md").write_text("Be good.")
    make(tmp_path / "special.md")
    assert [prompt.filename for prompt in SystemPromptService(tmp_path).list()] == ["good.md"]
