"""The list of pages for language models matches the navigation and the pages."""

from pathlib import Path

import pytest

from tests.docs_tooling import llms


def test_list_of_pages_is_up_to_date() -> None:
    assert llms.PATH.read_text() == llms.text(), "run `uv run python -m tests.docs_tooling.llms`"


@pytest.mark.parametrize(
    ("page", "description"),
    [
        (
            "# A\n\nAfter reading this page you can write a\n[tool](tool.md). More.\n",
            "Write a tool.",
        ),
        ("<!-- Made. -->\n\n# A\n\nLook up a route:\n\n- x\n", "Look up a route."),
        ("# A\n\n**Context.** Files.\n\n**Decision.** Use `a.py`. More.\n", "Use `a.py`."),
    ],
)
def test_description_is_the_first_sentence(tmp_path: Path, page: str, description: str) -> None:
    (tmp_path / "page.md").write_text(page)
    assert llms.description(tmp_path / "page.md") == description
