"""Every link inside the documentation leads to a page, and to a heading where it names one."""

from pathlib import Path

import pytest
import yaml

from tests.docs.links import links, problem
from tests.docs.pages import PAGES, ROOT, name_of


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_of_the_page_leads_somewhere(page: Path) -> None:
    assert [found for link in links(page) if (found := problem(page, link))] == []


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    page.write_text("[a](other.md#a-b_c) [b](other.md#c) [c](gone.md) [d](#here) `[e](code.md)`\n\n# Here\n")
    other.write_text("## A `b_c`!\n```text\n# C\n```\n")
    assert [problem(page, link) for link in links(page)] == [
        None,
        "other.md#c: there is no such heading",
        "gone.md: there is no such file",
        None,
    ]


def test_every_page_is_in_the_sites_navigation() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert sorted(_files(navigation)) == sorted(str(page.relative_to(ROOT / "docs")) for page in PAGES[1:])


def _files(navigation: object) -> list[str]:
    if isinstance(navigation, str):
        return [navigation]
    below = navigation.values() if isinstance(navigation, dict) else navigation
    assert below is not None
    return [file for one in below for file in _files(one)]  # type: ignore[attr-defined]  # a list or a dictionary
