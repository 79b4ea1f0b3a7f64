"""Documentation pages and their code blocks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "node_modules" not in page.parts),
]

_FENCE = re.compile(r"^( *)(`{3,})([^\n`]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"<!-- not run: ([^\n]+?) -->\s*$")
_OUTPUT = re.compile(r"<!-- output -->\s*$")
_UNAVAILABLE = ("caddy", "docker", "fly", "nginx", "npx", "ollama", "sudo", "systemctl")
"""Programs that the tests do not start."""


@dataclass(frozen=True)
class Block:
    """One code block.

    `line` is the line of its fence. An output block shows the output of the block before it.
    """

    page: Path
    line: int
    language: str
    title: str | None
    text: str
    not_run: str | None
    is_output: bool = False

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def name_of(page: Path) -> str:
    """Return the name of a page in the output of the tests."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> Iterator[Block]:
    """Return the blocks of a page, in order."""
    text = page.read_text()
    for found in _FENCE.finditer(text):
        language, _, options = found[3].strip().partition(" ")
        title = re.search(r'title="([^"]+)"', options)
        code = dedent(found[4])
        reason = _NOT_RUN.search(text, 0, found.start())
        elsewhere = _elsewhere(code) if language in ("bash", "sh") else None
        line = text.count("\n", 0, found.start()) + 1
        is_output = _OUTPUT.search(text, 0, found.start()) is not None
        not_run = reason[1] if reason else elsewhere
        yield Block(page, line, language, title[1] if title else None, code, not_run, is_output)


def without_code(text: str) -> str:
    return _FENCE.sub("", text)


def _elsewhere(script: str) -> str | None:
    """Return why a script is not run, if it calls a program that is not available."""
    called = [name for name in _UNAVAILABLE if re.search(rf"^\s*{name}\b", script, re.MULTILINE)]
    return f"the tests do not start {' or '.join(called)}" if called else None
