"""Import of a directory of Python files as a package.

A broken file disables only its own functions.
"""

import __future__

import ast
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from itertools import count
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

from mochi_server.util import regular_files
from mochi_server.util.text import text_of_error

LEADS_OUT = "a link that leads out of the directory"

_PREFIX = "_mochi_tools_"
_MAX_BYTES = 32 * 1024 * 1024  # of a Python file
_generations = count(1)
"""Numbers of the imports.

Each import uses a new package name, so that a reload imports every file again.
"""
_PARSER = Lock()  # CPython 3.11 may fail if two threads create syntax trees at once


@dataclass(frozen=True)
class Problem:
    """Problem with the tool, tool group, file or MCP server called ``name``."""

    name: str
    message: str


@dataclass(frozen=True)
class UnavailableFunction:
    """Placeholder for a function whose file could not be imported."""

    file: str

    def __call__(self, *_: object, **__: object) -> None:
        raise ImportError(f"{self.file} could not be imported")

    def named(self, name: str) -> "UnavailableFunction":
        """Return this placeholder as the attribute ``name`` of a module.

        Raises ``AttributeError`` for names such as ``__path__``.
        """
        if name.startswith("__"):
            raise AttributeError(name)
        return self


def leads_out(path: Path, directory: Path) -> bool:
    """Return whether ``path`` resolves to a location outside ``directory``."""
    return not path.resolve().is_relative_to(directory.resolve())


def parse_file(path: Path) -> ast.Module:
    """Return the syntax tree of a Python file.

    Raises ``OSError``, ``SyntaxError`` or ``ValueError``. If the code is nested too deeply, raises
    ``MemoryError`` or ``RecursionError``.
    """
    data = regular_files.read_bytes(path, _MAX_BYTES)
    with _PARSER:
        return ast.parse(data, path)


def describe(error: BaseException, line: int | None) -> str:
    """Return the type and the message of an import error, and the line if it is known."""
    description = type(error).__name__
    text = getattr(error, "msg", None) or text_of_error(error)
    if text:
        description += f": {text}"
    if line:
        description += f" (line {line})"
    return description + _advice(error, text or "")


def _advice(error: BaseException, text: str) -> str:
    """Return how to correct a failed import, or ""."""
    if isinstance(error, ModuleNotFoundError):
        return ". Install its package for the Python of the server, or correct the import"
    if isinstance(error, ImportError) and text.startswith("cannot import name"):
        return ". Define this name there, or correct the import"
    return ""


def location(function: object) -> str:
    """Return the module and the name of a function as ``MODULE:NAME``, which is the same after a
    reload.
    """
    module = str(getattr(function, "__module__", ""))
    name = getattr(function, "__qualname__", "")
    if module.startswith(_PREFIX):
        module = module.partition(".")[2] or "__init__"
    return f"{module}:{name}"


def load_package(directory: Path) -> tuple[ModuleType | None, list[Problem]]:
    """Import a directory.

    Return its package and the problems found. The package is None if ``__init__.py`` cannot be read
    or compiled. A statement of ``__init__.py`` that fails is only a problem.
    """
    importer = _PackageImporter(directory.absolute())
    _importers[importer.name] = importer
    try:
        return import_module(importer.name), importer.problems
    except BaseException:
        # User code may raise anything, including SystemExit. `exec_module` has reported it.
        for name in list(sys.modules):
            if name.startswith(f"{importer.name}."):
                del sys.modules[name]
        return None, importer.problems


