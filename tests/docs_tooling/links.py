"""Links of the pages and the headings that they can lead to."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.docs_tooling.pages import without_code

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?: \"[^\"]*\")?\)")
_HEADING = re.compile(r"^#+ (.+?) *#*$", re.MULTILINE)
_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
_ELSEWHERE = ("http://", "https://", "mailto:")


def links(page: Path) -> list[str]:
    """Return the targets of a page's links, without links to other sites."""
    text = re.sub(r"`[^`\n]*`", "", without_code(page.read_text()))
    return [target for target in _LINK.findall(text) if not target.startswith(_ELSEWHERE)]


def problem(page: Path, link: str) -> str | None:
    """Return the problem of a link, or None."""
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.is_file():
        return f"{link}: there is no such file"
    if anchor and anchor not in anchors(target):
        return f"{link}: there is no such heading"
    return None


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors that a page has both on the site and in its source view."""
    text = without_code(page.read_text())
    titles = _HEADING.findall(text)
    return set(_ANCHOR.findall(text)) | set(_numbered(map(anchor_of, titles), "_")) & set(
        _numbered(map(_in_the_source, titles), "-")
    )


def anchor_of(title: str) -> str:
    """Return the anchor of a heading on the site."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


def _in_the_source(title: str) -> str:
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


def _numbered(slugs: Iterator[str], sign: str) -> Iterator[str]:
    """Append a number to repeated headings."""
    seen: dict[str, int] = {}
    for slug in slugs:
        yield f"{slug}{sign}{seen[slug]}" if slug in seen else slug
        seen[slug] = seen.get(slug, 0) + 1
