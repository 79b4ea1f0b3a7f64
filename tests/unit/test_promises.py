"""Promises of the documentation: each has a footnote with a test, and each named test exists."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs_tooling.pages import PAGES, ROOT
from tests.support.cases import cases

PROMISES = {"guarantees.md": "^Guarantees$"}
"""Page names, and a pattern for the heading of the part in which every list item is a promise."""

TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FUNCTION = re.compile(r"^ *(?:async )?def (\w+)\(", re.MULTILINE)
ITEM = re.compile(r"^- .*(?:\n(?!- |\n|#).*)*", re.MULTILINE)
REFERENCE = re.compile(r"\[\^([\w-]+)\](?!:)")
FOOTNOTE = re.compile(r"^\[\^([\w-]+)\]: (.*)", re.MULTILINE)


@cache
def names_in(file: Path) -> frozenset[str]:
    """Return the names of the functions in a file."""
    return frozenset(FUNCTION.findall(file.read_text()) if file.is_file() else ())


def missing_tests(text: str) -> list[str]:
    """Return the tests that a page names and that do not exist."""
    named = set(TEST.findall(text))
    return sorted(f"{file}::{name}" for file, name in named if name not in names_in(ROOT / file))


def untested_promises(text: str, heading: str) -> list[str]:
    """Return the list items after a heading that have no footnote with a test."""
    tested = {label for label, note in FOOTNOTE.findall(text) if TEST.search(note)}
    start = next(
        found.end()
        for found in re.finditer(r"^#+ (.+)$", text, re.MULTILINE)
        if re.search(heading, found[1])
    )
    return [
        item for item in ITEM.findall(text[start:]) if not tested & set(REFERENCE.findall(item))
    ]


def footnote_mistakes(text: str) -> set[str]:
    """Return the labels that are defined twice, not used or not defined."""
    defined = [label for label, _ in FOOTNOTE.findall(text)]
    repeated = {label for label in defined if defined.count(label) > 1}
    return repeated | set(defined) ^ set(REFERENCE.findall(text))


@cases("page", PAGES, ids=lambda page: page.name)
def test_tests_named_in_the_docs_exist(page: Path) -> None:
    assert missing_tests(page.read_text()) == []


@cases("page", PAGES, ids=lambda page: page.name)
def test_footnotes_are_defined_once_and_used(page: Path) -> None:
    assert footnote_mistakes(page.read_text()) == set()


@pytest.mark.parametrize(("page", "heading"), PROMISES.items())
def test_promises_name_a_test(page: str, heading: str) -> None:
    assert untested_promises((ROOT / "docs" / page).read_text(), heading) == []


def test_promise_without_a_test_is_reported() -> None:
    notes = "[^a]: `tests/unit/test_promises.py::gone`\n[^b]: No test.\n[^b]: Again.\n"
    text = (
        f"# A\n- no promise\n\n## Promises\n\n- one[^a]\n- two\n  lines[^b]\n- three[^c]\n\n{notes}"
    )
    assert missing_tests(text) == ["tests/unit/test_promises.py::gone"]
    assert untested_promises(text, "^Promises$") == ["- two\n  lines[^b]", "- three[^c]"]
    assert footnote_mistakes(text) == {"b", "c"}
    assert missing_tests("`tests/unit/no_such_file.py::test_x`") == [
        "tests/unit/no_such_file.py::test_x"
    ]


def test_page_names_tests() -> None:
    assert len(TEST.findall((ROOT / "docs" / "guarantees.md").read_text())) > 200
