"""Import of a directory of Python files as a package. A broken file disables only its own functions."""

import ast
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.abc import Loader
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from threading import Lock, RLock
from types import ModuleType
from typing import Any

LEADS_OUT = "a link that leads out of the directory"

_PREFIX = "_mochi_tools_"
_generations = count(1)
"""Counter for package names. Each import uses a new name, so that a reload imports every file again."""

_PARSER = Lock()
"""Lock that is held while a syntax tree is created. CPython 3.11 may fail if two threads create trees at once."""


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
        if name.startswith("__"):
            raise AttributeError(name)
        return self


def leads_out(path: Path, directory: Path) -> bool:
    """Return whether ``path`` resolves to a location outside ``directory``."""
    return not path.resolve().is_relative_to(directory.resolve())


def parse_file(path: Path) -> ast.Module:
    """Return the syntax tree of a Python file. Raises ``OSError``, ``SyntaxError`` or ``ValueError``."""
    with _PARSER:
        return ast.parse(path.read_bytes(), path)


def describe(error: BaseException, line: int | None) -> str:
    """Return the type and the message of an import error, and the line if it is known."""
    return f"{type(error).__name__}: {getattr(error, 'msg', None) or error}{f' (line {line})' if line else ''}"


def location(function: object) -> str:
    """Return the module and the name of a function as ``MODULE:NAME``, which is the same after a reload."""
    module, name = (str(getattr(function, key, "")) for key in ("__module__", "__qualname__"))
    if module.startswith(_PREFIX):
        module = module.partition(".")[2] or "__init__"
    return f"{module}:{name}"


def load_package(directory: Path) -> tuple[ModuleType | None, list[Problem]]:
    """Import a directory. Return its package, or None if ``__init__.py`` fails, and the problems found."""
    directory = directory.absolute()
    importer = _PackageImporter(directory)
    try:
        package = importer.create(importer.name, directory)
        importer.execute(package)
    except BaseException as error:  # user code may raise anything, including SystemExit
        importer.report(error, directory / "__init__.py")
        for name in [name for name in list(sys.modules) if f"{name}.".startswith(f"{importer.name}.")]:
            del sys.modules[name]
        return None, importer.problems
    return package, importer.problems


class _PackageImporter(Loader):
    """Module loader for the Python files of a directory. If a file is broken, placeholders replace its functions."""

    def __init__(self, directory: Path) -> None:
        self.name = f"{_PREFIX}{next(_generations)}"
        self.problems: list[Problem] = []
        self._unused: set[str] = set()
        """Names of the modules that have not been executed."""
        self._lock = RLock()
        """Lock that is held while a module is executed at its first use."""
        self._directory = directory

    def create(self, name: str, path: Path) -> ModuleType:
        """Create the module of a file, or of a folder and its submodules. No code is executed yet."""
        is_folder = path.is_dir()
        file, folders = (path / "__init__.py", [str(path)]) if is_folder else (path, None)
        spec = spec_from_file_location(name, file, loader=self, submodule_search_locations=folders)
        assert spec is not None  # noqa: S101 - there is a loader
        module = sys.modules[name] = module_from_spec(spec)
        if is_folder and not leads_out(path, self._directory):
            for inner in modules_in(path):
                setattr(module, inner.stem, self.create(f"{name}.{inner.stem}", inner))
        if name != self.name:
            self._unused.add(name)
            vars(module)["__getattr__"] = partial(self._attribute, module)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._unused.discard(module.__name__)
        try:
            self.execute(module)
        except BaseException as error:  # user code may raise anything
            file = Path(str(module.__file__))
            self.report(error, file)
            names = vars(module)
            for name in [name for name in names if not name.startswith("__")]:
                del names[name]
            names.setdefault("__all__", [])  # packages often concatenate the lists of their files
            names["__getattr__"] = UnavailableFunction(file.name).named

    def execute(self, module: ModuleType) -> None:
        """Execute the code of a module. Raises any error of that code."""
        path = Path(str(module.__file__))
        if leads_out(path, self._directory):
            raise ImportError(f"it is {LEADS_OUT}")
        tree = parse_file(path)
        self._make_relative(tree)
        with _PARSER:
            code = compile(tree, path, "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - this is an import

    def report(self, error: BaseException, file: Path) -> None:
        """Record an import error with file and line. The message contains no path outside of the directory."""
        line: int | None = None
        locations = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        if isinstance(error, SyntaxError) and error.filename:
            locations.append((Path(error.filename), error.lineno))
        for location in locations:
            if location[0].is_relative_to(self._directory):
                file, line = location
        text = describe(error, line)
        for directory in (self._directory.resolve(), self._directory):
            text = text.replace(f"{directory}{os.sep}", "")
        self.problems.append(Problem(file.relative_to(self._directory).as_posix(), text))

    def _attribute(self, module: ModuleType, name: str) -> Any:
        """Return an attribute that the module does not have yet. At the first use, execute the module."""
        # Special attributes, such as `__wrapped__`, are no use, because some libraries inspect all modules.
        if name == "__all__" or not name.startswith("__"):
            with self._lock:
                if module.__name__ in self._unused:
                    self.exec_module(module)
            names = vars(module)
            if name in names:
                return names[name]
            if not isinstance(names["__getattr__"], partial):  # the file defines its own, or is broken
                return names["__getattr__"](name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)

    def _make_relative(self, tree: ast.Module) -> None:
        """Rewrite the imports in ``tree``, so that ``import weather`` imports ``weather.py`` from the directory."""
        siblings = {path.stem for path in modules_in(self._directory)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and not node.level and str(node.module).partition(".")[0] in siblings:
                node.module = f"{self.name}.{node.module}"
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.partition(".")[0]
                    if first in siblings:
                        alias.name = f"{self.name}.{alias.name if alias.asname else first}"
                        alias.asname = alias.asname or first


def modules_in(directory: Path) -> Iterator[Path]:
    """Yield the paths of the modules in a directory: Python files, and folders that contain an ``__init__.py``."""
    paths: list[Path] = []
    with suppress(OSError):  # a folder may be unreadable
        paths = sorted(directory.iterdir())
    for path in paths:
        with suppress(OSError):
            if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").is_file():
                yield path
