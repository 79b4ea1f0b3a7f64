"""The site is built without a warning, and asks no other server for anything when it is read."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|link(?![^>]*rel="?(?:canonical|prev|next)))\b[^>]*\b(?:src|href)="?(https?://[^\s">]+)"""
)


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="`uv run --group docs pytest tests/docs` builds the site")
def test_the_site_is_built_and_fetches_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 10
    assert {url for page in pages for url in FETCHED.findall(page.read_text())} == set()
