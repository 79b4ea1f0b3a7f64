"""aider from PyPI, in the environment ``.venv-aider``, with the documented settings."""

from pathlib import Path

import pytest

from tests.coding_agents.conftest import CodingStub
from tests.coding_agents.programs import Computer
from tests.docs_tooling.pages import ROOT
from tests.support.server import RunningServer

PROGRAMS = ROOT / ".venv-aider" / "bin"
OPTIONS = "--yes-always --no-git --no-check-update --no-show-model-warnings --analytics-disable"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.skipif(not (PROGRAMS / "aider").exists(), reason="aider is not installed"),
]


def test_file_is_written_and_the_conversation_continues(
    server: RunningServer, stub: CodingStub, tmp_path: Path
) -> None:
    computer = Computer(tmp_path, server.url, PROGRAMS)
    stub.replies_need_tools = False
    stub.replies = ["notes.txt\n```\nperiwinkle\n```\n", "It is periwinkle."]
    command = computer.setting("openai-clients.md", "bash", "aider --model") + f" {OPTIONS}"
    computer.run(f"{command} --message 'Write a file.'")
    file = computer.project / "notes.txt"
    assert file.read_text() == "periwinkle\n"
    continued = f"{command} --restore-chat-history --message 'Which word?' notes.txt"
    assert "It is periwinkle." in computer.run(continued)
    contents = [message["content"] for message in stub.prompt()]
    assert any("Write a file." in content for content in contents)
    assert any("periwinkle" in content and "notes.txt" in content for content in contents)
