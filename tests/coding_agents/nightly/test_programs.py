"""One task with tools for several coding agents: write a file, run a command, continue.

The programs need ``npm ci`` in ``js``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import ToolCall
from tests.coding_agents.conftest import CodingStub
from tests.coding_agents.programs import Computer
from tests.support.server import RunningServer

PROGRAMS = Path(__file__).parent / "js" / "node_modules" / ".bin"
COMMAND = "cp notes.txt copy.txt; echo ran"


@dataclass(frozen=True)
class Program:
    """A coding agent.

    Attributes:
        setting: Language and a word of the documented code block with its settings.
        file: File of the settings below the home directory. None if they are shell commands.
        first, later: Shell commands for a new and a continued conversation, before the prompt.
        write: The tool that writes a file, and its parameters for the path and the content.
        run: The tool that runs a command, and its arguments.
        end: Shell command after the last prompt.
    """

    name: str
    setting: tuple[str, str]
    file: str | None
    first: str
    later: str
    write: tuple[str, str, str]
    run: tuple[str, dict[str, Any]]
    end: str = ""


ALL = [
    Program(
        "opencode",
        setting=("json", "opencode.ai"),
        file=".config/opencode/opencode.json",
        first="opencode run",
        later="opencode run --continue",
        write=("write", "filePath", "content"),
        run=("bash", {"command": COMMAND, "description": "Print a file"}),
    ),
    Program(
        "qwen",
        setting=("bash", "OPENAI_MODEL"),
        file=None,
        first="qwen --yolo -p",
        later="qwen --yolo --continue -p",
        write=("write_file", "file_path", "content"),
        run=("run_shell_command", {"command": COMMAND, "is_background": False}),
    ),
    Program(
        "pi",
        setting=("json", "openai-completions"),
        file=".pi/agent/models.json",
        first="pi --model mochi/qwen3:8b -p",
        later="pi --model mochi/qwen3:8b --continue -p",
        write=("write", "path", "content"),
        run=("bash", {"command": COMMAND}),
    ),
    Program(
        "cn",
        setting=("yaml", "tool_use"),
        file=".continue/config.yaml",
        first="cn --auto -p",
        later="cn --auto --resume -p",
        write=("Write", "filepath", "content"),
        run=("Bash", {"command": COMMAND}),
    ),
    Program(
        "cline",
        setting=("bash", "cline auth"),
        file=None,
        first="cline",
        later="cline",  # it continues a conversation only on a terminal
        write=("editor", "path", "new_text"),
        run=("run_commands", {"commands": [COMMAND]}),
        end="cline hub stop",
    ),
]


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("program", ALL, ids=lambda program: program.name)
def test_file_is_written_and_a_command_is_run(
    server: RunningServer, stub: CodingStub, tmp_path: Path, program: Program
) -> None:
    if not (PROGRAMS / program.name).exists():
        pytest.skip(f"`npm ci` has not been run in {PROGRAMS.parent.parent}")
    computer = Computer(tmp_path, server.url, PROGRAMS)
    setup = settings(program, computer)
    file = computer.project / "notes.txt"
    writer, path, content = program.write
    runner, arguments = program.run
    stub.replies = [
        ToolCall(writer, {path: str(file), content: "periwinkle\n"}),
        "It is written.",
        ToolCall(runner, arguments),
        "It has run.",
        "It is the same.",
    ]
    try:
        first = computer.run(f"{setup}\n{program.first} 'Write a file.'")
        assert "It is written." in first
        assert file.read_text().strip() == "periwinkle"
        second = computer.run(f"{setup}\n{program.later} 'Run a command.'")
        assert "It has run." in second
        assert (computer.project / "copy.txt").read_text().strip() == "periwinkle"
        (result,) = [m for m in stub.prompt() if m.get("tool_name") == runner]
        # Qwen Code may lose the output of a short command.
        assert program.name == "qwen" or "ran" in result["content"]
        third = computer.run(f"{setup}\n{program.later} 'And now?'")
        assert "It is the same." in third
    finally:
        if program.end:
            computer.run(program.end)
    if program.first != program.later:
        contents = [message["content"] for message in stub.prompt()]
        assert "It is written." in contents
        assert "It has run." in contents


def settings(program: Program, computer: Computer) -> str:
    """Write the documented settings, or return the shell commands that set them."""
    text = computer.setting("openai-clients.md", *program.setting)
    if program.file is None:
        return text.rsplit("\n", 1)[0]  # without the last line, which starts the program
    file = computer.home / program.file
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return ""
