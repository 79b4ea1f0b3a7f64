"""Discovery of tools, and problems of invalid ones."""

import asyncio
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent

import orjson
import pytest

from mochi_server.mcp.servers import McpServers
from mochi_server.tools import Problem, ToolDiscoveryService
from mochi_server.tools.registry import ToolRegistry
from tests.support.cases import cases
from tests.support.tools import SAMPLES, write_tools
from tests.support.waiting import until

GOOD = '''
    def good(a: int) -> str:
        """Be good."""
        return str(a)
'''


def test_sample_tools_are_valid() -> None:
    catalogue = ToolDiscoveryService(SAMPLES).discover()
    assert catalogue.problems == ()
    assert catalogue.groups["math"] == [
        "add_numbers",
        "subtract_numbers",
        "multiply_numbers",
        "divide_numbers",
    ]
    assert {name for name, tool in catalogue.tools.items() if tool.destructive} == {
        "write_file",
        "delete_file",
    }


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
    assert catalogue.problems == (
        Problem(
            "__init__.py",
            "its function hidden (line 14) is not a tool, because __all__ in __init__.py does "
            "not list it. Import it in __init__.py and list it in __all__, or rename it to "
            "_hidden",
        ),
    )


@cases(
    ("source", "name", "message"),
    [
        ("def broken(:\n    pass", "__init__.py", "SyntaxError"),
        ("import no_such_module_at_all\n__all__ = []", "__init__.py", "ModuleNotFoundError"),
        ("import sys\nsys.exit(3)\n__all__ = []", "__init__.py", "SystemExit"),
        (
            "from .inner import x\n__all__ = ['x']",
            "inner.py",
            "ZeroDivisionError: division by zero (line 1)",
        ),
        ("x = 1", "__all__", "list of names"),
        ("__all__ = 'good'", "__all__", "list of names"),
        ("__all__ = [['good']]", "__all__", "list of names"),
        ("__all__ = ['good', ['better']]", "__all__", "list of names"),
        ("__all__ = ['missing']", "missing", "does not exist"),
        ("__all__ = ['reload']\ndef reload() -> str:\n    'Do.'", "reload", "reserved"),
        ("__all__ = ['f']\ndef f(a) -> str:\n    'Do.'", "f", "no type"),
        ("__all__ = ['f']\nf = 5", "f", "not a function"),
        ("__all__ = []\n__group__ = ['good']", "__group__", "not in __all__"),
        ("__all__ = []\n__group__ = [print]", "__group__", "list of names in __init__.py, such"),
        ("__all__ = []\n__destructive__ = ['good']", "__destructive__", "not in __all__"),
    ],
)
def test_invalid_exports_are_reported(tmp_path: Path, source: str, name: str, message: str) -> None:
    directory = write_tools(tmp_path, source, inner="1 / 0")
    (problem,) = ToolDiscoveryService(directory).discover().problems
    assert problem.name == name
    assert message in problem.message


@pytest.mark.parametrize("attribute", [True, False])
def test_tool_with_contradictory_marks_is_destructive(tmp_path: Path, attribute: bool) -> None:
    marks = (
        f"good.destructive = {attribute}\n__read_only__ = ['good']\n__destructive__ = "
        f"{[] if attribute else ['good']}"
    )
    directory = write_tools(tmp_path, f"{dedent(GOOD)}{marks}\n__all__ = ['good']")
    assert ToolDiscoveryService(directory).discover().tools["good"].destructive


