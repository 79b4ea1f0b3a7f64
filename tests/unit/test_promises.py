"""What the docs promise, a test holds: each one that they name exists, and every promise names one."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FUNCTION = re.compile(r"^ *(?:async )?def (\w+)\(", re.MULTILINE)
ITEM = re.compile(r"^- .*(?:\n(?!- |\n|#).*)*", re.MULTILINE)


@cache
def names_in(file: Path) -> frozenset[str]:
    """Return the names of the functions in a file."""
    return frozenset(FUNCTION.findall(file.read_text()) if file.is_file() else ())


def missing_tests(text: str) -> list[str]:
    """The tests that a page names and that do not exist."""
    named = set(TEST.findall(text))
    return sorted(f"{file}::{name}" for file, name in named if name not in names_in(ROOT / file))


def unheld_promises(text: str) -> list[str]:
    """The items below a heading with "promises" that name no test."""
    sections = re.split(r"^(?=#+ )", text, flags=re.MULTILINE)
    promising = [section for section in sections if "promise" in section.partition("\n")[0].lower()]
    return [item for section in promising for item in ITEM.findall(section) if not TEST.search(item)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_named_in_the_docs_exist(page: Path) -> None:
    assert missing_tests(page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_promises_name_a_test(page: Path) -> None:
    assert unheld_promises(page.read_text()) == []


def test_promise_without_a_test_is_found() -> None:
    held = "- one\n  (`tests/unit/test_promises.py::gone`)\n"
    text = f"# A\n- no promise\n\n## Promises\n\n{held}- two\n  lines\n\n# B\n- x\n"
    assert missing_tests(text) == ["tests/unit/test_promises.py::gone"]
    assert unheld_promises(text) == ["- two\n  lines"]
    assert missing_tests("`tests/unit/no_such_file.py::test_x`") == ["tests/unit/no_such_file.py::test_x"]


def test_security_page_names_tests() -> None:
    assert len(TEST.findall((ROOT / "docs" / "security.md").read_text())) > 20
