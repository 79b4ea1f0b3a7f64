"""Likely mistakes in a tools directory are reported as problems, and files that are no tools are
never executed.
"""

import sys
import textwrap
from pathlib import Path

import pytest

from mochi_server.tools import Problem, ToolDiscoveryService
from mochi_server.tools.discovery import find_mistakes
from mochi_server.tools.loader import load_package
from tests.support.tools import write_tools

ROLL = '''
    def roll(sides: int = 6) -> int:
        """Roll a die."""
        return sides
'''
EXPORTED = "from .dice import roll\n__all__ = ['roll']\n"
SCRIPT = """
    from pathlib import Path
    Path(__file__).with_suffix(".ran").touch()
    while True:
        pass
"""


def problems(directory: Path) -> list[Problem]:
    return list(ToolDiscoveryService(directory).discover().problems)


def test_function_that_is_not_exported_is_a_problem(tmp_path: Path) -> None:
    advice = "Import it in __init__.py and list it in __all__, or rename it to _roll"
    directory = write_tools(tmp_path, "__all__ = []", dice=ROLL)
    assert problems(directory) == [
        Problem(
            "dice.py",
            "its function roll (line 2) is not a tool, because __all__ in __init__.py does not "
            f"list it. {advice}",
        )
    ]
    (directory / "__init__.py").unlink()
    assert problems(directory) == [
        Problem(
            "dice.py",
            f"its function roll (line 2) is not a tool, because there is no __init__.py. {advice}",
        )
    ]


@pytest.mark.parametrize(
    "other",
    [
        "def roll(sides) -> int: return 1",
        "def roll(sides: int): return 1",
        "def roll(*sides: int) -> int: return 1",
        "def _roll() -> int: return 1",
        "class Die:\n    def roll(self: 'Die') -> int: return 1",
        "def main() -> int: return 1\nif __name__ == '__main__':\n    main()",
        "def helper() -> int: return 1\nTOTAL = helper()",
    ],
)
def test_other_functions_are_no_problem(tmp_path: Path, other: str) -> None:
    assert problems(write_tools(tmp_path, EXPORTED, dice=ROLL, other=other)) == []


@pytest.mark.parametrize(
    ("dice", "other"),
    [
        ("def roll() -> int:\n    return roll()", ""),
        ("def roll() -> int: return 1", "import random\nrandom.roll(6)"),
        ("def roll() -> int: return 1", "print(object().roll)"),
        ("def roll() -> int: return 1", "from random import roll\nroll()"),
        ("def roll() -> int: return 1", "for roll in (1, 2): print(roll)"),
    ],
)
def test_function_whose_name_has_another_use_is_a_problem(
    tmp_path: Path, dice: str, other: str
) -> None:
    directory = write_tools(tmp_path, "__all__ = []", dice=dice, other=other)
    assert [problem.name for problem in problems(directory)] == ["dice.py"]


@pytest.mark.parametrize(
    "use",
    [
        "from .helper import twice\ntwice(1)",
        "from helper import twice as again",
        "from .helper import *\ntwice(1)",
        "from . import helper\nhelper.twice(1)",
        "from . import helper as own\nown.twice(1)",
        "import helper\nhelper.twice(1)",
        "import folder.helper\nfolder.helper.twice(1)",
    ],
)
@pytest.mark.parametrize("file", ["other", "__init__"])
def test_helper_that_another_file_uses_is_no_problem(tmp_path: Path, use: str, file: str) -> None:
    helper = "def twice(number: int) -> int:\n    return 2 * number\n"
    directory = write_tools(tmp_path, EXPORTED, dice=ROLL, helper=helper)
    path = directory / f"{file}.py"
    code = path.read_text() if path.exists() else ""
    path.write_text(f"{code}\n{use}\n")
    mistakes = list(find_mistakes(directory, ["roll"]))
    assert mistakes == []


def test_scripts_are_never_executed(tmp_path: Path) -> None:
    directory = write_tools(
        tmp_path, EXPORTED, dice=ROLL, forever=SCRIPT, broken="def (", leaving="raise SystemExit"
    )
    assert problems(directory) == [Problem("broken.py", "SyntaxError: invalid syntax (line 1)")]
    assert not (directory / "forever.ran").exists()