def test_invalid_tool_does_not_affect_others(tmp_path: Path) -> None:
    directory = write_tools(tmp_path, GOOD + "    bad = 5\n    __all__ = ['good', 'bad']\n")
    catalogue = ToolDiscoveryService(directory).discover()
    assert list(catalogue.tools) == ["good"]
    assert [problem.name for problem in catalogue.problems] == ["bad"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def bad(a: Callable[[int], int]) -> str:\n    'Do.'", "cannot be read from JSON"),
        ("def bad(a: Raising) -> str:\n    'Do.'", "RuntimeError: no schema"),
        ("bad = Raising()", "RuntimeError: no mark"),
        (
            "def __getattr__(name: str) -> str:\n    raise (RuntimeError if name == 'bad' else "
            "AttributeError)('no')",
            "no",
        ),
        ("bad = Leaving()", "SystemExit: 3"),
        ("def bad(a: 'exit(3)') -> str:\n    'Do.'", "annotations cannot be read: 3"),
        ("def bad(a: Unspeakable) -> str:\n    'Do.'", "Leaving"),
    ],
)
def test_tool_that_raises_when_it_is_inspected_does_not_affect_others(
    tmp_path: Path, source: str, message: str
) -> None:
    raising = """
from typing import Callable

class Raising:
    "Do."

    @property
    def destructive(self) -> bool:
        raise RuntimeError("no mark")

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> object:
        raise RuntimeError("no schema")

    def __call__(self) -> str:
        return ""

class Leaving(BaseException):
    @property
    def destructive(self) -> bool:
        raise SystemExit(3)

    def __call__(self) -> str:
        return ""

    def __str__(self) -> str:
        raise SystemExit(3)

class Unspeakable:
    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> object:
        raise Leaving
"""
    directory = write_tools(
        tmp_path, f"{dedent(GOOD)}{raising}\n{source}\n__all__ = ['bad', 'good']"
    )
    catalogue = ToolDiscoveryService(directory).discover()
    assert list(catalogue.tools) == ["good"]
    (problem,) = (problem for problem in catalogue.problems if problem.name == "bad")
    assert message in problem.message


@cases(
    "failure",
    ["raise SystemExit(3)", "raise Unspeakable", "raise GeneratorExit", "raise KeyboardInterrupt"],
)
def test_file_that_raises_a_base_exception_affects_no_other_file(
    tmp_path: Path, failure: str
) -> None:
    broken = (
        "class Unspeakable(BaseException):\n    def __str__(self) -> str:\n        raise "
        f"SystemExit\n{failure}"
    )
    source = "from .broken import bad\nfrom .whole import good\n__all__ = ['bad', 'good']"
    directory = write_tools(tmp_path, source, broken=broken, whole=GOOD)
    catalogue = ToolDiscoveryService(directory).discover()
    assert list(catalogue.tools) == ["good"]
    (problem,) = catalogue.problems
    assert problem.name == "broken.py"
    assert failure.split()[1].partition("(")[0] in problem.message
    assert "(line 4)" in problem.message


def test_problems_can_be_encoded(tmp_path: Path) -> None:
    source = (
        "from .broken import bad\nfrom .whole import good\n__all__ = ['bad', 'good', '\\udc80']"
    )
    directory = write_tools(tmp_path, source, broken="raise RuntimeError('\\udc80')", whole=GOOD)
    catalogue = ToolDiscoveryService(directory).discover()
    assert list(catalogue.tools) == ["good"]
    assert {problem.name for problem in catalogue.problems} == {"broken.py", r"\udc80"}
    assert r"RuntimeError: \udc80 (line 1)" in orjson.loads(
        orjson.dumps([each.message for each in catalogue.problems])
    )


