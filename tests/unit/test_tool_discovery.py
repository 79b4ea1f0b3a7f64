"""Finding tools in a directory, and living with what is wrong in it."""

from pathlib import Path

import pytest

from mochi_server.tools.discovery import ToolDiscoveryService
from tests.support.tools import SAMPLES, write_tools

GOOD = '''
    def good(a: int) -> str:
        """Be good."""
        return str(a)
'''


def test_sample_tools_are_valid() -> None:
    catalogue = ToolDiscoveryService(SAMPLES).discover()
    assert catalogue.problems == ()
    assert catalogue.groups["math"] == ["add_numbers", "subtract_numbers", "multiply_numbers", "divide_numbers"]
    assert {name for name, tool in catalogue.tools.items() if tool.destructive} == {"write_file", "delete_file"}


def test_missing_or_empty_directory_has_no_tools(tmp_path: Path) -> None:
    assert not ToolDiscoveryService(tmp_path / "none").discover().tools
    (tmp_path / "tools").mkdir()
    assert not ToolDiscoveryService(tmp_path / "tools").discover().tools


def test_exports_groups_and_marks_are_read(tmp_path: Path) -> None:
    directory = write_tools(
        tmp_path,
        GOOD
        + '''
    def risky() -> str:
        """Be risky."""
        return ""

    def safe() -> str:
        """Be safe."""
        return ""

    def hidden() -> str:
        """Be hidden."""
        return ""

    safe.destructive = False
    __all__ = ["risky", "good", "safe"]
    __version__ = "1"
    __some_group__ = ["good", "safe"]
    __read_only__ = ["good"]
    __destructive__ = ["risky"]
''',
    )
    catalogue = ToolDiscoveryService(directory).discover()
    assert list(catalogue.tools) == ["risky", "good", "safe"]
    assert catalogue.groups == {"some_group": ["good", "safe"]}
    assert [name for name, tool in catalogue.tools.items() if tool.destructive] == ["risky"]
    assert catalogue.problems == ()


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        ("def broken(:\n    pass", "__init__.py", "SyntaxError"),
        ("import no_such_module_at_all", "__init__.py", "ModuleNotFoundError"),
        ("import sys\nsys.exit(3)", "__init__.py", "SystemExit"),
        ("from .inner import x", "inner.py", "ZeroDivisionError"),
        ("x = 1", "__all__", "list of names"),
        ("__all__ = 'good'", "__all__", "list of names"),
        ("__all__ = ['missing']", "missing", "does not exist"),
        ("__all__ = ['reload']\ndef reload() -> str:\n    'Do.'", "reload", "reserved"),
        ("__all__ = ['f']\ndef f(a) -> str:\n    'Do.'", "f", "no type"),
        ("__all__ = ['f']\nf = 5", "f", "not a function"),
        ("__all__ = []\n__group__ = ['good']", "__group__", "no tool"),
        ("__all__ = []\n__destructive__ = ['good']", "__destructive__", "no tool"),
    ],
)
def test_invalid_exports_are_reported(tmp_path: Path, source: str, name: str, message: str) -> None:
    directory = write_tools(tmp_path, source, inner="1 / 0")
    (problem,) = ToolDiscoveryService(directory).discover().problems
    assert problem.name == name
    assert message in problem.message


def test_invalid_tool_does_not_affect_others(tmp_path: Path) -> None:
    directory = write_tools(tmp_path, GOOD + "    bad = 5\n    __all__ = ['good', 'bad']\n")
    catalogue = ToolDiscoveryService(directory).discover()
    assert list(catalogue.tools) == ["good"]
    assert [problem.name for problem in catalogue.problems] == ["bad"]


@pytest.mark.parametrize(
    "statement", ["from .parts import part", "from parts import part", "from .deep.inner import part"]
)
def test_tools_can_be_split_into_modules(tmp_path: Path, statement: str) -> None:
    part = 'def part() -> str:\n    "Do a part."\n    return "first"\n'
    directory = write_tools(tmp_path, f"{statement}\n__all__ = ['part']", parts=part)
    (directory / "deep").mkdir()
    (directory / "deep" / "__init__.py").touch()
    (directory / "deep" / "inner.py").write_text(part)
    assert list(ToolDiscoveryService(directory).discover().tools) == ["part"]


def test_reload_sees_changes_within_the_same_second(tmp_path: Path) -> None:
    part = 'def part() -> str:\n    "Do a part."\n    return "{}"\n'
    directory = write_tools(tmp_path, "from .parts import part\n__all__ = ['part']", parts=part.format("first"))
    service = ToolDiscoveryService(directory)
    for word in ("first", "other", "third"):
        (directory / "parts.py").write_text(part.format(word))
        assert service.reload_tools().tools["part"].function() == word
    assert not list(directory.rglob("*.pyc"))


def test_reload_is_atomic(tmp_path: Path) -> None:
    directory = write_tools(tmp_path, GOOD + "    __all__ = ['good']\n")
    service = ToolDiscoveryService(directory)
    before = service.discover()
    write_tools(tmp_path, "def broken(:")
    after = service.reload_tools()
    assert list(before.tools) == ["good"]
    assert before.tools["good"].function(5) == "5"
    assert not after.tools
    assert service.discover() is after


def test_selection_is_the_union_of_names_and_group(tmp_path: Path) -> None:
    catalogue = ToolDiscoveryService(SAMPLES).discover()
    assert list(catalogue.selected(["flip_coin", "none"], "math")) == ["flip_coin", *catalogue.groups["math"]]
    assert catalogue.selected([], "no such group") == {}
