"""The code blocks of the README and the documentation: each is valid, and those that can be run are
run.

The rules are in `tests/docs_tooling/README.md`.
"""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.docs_tooling.pages import PAGES, Block, blocks, name_of
from tests.docs_tooling.reading import READERS, read_modules
from tests.docs_tooling.world import TUTORIAL, World
from tests.support.cases import cases

RUN = ("bash", "python", "sh")
NO_INTERPRETER = ("powershell",)
"""Languages of programs that the tests cannot run."""
BLOCKS = [block for page in PAGES for block in blocks(page)]
NOT_RUN = [block for block in BLOCKS if block.not_run or block.language in NO_INTERPRETER]
JAVASCRIPT = {block.place: block.text for block in BLOCKS if block.language in ("javascript", "js")}
FIRST_TIER = ("docs/how-to/use-as-a-library.md", "docs/how-to/run-in-production.md")
"""Pages whose blocks take little time; they run in the first tier."""


def runs(block: Block) -> bool:
    """Return whether the tests run the block."""
    return bool(block.title) or (block.language in RUN and block.not_run is None)


def _page(page: Path) -> Any:
    return pytest.param(page, marks=() if name_of(page) in FIRST_TIER else pytest.mark.slow)


@cases(
    "block",
    [block for block in BLOCKS if block.place not in JAVASCRIPT],
    ids=lambda block: block.place,
)
def test_block_is_valid_in_its_language(block: Block) -> None:
    assert block.language in READERS, f"name a language: {', '.join(sorted(READERS))}"
    READERS[block.language](block.text)


def test_blocks_of_javascript_are_valid() -> None:
    assert JAVASCRIPT
    read_modules(JAVASCRIPT)


@pytest.mark.parametrize(
    "page", [_page(page) for page in PAGES if any(map(runs, blocks(page)))], ids=name_of
)
def test_blocks_of_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with World(tmp_path, is_tutorial=TUTORIAL in page.read_text()) as world:
        monkeypatch.chdir(world.clone)
        before = files_of(world.clone / "tools")
        printed = ""
        for block in blocks(page):
            print(f"\n{block.place}")  # pytest shows it on failure
            if block.is_output:
                assert re.fullmatch(re.escape(block.text).replace("…", ".+"), printed), (
                    f"{block.place}\n{printed}"
                )
            elif runs(block):
                printed = run(block, world)
                print(printed)
        if TUTORIAL in page.read_text():
            assert files_of(world.clone / "tools") == before


def files_of(directory: Path) -> dict[str, str]:
    """Return the texts of the Python files in a directory."""
    return {path.name: path.read_text() for path in directory.glob("*.py")}


def run(block: Block, world: World) -> str:
    """Run a block and return its output."""
    if block.title:
        world.write(block.title, block.text)
        return ""
    if block.language != "python":
        return world.bash(block.text)
    # Blank lines in front, so that a traceback names the line of the page.
    code = compile(
        "\n" * block.line + world.with_running_addresses(block.text), str(block.page), "exec"
    )
    with redirect_stdout(StringIO()) as output:
        exec(code, world.names)  # noqa: S102 - the code is a page of this repository
    return output.getvalue()


@cases("page", PAGES, ids=name_of)
def test_page_does_not_install_from_an_index(page: Path) -> None:
    """The package is not published: a package index could contain another one of this name."""
    assert re.findall(r"pip install [^&\n]*mochi[-_]server(?!-\*\.whl)", page.read_text()) == []


@pytest.mark.slow
@pytest.mark.parametrize("block", NOT_RUN, ids=lambda block: block.place)
def test_skipped_block_has_reason(block: Block) -> None:
    pytest.skip(f"{block.place}: {block.not_run or f'the tests have no {block.language}'}")


@cases(
    "block",
    [block for block in BLOCKS if block.language in ("bash", "sh")],
    ids=lambda block: block.place,
)
def test_commands_have_no_comments(block: Block) -> None:
    """Without a setting, the interactive zsh of macOS passes the words of a comment to the
    command.
    """
    assert (
        re.findall(r"^(?:curl|uv|mochi-\w+|export|pip)\b.*\s#\s.*$", block.text, re.MULTILINE) == []
    )