class _PackageImporter(Loader):
    """Module loader for the Python files of a directory.

    If a file is broken, placeholders replace its functions.
    """

    def __init__(self, directory: Path) -> None:
        self.name = f"{_PREFIX}{next(_generations)}"
        self.problems: list[Problem] = []
        self._directory = directory

    @staticmethod
    def find_spec(name: str, *_: object) -> ModuleSpec | None:
        package, *parts = name.split(".")
        loader = _importers.get(package)
        if loader is None:
            return None
        path = loader._directory.joinpath(*parts)
        file = path / "__init__.py"
        if not parts or file.is_file():
            folders = [str(path)]
            return spec_from_file_location(
                name, file, loader=loader, submodule_search_locations=folders
            )
        file = path.with_suffix(".py")
        if file.is_file():
            return spec_from_file_location(name, file, loader=loader)
        return None

    def exec_module(self, module: ModuleType) -> None:
        file = Path(str(module.__file__))
        try:
            self._execute(file, module)
        except BaseException as error:  # user code may raise anything
            self._report(error, file)
            if module.__name__ == self.name:
                raise
            names = vars(module)
            for name in list(names):
                if not name.startswith("__"):
                    del names[name]
            names.setdefault("__all__", [])  # packages often concatenate the lists of their files
            names["__getattr__"] = UnavailableFunction(file.name).named

    def _execute(self, path: Path, module: ModuleType) -> None:
        if leads_out(path, self._directory):
            raise ImportError(f"it is {LEADS_OUT}")
        tree = parse_file(path)
        self._make_relative(tree)
        with _PARSER:
            code = compile(tree, path, "exec", dont_inherit=True)
        if module.__name__ == self.name:
            self._execute_each(
                path, tree, code.co_flags & __future__.annotations.compiler_flag, vars(module)
            )
        else:
            exec(code, vars(module))  # noqa: S102 - this is an import

    def _execute_each(
        self, path: Path, tree: ast.Module, flags: int, variables: dict[str, Any]
    ) -> None:
        """Execute the statements of a file one by one.

        One that fails is reported, and placeholders replace the names that it would import.
        """
        for statement in _split_imports(tree.body):
            with _PARSER:
                code = compile(
                    ast.Module([statement], []), path, "exec", flags=flags, dont_inherit=True
                )
            try:
                exec(code, variables)  # noqa: S102 - this is an import
            except BaseException as error:  # user code may raise anything
                self._report(error, path)
                if isinstance(statement, ast.Import | ast.ImportFrom):
                    for alias in statement.names:
                        name = alias.asname or _first_name(alias.name)
                        variables[name] = UnavailableFunction(path.name)

    def _report(self, error: BaseException, file: Path) -> None:
        """Record an import error with file and line.

        The message contains no path outside of the directory.
        """
        line: int | None = None
        frames = traceback.extract_tb(error.__traceback__)
        places = [(frame.filename, frame.lineno) for frame in frames]
        if isinstance(error, SyntaxError) and error.filename:
            places.append((error.filename, error.lineno))
        for name, number in places:
            path = Path(name)
            if path.is_relative_to(self._directory):
                file = path
                line = number
        text = describe(error, line).replace(f"{self.name}.", "")
        for directory in (self._directory.resolve(), self._directory):
            text = text.replace(f"{directory}{os.sep}", "")
        self.problems.append(Problem(file.relative_to(self._directory).as_posix(), text))

    def _make_relative(self, tree: ast.Module) -> None:
        """Rewrite the imports in ``tree``, so that ``import weather`` imports ``weather.py`` from
        the directory.
        """
        siblings = {path.stem for path in modules_in(self._directory)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and not node.level:
                if _first_name(str(node.module)) in siblings:
                    node.module = f"{self.name}.{node.module}"
            elif isinstance(node, ast.Import):
                names = []
                for alias in node.names:
                    if _first_name(alias.name) in siblings:
                        names += self._relative(alias)
                    else:
                        names.append(alias)
                node.names = names

    def _relative(self, alias: ast.alias) -> list[ast.alias]:
        """Return the names with which an import statement imports a module of the directory."""
        module = copy(alias)
        module.name = f"{self.name}.{alias.name}"
        if alias.asname:
            return [module]
        if "." not in alias.name:
            module.asname = alias.name
            return [module]
        # The first name imports the module, and the second binds the name of its package.
        package = copy(module)
        module.asname = package.asname = _first_name(alias.name)
        package.name = f"{self.name}.{package.asname}"
        return [module, package]


def _split_imports(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a file, with one import statement for each imported name."""
    for statement in statements:
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            yield statement
            continue
        for alias in statement.names:
            single = copy(statement)
            single.names = [alias]
            yield single


def _first_name(module: str) -> str:
    return module.partition(".")[0]


def modules_in(directory: Path) -> Iterator[Path]:
    """Yield the paths of the modules in a directory: Python files, and folders that contain an
    ``__init__.py``.
    """
    paths: list[Path] = []
    with suppress(OSError):  # a folder may be unreadable
        paths = sorted(directory.iterdir())
    for path in paths:
        is_module = path.suffix == ".py" and path.stem != "__init__"
        with suppress(OSError):
            if is_module or (path / "__init__.py").is_file():
                yield path


_importers: dict[str, _PackageImporter] = {}
"""Importers by the name of their package.

None is removed, because a function of a tool may import further files.
"""
sys.meta_path.insert(0, _PackageImporter)
