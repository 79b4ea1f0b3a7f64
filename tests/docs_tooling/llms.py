"""Generator of `docs/llms.txt`, the list of all pages for language models: https://llmstxt.org
describes its format.

`uv run python -m tests.docs_tooling.llms` writes the file. `tests/docs/test_llms.py` compares it.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.docs_tooling.pages import ROOT

DOCS = ROOT / "docs"
PATH = DOCS / "llms.txt"

_OPENING = re.compile(
    r"(After (reading this page|this tutorial) you (can|know)|On this page you can) "
)
_DECISION = "**Decision.** "


def text() -> str:
    """Return the list of pages, in the order of the navigation."""
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    sections = [
        f"## {title}\n\n"
        + "".join(
            f"- [{name}]({_address(page)}): {description(DOCS / page)}\n" for name, page in pages
        )
        for title, pages in _sections("Overview", site["nav"])
    ]
    summary = f"# {site['site_name']}\n\n> {site['site_description']}\n"
    return "\n".join([summary, *sections])


def description(page: Path) -> str:
    """Return the first sentence of a page, or of its decision if the page is a decision record."""
    paragraphs = re.sub(r"<!--.*?-->", "", page.read_text(), flags=re.DOTALL).split("\n\n")
    plain = [
        " ".join(each.split())
        for each in paragraphs
        if each.strip() and not each.lstrip().startswith("#")
    ]
    first = next((each for each in plain if each.startswith(_DECISION)), plain[0]).removeprefix(
        _DECISION
    )
    sentence = (
        re.split(r"(?<=\.) ", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", first))[0].rstrip(".:") + "."
    )
    rest = _OPENING.sub("", sentence)
    return sentence if rest == sentence else rest[0].upper() + rest[1:]


def _sections(title: str, entries: list[Any]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each section of the navigation with its pages, then its subsections."""
    named = [
        next(iter(entry.items())) if isinstance(entry, dict) else (title, entry)
        for entry in entries
    ]
    pages = [(name, page) for name, page in named if isinstance(page, str)]
    if pages:
        yield title, pages
    for name, below in named:
        if isinstance(below, list):
            yield from _sections(name, below)


def _address(page: str) -> str:
    """Return the path of a page on the site."""
    path = Path(page)
    folder = path.parent if path.stem in ("index", "README") else path.with_suffix("")
    return (folder / "index.html").as_posix()


if __name__ == "__main__":
    PATH.write_text(text())
