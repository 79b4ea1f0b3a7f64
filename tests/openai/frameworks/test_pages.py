"""The code blocks of the documentation that need the packages of this environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.test_blocks import run
from tests.docs_tooling.pages import ROOT, Block, blocks
from tests.docs_tooling.world import World

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "how-to" / "openai-clients.md"
BLOCKS = [
    block for block in blocks(PAGE) if block.not_run and "tests/openai/frameworks" in block.not_run
]


def test_page_has_blocks() -> None:
    assert len(BLOCKS) == 3


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_block_runs(block: Block, tmp_path: Path) -> None:
    with World(tmp_path) as world:
        run(block, world)
