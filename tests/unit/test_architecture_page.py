"""The table of docs/architecture.md names only files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
HEADING = "| To change | Look in |"


def rows() -> dict[str, str]:
    """Return the last cell of each row of the table, by its first cell."""
    table = PAGE.read_text("utf-8").partition(HEADING)[2].partition("\n\n")[0]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines()]
    return {row[0]: row[-1] for row in cells if len(row) == 2}


def exists(path: str) -> bool:
    """Return whether a path of the page exists, in the root or in a folder of a package."""
    pattern = path.rstrip("/").replace("<name>", "*")
    return any(ROOT.glob(pattern)) or any(ROOT.glob(f"src/mochi_*/**/{pattern}"))


@pytest.mark.parametrize("row", rows())
def test_each_row_leads_to_files_that_exist(row: str) -> None:
    paths = re.findall("`([^`]+)`", rows()[row])
    assert paths
    assert [path for path in paths if not exists(path)] == []


def test_table_has_the_changes_of_a_reader() -> None:
    """Changes that a reader once searched for in vain."""
    text = " ".join(rows())
    for subject in ("waits for approval", "webhooks", "an [API key]", "keep-alive"):
        assert subject in text
