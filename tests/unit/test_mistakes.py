"""The page of common mistakes shows the message that each mistake really causes."""

from collections.abc import Iterator

import pytest

from tests.docs_tooling.mistakes import MISTAKES, PATH, Mistake, World, world
from tests.support.cases import cases

ALL = [mistake for mistakes in MISTAKES.values() for mistake in mistakes]


@pytest.fixture(scope="module")
def servers() -> Iterator[World]:
    with world() as started:
        yield started


@cases("mistake", ALL, ids=[mistake.text for mistake in ALL])
def test_page_has_the_message_of_a_mistake(servers: World, mistake: Mistake) -> None:
    row = mistake.row(servers)
    assert f"{row}\n" in PATH.read_text(), "run `uv run python -m tests.docs_tooling.mistakes`"


def test_page_has_all_mistakes_and_no_others() -> None:
    rows = [
        line
        for line in PATH.read_text().splitlines()
        if line.startswith("| ") and "| Mistake |" not in line
    ]
    assert [row.partition(" | ")[0] for row in rows] == [f"| {mistake.text}" for mistake in ALL]
