"""Coding agents from npm, run without a terminal and without a network."""

import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs_tooling.pages import ROOT, blocks

FOLDER = Path(__file__).parent / "js"
PROGRAMS = FOLDER / "node_modules" / ".bin"
MISSING = f"`npm ci` has not been run in {FOLDER.relative_to(ROOT)}"
MODEL = "qwen3:8b"
"""Model of the documented settings. Its name is not a name of the programs' own providers."""
SEEING_MODEL = "qwen3-vl:8b"
"""Model with `vision`."""
_TIMEOUT = 300.0
_CLOSED = "http://127.0.0.1:9"
"""Proxy for all hosts except this one.

No program listens there, so that a request to the internet fails.
"""
_OFFLINE = {
    "HTTP_PROXY": _CLOSED,
    "HTTPS_PROXY": _CLOSED,
    "NO_PROXY": "127.0.0.1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
}


def is_installed(program: str) -> bool:
    return (PROGRAMS / program).exists()


def documented(page: str, language: str, word: str) -> str:
    """Return the only code block of a page in a language that contains a word."""
    found = [
        block.text
        for block in blocks(ROOT / "docs" / "how-to" / page)
        if block.language == language
    ]
    (text,) = [text for text in found if word in text]
    return text


@dataclass
class Computer:
    """A home directory and a project, in which the programs run with the documented settings."""

    folder: Path
    url: str
    """Address of the server, which replaces the documented one."""
    programs: Path = PROGRAMS
    home: Path = field(init=False)
    project: Path = field(init=False)

    def __post_init__(self) -> None:
        self.home, self.project = self.folder / "home", self.folder / "project"
        self.home.mkdir()
        self.project.mkdir()

    def claude(self, *arguments: str, stdin: str | None = None) -> str:
        """Run Claude Code with arguments in place of its documented command. Return its output."""
        return self.run(self._claude_script(arguments), stdin)

    def start_claude(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start Claude Code with arguments. It ignores what it prints."""
        return subprocess.Popen(
            self._command(self._claude_script(arguments)),
            cwd=self.project,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def _claude_script(self, arguments: Sequence[str]) -> str:
        setup, command = self.setting("anthropic-clients.md", "bash", "ANTHROPIC_MODEL").rsplit(
            "\n", 1
        )
        assert command == "claude", command
        return f"{setup}\nexec {shlex.join([command, *arguments])}"

    def codex(self, *arguments: str) -> str:
        """Run Codex with arguments and its documented configuration. Return its output."""
        config = self.home / ".codex" / "config.toml"
        config.parent.mkdir(exist_ok=True)
        config.write_text(self.setting("openai-clients.md", "toml", "model_provider"))
        # The sandbox of Codex needs user namespaces, which a container may not have.
        options = ["exec", "--skip-git-repo-check", "--sandbox", "danger-full-access"]
        return self.run(shlex.join(["codex", *options, *arguments]))

    def run(self, script: str, stdin: str | None = None) -> str:
        """Run a script of bash in the project. Return its output."""
        done = subprocess.run(
            self._command(script),
            check=False,
            cwd=self.project,
            env=self._environment,
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def _command(self, script: str) -> list[str]:
        return ["bash", "-euc", script]

    @property
    def _environment(self) -> dict[str, str]:
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        return {"HOME": str(self.home), "PATH": path, **_OFFLINE}

    def setting(self, page: str, language: str, word: str) -> str:
        """Return a documented code block, with the address of the server."""
        text = documented(page, language, word).strip()
        assert "http://127.0.0.1:8000" in text, text
        assert MODEL in text, text
        return text.replace("http://127.0.0.1:8000", self.url)
