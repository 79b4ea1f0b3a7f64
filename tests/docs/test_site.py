"""The site is built without warnings, and its pages load nothing from other servers."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs_tooling.pages import ROOT

pytestmark = pytest.mark.slow

FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=["']?(https?://[^\s"'>]+)"""
)
FOUND = {
    "one key per person": "how-to/serve-a-team/#create-one-key-per-person",
    "webhook": "how-to/webhooks/",
    "port in use": "mistakes/#start-the-server",
    "agent progress": "how-to/write-an-agent/#follow-the-progress-of-an-agent",
}
"""Phrases that users search for, and the sections that answer them."""
COMMAND = Path(sys.executable).with_name("zensical")


def is_found(phrase: str, index: Path) -> bool:
    """Return whether the search index contains the words of a phrase in the section for it."""
    for section in json.loads(index.read_text())["items"]:
        if section["location"] == FOUND[phrase]:
            text = f"{section['title']} {section['text']}".lower()
            return all(re.search(rf"\b{word}", text) for word in phrase.split())
    return False


@pytest.mark.skipif(
    not COMMAND.exists(),
    reason="needs zensical: `uv run --group docs pytest -m slow tests/docs/test_site.py`",
)
def test_site_builds_and_loads_nothing_external(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("node_modules", "dist")
    )
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    done = subprocess.run(
        [COMMAND, "build", "--strict"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "build" / "site"
    assert not [phrase for phrase in FOUND if not is_found(phrase, site / "search.json")]
    pages = list(site.rglob("*.html"))
    assert len(pages) > 10
    listed = re.findall(r"^- \[.+?\]\((.+?)\)", (site / "llms.txt").read_text(), re.MULTILINE)
    assert [address for address in listed if not (site / address).is_file()] == []
    examples = {
        site / page.relative_to(tmp_path / "docs")
        for page in (tmp_path / "docs" / "examples").rglob("*.html")
    }
    assert {site / address for address in listed} == {*pages} - {site / "404.html"} - examples
    assert {url for page in pages for url in FETCHED.findall(page.read_text())} == set()