def test_problems_of_a_directory_without_init_can_be_encoded(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.py")).write_text("def (")
    (problem,) = ToolDiscoveryService(tmp_path).discover().problems
    assert problem.name == r"caf\udce9.py"


def test_unused_file_that_the_parser_cannot_read_does_not_affect_others(tmp_path: Path) -> None:
    directory = write_tools(
        tmp_path,
        "from .whole import good\n__all__ = ['good']",
        whole=GOOD,
        unused="-" * 100_000 + "1",
    )
    assert list(ToolDiscoveryService(directory).discover().tools) == ["good"]


def test_broken_file_disables_only_its_own_tools(tmp_path: Path) -> None:
    directory = write_tools(
        tmp_path,
        """
        from .broken import first
        from .uses import second
        from .whole import good
        __all__ = ["first", "second", "good"]
        __pair__ = ["first", "good"]
        """,
        broken=f"{dedent(GOOD)}first = good\nraise RuntimeError('no')",
        uses=dedent(GOOD).replace("return str(a)", "return first(a)")
        + "from .broken import first\nsecond = good",
        whole=GOOD,
    )
    catalogue = ToolDiscoveryService(directory).discover()
    assert list(catalogue.tools) == ["second", "good"]
    assert catalogue.groups == {"pair": ["good"]}
    assert catalogue.problems == (Problem("broken.py", "RuntimeError: no (line 6)"),)
    with pytest.raises(ImportError, match=r"broken\.py could not be imported"):
        catalogue.tools["second"].function(1)


def test_problem_names_the_path_and_line_of_a_nested_file(tmp_path: Path) -> None:
    directory = write_tools(tmp_path, "from .deep.inner import part\n__all__ = []")
    (directory / "deep").mkdir()
    (directory / "deep" / "__init__.py").touch()
    (directory / "deep" / "inner.py").write_text("\n\npart = = 1")
    assert ToolDiscoveryService(directory).discover().problems == (
        Problem("deep/inner.py", "SyntaxError: invalid syntax (line 3)"),
    )


def test_relative_directory_has_the_same_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tools(tmp_path, "from .parts import part\n__all__ = ['part']\n1 / 0", parts="part = (")
    monkeypatch.chdir(tmp_path)
    assert ToolDiscoveryService("tools").discover().problems == (
        Problem("parts.py", "SyntaxError: '(' was never closed (line 1)"),
        Problem("__init__.py", "ZeroDivisionError: division by zero (line 3)"),
    )


def test_directories_do_not_share_modules(tmp_path: Path) -> None:
    source = "from parts import part\n__all__ = ['part']"
    part = 'def part() -> str:\n    "Do a part."\n    return "{}"\n'
    found = []
    for word in ("one", "two"):
        (tmp_path / word).mkdir()
        directory = write_tools(tmp_path / word, source, parts=part.format(word))
        found.append(ToolDiscoveryService(directory).discover().tools["part"].function)
    assert [function() for function in found] == ["one", "two"]
    assert "parts" not in sys.modules


@pytest.mark.parametrize(
    "statement",
    [
        "import parts",
        "import parts as p; parts = p",
        "from . import parts",
        "from parts import words; import parts",
        "import deep.inner; parts = deep.inner.parts",
        "import deep.inner as inner; parts = inner.parts",
    ],
)
def test_functions_can_import_files_of_the_directory(tmp_path: Path, statement: str) -> None:
    source = (
        f'def tool() -> str:\n    "Do it."\n    {statement}\n    return '
        'parts.words.WORD\n__all__ = ["tool"]'
    )
    directory = write_tools(
        tmp_path, source, parts="import words", words="WORD = 'here'", others="import parts"
    )
    (directory / "deep").mkdir()
    (directory / "deep" / "__init__.py").touch()
    (directory / "deep" / "inner.py").write_text("import parts")
    assert ToolDiscoveryService(directory).discover().tools["tool"].function() == "here"


def test_import_of_a_missing_submodule_is_a_problem(tmp_path: Path) -> None:
    source = f"    import parts.gone\n{GOOD}    __all__ = ['good']\n"
    directory = write_tools(tmp_path, source, parts="")
    catalogue = ToolDiscoveryService(directory).discover()
    assert [problem.message for problem in catalogue.problems] == [
        "ModuleNotFoundError: No module named 'parts.gone'; 'parts' is not a package (line 1). "
        "Install its package for the Python of the server, or correct the import"
    ]
    assert list(catalogue.tools) == ["good"]


@pytest.mark.parametrize(
    "statement",
    ["from .parts import part", "from parts import part", "from .deep.inner import part"],
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
    directory = write_tools(
        tmp_path, "from .parts import part\n__all__ = ['part']", parts=part.format("first")
    )
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
    assert list(catalogue.selected(["flip_coin", "none"], "math")) == [
        "flip_coin",
        *catalogue.groups["math"],
    ]
    assert catalogue.selected([], "no such group") == {}


async def test_reload_replaces_an_import_that_hangs(tmp_path: Path) -> None:
    directory = write_tools(tmp_path, "import threading; threading.Event().wait()")
    tools = ToolRegistry(
        ToolDiscoveryService(directory), McpServers(directory), import_seconds=0.05
    )
    timed_out = await tools.directory_tools()
    assert [problem.message for problem in timed_out.problems] == [
        "the import took longer than 0.05 seconds"
    ]
    assert await tools.directory_tools() is timed_out  # without waiting again
    write_tools(tmp_path, f"{GOOD}\n    __all__ = ['good']\n")
    tools.import_seconds = 30
    assert list((await tools.reload()).tools) == ["good"]
    assert list((await tools.catalogue()).tools) == ["good"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no FIFOs")
async def test_reload_that_hangs_is_a_problem_until_it_ends(tmp_path: Path) -> None:
    directory = write_tools(tmp_path, f"{GOOD}\n    __all__ = ['good']\n")
    discovery = ToolDiscoveryService(directory)
    tools = ToolRegistry(discovery, McpServers(directory))
    good = await tools.directory_tools()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    write_tools(tmp_path, f"{GOOD}\n    __all__ = ['good']\n    open({str(gate)!r}).close()\n")
    tools.import_seconds = 0.05
    for _ in range(2):
        reloaded = await tools.reload()
        assert reloaded == await tools.catalogue()
        assert reloaded.tools == good.tools
        assert [problem.message for problem in reloaded.problems] == [
            "the import took longer than 0.05 seconds"
        ]
    gate.write_text("")  # ends the imports
    await asyncio.to_thread(until, lambda: discovery.cached is not good)
    ended = await tools.catalogue()
    assert (list(ended.tools), ended.problems) == (["good"], ())


async def test_slow_import_is_used_when_it_ends(tmp_path: Path) -> None:
    directory = write_tools(
        tmp_path, f"{GOOD}\n    __all__ = ['good']\n    import time; time.sleep(0.2)\n"
    )
    discovery = ToolDiscoveryService(directory)
    tools = ToolRegistry(discovery, McpServers(directory), import_seconds=0.05)
    assert not (await tools.catalogue()).tools
    await asyncio.to_thread(discovery.discover)  # waits for the import
    assert list((await tools.catalogue()).tools) == ["good"]


def test_broken_package_is_reported_while_other_threads_import_modules(tmp_path: Path) -> None:
    directory = write_tools(tmp_path, "import nothing\n__all__ = []")
    ended = threading.Event()

    def import_modules() -> None:
        while not ended.is_set():
            for index in range(500):
                sys.modules[f"_imported_{index}"] = sys
            for index in range(500):
                del sys.modules[f"_imported_{index}"]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # the server's threads switch often, too
    with ThreadPoolExecutor() as threads:
        threads.submit(import_modules)
        try:
            found = {
                problem
                for _ in range(15)
                for problem in ToolDiscoveryService(directory).discover().problems
            }
        finally:
            ended.set()
            sys.setswitchinterval(interval)
    (problem,) = found
    assert problem.name == "__init__.py"
    assert problem.message.startswith("ModuleNotFoundError: No module named 'nothing' (line 1). ")


def test_broken_init_loses_only_what_it_cannot_load(tmp_path: Path) -> None:
    source = """
        from __future__ import annotations
        import no_such_module
        from .dice import nothing, roll
        from .weather import *
        LIMIT = 1 / 0
        def double(number: int) -> int:
            "Double a number."
            return 2 * number
        __all__ = ["nothing", "roll", "double"]
        __games__ = ["roll"]
    """
    roll = 'def roll() -> int:\n    "Roll a die."\n    return 4\n'
    directory = write_tools(tmp_path, source, dice=roll, weather="(")
    catalogue = ToolDiscoveryService(directory).discover()
    assert list(catalogue.tools) == ["roll", "double"]
    assert catalogue.groups == {"games": ["roll"]}
    assert {problem.name for problem in catalogue.problems} == {"__init__.py", "weather.py"}
    messages = [each.message for each in catalogue.problems if each.name == "__init__.py"]
    assert messages[0] == (
        "ModuleNotFoundError: No module named 'no_such_module' (line 3). "
        "Install its package for the Python of the server, or correct the import"
    )
    assert messages[1] == (
        "ImportError: cannot import name 'nothing' from 'dice' (dice.py) (line 4). "
        "Define this name there, or correct the import"
    )
    assert messages[2] == "ZeroDivisionError: division by zero (line 6)"
