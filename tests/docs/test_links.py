"""Every internal link of the documentation has an existing target: a file, and a heading if it
names one.
"""

from pathlib import Path

import yaml

from tests.docs_tooling.links import links, problem
from tests.docs_tooling.pages import PAGES, ROOT, name_of
from tests.support.cases import cases


@cases("page", PAGES, ids=name_of)
def test_links_of_page_have_targets(page: Path) -> None:
    assert [found for link in links(page) if (found := problem(page, link))] == []


def test_broken_links_are_reported(tmp_path: Path) -> None:
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    page.write_text(
        "[a](other.md#a-b_c) [b](other.md#c) [c](gone.md) [d](#here) `[e](code.md)`\n\n# Here\n"
    )
    other.write_text("## A `b_c`!\n```text\n# C\n```\n")
    assert [problem(page, link) for link in links(page)] == [
        None,
        "other.md#c: there is no such heading",
        "gone.md: there is no such file",
        None,
    ]


def test_navigation_lists_every_page() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert sorted(_files(navigation)) == sorted(
        str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]
    )


def _files(navigation: object) -> list[str]:
    if isinstance(navigation, str):
        return [navigation]
    below = navigation.values() if isinstance(navigation, dict) else navigation
    assert below is not None
    return [file for entry in below for file in _files(entry)]  # type: ignore[attr-defined]  # a list or a dictionary
