"""Every block of code in the README and the docs: run as a reader would run it, or at least read."""

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, Block, blocks, name_of
from tests.docs.reading import READERS
from tests.docs.world import World

RUN = ("bash", "python", "sh")
BLOCKS = [block for page in PAGES for block in blocks(page)]
NOT_RUN = [block for block in BLOCKS if block.not_run]


def runs(block: Block) -> bool:
    return bool(block.title) or (block.language in RUN and block.not_run is None)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_every_block_is_what_it_says_it_is(block: Block) -> None:
    assert block.language in READERS, f"name a language: {', '.join(sorted(READERS))}"
    READERS[block.language](block.text)


@pytest.mark.parametrize("page", [page for page in PAGES if any(map(runs, blocks(page)))], ids=name_of)
def test_every_block_of_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with World(tmp_path) as world:
        monkeypatch.chdir(world.clone)
        for block in filter(runs, blocks(page)):
            print(f"\n{block.place}")  # what was printed is shown when it fails
            run(block, world)


def run(block: Block, world: World) -> None:
    """Run a block in a world."""
    if block.title:
        world.write(block.title, block.text)
    elif block.language == "python":
        # Blank lines in front, so that a traceback names the line of the page.
        code = compile("\n" * block.line + world.addressed(block.text), str(block.page), "exec")
        exec(code, world.names)  # noqa: S102 - that is what a documentation is for
    else:
        print(world.bash(block.text))


@pytest.mark.parametrize("block", NOT_RUN, ids=lambda block: block.place)
def test_what_is_not_run_says_why(block: Block) -> None:
    pytest.skip(f"{block.place}: {block.not_run}")