@pytest.mark.parametrize(
    ("source", "places"),
    [
        ("from .dice import roll\nfrom .coins import roll", "dice (line 1), coins (line 2)"),
        ("from .dice import *\nfrom .coins import *", "dice (line 1), coins (line 2)"),
        (
            "from .dice import roll\ndef roll() -> int:\n    'Roll.'\n    return 1",
            "dice (line 1), line 2",
        ),
    ],
)
def test_name_that_is_defined_twice_is_a_problem(tmp_path: Path, source: str, places: str) -> None:
    directory = write_tools(tmp_path, f"{source}\n__all__ = ['roll']", dice=ROLL, coins=ROLL)
    assert problems(directory) == [
        Problem(
            "roll",
            f"__init__.py defines it more than once: {places}. Only the last one is used. Rename "
            "one",
        )
    ]


def test_function_that_a_file_defines_twice_is_a_problem(tmp_path: Path) -> None:
    first, second = (
        "def roll() -> int:\n    'Roll.'\n    return 1\n",
        "def roll() -> int:\n    'Roll.'\n    return 2\n",
    )
    assert problems(write_tools(tmp_path, EXPORTED, dice=first + second)) == [
        Problem(
            "roll",
            "dice.py defines it more than once: line 1, line 4. Only the last one is used. "
            "Rename one",
        )
    ]


def test_name_that_is_imported_twice_from_one_file_is_no_problem(tmp_path: Path) -> None:
    assert problems(write_tools(tmp_path, f"from .dice import *\n{EXPORTED}", dice=ROLL)) == []


def test_concatenated_lists_lose_only_the_tools_of_a_broken_file(tmp_path: Path) -> None:
    init = (
        "from . import broken, dice\nfrom .dice import roll\n__all__ = [*broken.__all__, "
        "*dice.__all__]"
    )
    dice = f"__all__ = ['roll']\n{textwrap.dedent(ROLL)}"
    catalogue = ToolDiscoveryService(
        write_tools(tmp_path, init, dice=dice, broken="1 / 0")
    ).discover()
    assert list(catalogue.tools) == ["roll"]
    assert catalogue.problems == (
        Problem("broken.py", "ZeroDivisionError: division by zero (line 1)"),
    )


def test_file_with_null_bytes_is_one_problem(tmp_path: Path) -> None:
    directory = write_tools(
        tmp_path, f"from . import zero\nfrom .dice import roll\n{EXPORTED}zero.x", dice=ROLL
    )
    (directory / "zero.py").write_bytes(b"x = 1\0\n")
    (problem,) = problems(directory)
    assert (problem.name, "null bytes" in problem.message, "None" in problem.message) == (
        "zero.py",
        True,
        False,
    )


def test_name_that_is_listed_twice_is_a_problem(tmp_path: Path) -> None:
    directory = write_tools(
        tmp_path, "from .dice import roll as throw\n__all__ = ['throw']", dice=ROLL
    )
    assert problems(directory) == []
    directory = write_tools(tmp_path, EXPORTED + "__all__ += ['roll']", dice=ROLL)
    assert problems(directory) == [Problem("roll", "__all__ lists it more than once; remove one")]


def test_unreadable_directory_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "tools").touch()
    (problem,) = problems(tmp_path / "tools")
    assert problem == Problem("__init__.py", "its directory cannot be read: Not a directory")


def test_links_in_a_circle_are_ignored(tmp_path: Path) -> None:
    directory = write_tools(tmp_path, EXPORTED, dice=ROLL)
    for name, target in (("one.py", "two.py"), ("two.py", "one.py"), ("self", "self")):
        (directory / name).symlink_to(directory / target)
    assert problems(directory) == []


def test_star_import_of_a_broken_file_names_the_file(tmp_path: Path) -> None:
    directory = write_tools(
        tmp_path,
        "from .broken import *\nfrom .dice import roll\n__all__ = ['roll', 'lost']",
        dice=ROLL,
        broken="1 / 0",
    )
    catalogue = ToolDiscoveryService(directory).discover()
    assert list(catalogue.tools) == ["roll"]
    assert (
        Problem("broken.py", "ZeroDivisionError: division by zero (line 1)") in catalogue.problems
    )


def test_unused_files_do_not_run_when_all_modules_are_inspected(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("__all__ = []")
    (tmp_path / "script.py").write_text("raise SystemExit('executed')")
    assert load_package(tmp_path)[1] == []
    for module in list(sys.modules.values()):
        getattr(module, "__file__", None)
        getattr(module, "__wrapped__", None)
