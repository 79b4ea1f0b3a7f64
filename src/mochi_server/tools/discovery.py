"""Finding tools in a directory of Python files, and what is wrong with those that cannot be used.

The directory is imported as a package under a name of its own each time, from its sources and never from caches, so
that a reload really reloads. Nothing that user code does here stops the server.
"""

import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from itertools import count
from pathlib import Path
from types import CodeType, MappingProxyType, ModuleType
from typing import Any

from mochi_server.errors import ToolNotFound
from mochi_server.tools.schema import NotATool, ToolSchema, ToolSchemaService

RESERVED_NAMES = frozenset({"executions", "reload"})
"""Routes beside ``/tools/{tool_name}``."""

_DESTRUCTIVE, _READ_ONLY = "__destructive__", "__read_only__"
_NOT_GROUPS = frozenset({"__all__", "__path__", "__builtins__", _DESTRUCTIVE, _READ_ONLY})

LEADS_OUT = "a link that leads out of the directory"

_IMPORT_SECONDS = 20

_generations = count(1)
_importing = threading.Lock()
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tool:
    """A function that models may call. ``read_only``: it is known to change nothing."""

    name: str
    function: Callable[..., Any]
    schema: ToolSchema
    read_only: bool = False
    source: str | None = None
    """Where it is from and what it is called there, unless it is the directory's."""

    @property
    def destructive(self) -> bool:
        """Whether a careful policy asks before it runs: everything not known to be read-only."""
        return not self.read_only

    @property
    def approved_as(self) -> str:
        """What approvals are remembered by: another tool may have its name another time."""
        return self.source or self.name


@dataclass(frozen=True)
class Problem:
    """Something that cannot be used; ``name`` is a tool, a group, a file or an MCP server."""

    name: str
    message: str


@dataclass(frozen=True)
class ToolCatalogue:
    """What a directory offers. Tools in the order of ``__all__``."""

    tools: Mapping[str, Tool] = field(default_factory=lambda: MappingProxyType({}))
    groups: Mapping[str, list[str]] = field(default_factory=lambda: MappingProxyType({}))
    problems: tuple[Problem, ...] = ()

    def get(self, name: str) -> Tool:
        """A tool by name. Raises ``ToolNotFound``."""
        if name not in self.tools:
            raise ToolNotFound(name)
        return self.tools[name]

    def selected(self, names: Sequence[str], group: str | None) -> dict[str, Tool]:
        """The tools that a session's settings mean: those named and those of the group, as far as they exist."""
        wanted = [*names, *self.groups.get(group or "", ())]
        return {name: self.tools[name] for name in dict.fromkeys(wanted) if name in self.tools}


class ToolDiscoveryService:
    """The tools of one directory, found at first use and again at each ``reload_tools``."""

    def __init__(self, tools_dir: str | Path, schemas: ToolSchemaService | None = None) -> None:
        self._directory = Path(tools_dir)
        self._schemas = schemas or ToolSchemaService()
        self._catalogue: ToolCatalogue | None = None
        self._lock = threading.Lock()

    @property
    def found(self) -> ToolCatalogue | None:
        """What was found last, if anybody looked."""
        return self._catalogue

    def discover(self) -> ToolCatalogue:
        """What the directory offers; looked at once. Blocks while user code is imported."""
        with self._lock:
            if self._catalogue is None:
                self._catalogue = self._look()
            return self._catalogue

    def reload_tools(self) -> ToolCatalogue:
        """Look again. Whoever uses the tools meanwhile has all of the old ones or all of the new ones."""
        catalogue = self._look()
        with self._lock:
            self._catalogue = catalogue
        return catalogue

    def _look(self) -> ToolCatalogue:
        self._schemas.clear()
        catalogue = find_tools(self._directory, self._schemas)
        for problem in catalogue.problems:
            logger.warning("%s in %s: %s", problem.name, self._directory, problem.message)
        return catalogue


def find_tools(directory: Path, schemas: ToolSchemaService) -> ToolCatalogue:
    """Import a directory's ``__init__.py`` and read its exports, groups and marks. Never raises."""
    start = directory / "__init__.py"
    try:
        if not start.is_file():
            return ToolCatalogue()
    except OSError as error:  # a folder on the way that may not be looked into
        return ToolCatalogue(problems=(Problem(start.name, f"it cannot be read: {error.strerror}"),))
    try:
        package = load_package(directory)
    except BaseException as error:  # importing runs user code, which may even call sys.exit
        return ToolCatalogue(problems=(Problem(_culprit(error, directory), _describe(error, directory)),))
    return _Reader(package, schemas).catalogue()


def leads_out(path: Path, directory: Path) -> bool:
    """Whether a file of a directory is really somewhere else."""
    return not path.resolve().is_relative_to(directory.resolve())


def load_package(directory: Path) -> ModuleType:
    """Import a directory as a package under a fresh name, its submodules too, always from their sources."""
    name, start = f"_mochi_tools_{next(_generations)}", directory / "__init__.py"
    if leads_out(start, directory):
        raise ImportError(f"it is {LEADS_OUT}")
    loader = _SourceLoader(name, str(start))
    spec = importlib.util.spec_from_file_location(
        name, start, loader=loader, submodule_search_locations=[str(directory)]
    )
    assert spec is not None  # noqa: S101 - the loader is ours
    package = importlib.util.module_from_spec(spec)
    if not _importing.acquire(timeout=_IMPORT_SECONDS):
        raise TimeoutError("another import has not come to an end")
    try:
        with _siblings_importable(directory, name):
            sys.modules[name] = package
            loader.exec_module(package)
    except BaseException:
        _forget(name)
        raise
    finally:
        _importing.release()
    return package


class _SourceLoader(SourceFileLoader):
    """Reads sources only: compiled files are trusted by whole seconds, and people edit faster."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class _Finder(MetaPathFinder):
    """Finds the submodules of one loaded package, and, for the thread that imports it, its files by bare names."""

    def __init__(self, directory: Path, package: str) -> None:
        self._files = FileFinder(str(directory), (_SourceLoader, [".py"]))
        self._package = package
        self._directory = directory
        self._thread = threading.get_ident()

    def find_spec(self, fullname: str, path: Sequence[str] | None, _: ModuleType | None = None) -> ModuleSpec | None:
        if fullname.startswith(f"{self._package}."):
            files = FileFinder(path[0], (_SourceLoader, [".py"])) if path else self._files
            return self._inside(files.find_spec(fullname))
        ours = path is None and threading.get_ident() == self._thread
        if ours and (self._directory / f"{fullname}.py").is_file():
            return self._inside(self._files.find_spec(fullname))
        return None

    def _inside(self, spec: ModuleSpec | None) -> ModuleSpec | None:
        if spec is not None and spec.origin is not None and leads_out(Path(spec.origin), self._directory):
            raise ImportError(f"{Path(spec.origin).name} is {LEADS_OUT}")
        return spec


@contextmanager
def _siblings_importable(directory: Path, package: str) -> Iterator[None]:
    """While a package is imported, its files are found, and found first; bare names are forgotten afterwards."""
    finder = _Finder(directory, package)
    bare = {path.stem for path in directory.glob("*.py")} - {"__init__"}
    shadowed = {name: sys.modules.pop(name) for name in bare if name in sys.modules}
    # New lists: threads that import something else meanwhile go through the old one, and would miss a finder in it.
    sys.meta_path = [finder, *sys.meta_path]
    try:
        yield
    finally:
        sys.meta_path = [other for other in sys.meta_path if other is not finder]
        for name in bare:
            sys.modules.pop(name, None)
        sys.modules.update(shadowed)


def _forget(package: str) -> None:
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]


class _Reader:
    """Reads what a package exports, collecting what is wrong."""

    def __init__(self, package: ModuleType, schemas: ToolSchemaService) -> None:
        self._package = package
        self._schemas = schemas
        self._problems: list[Problem] = []

    def catalogue(self) -> ToolCatalogue:
        exported = self._names("__all__", required=True)
        read_only, destructive = set(self._names(_READ_ONLY)), set(self._names(_DESTRUCTIVE))
        for marks, which in ((read_only, _READ_ONLY), (destructive, _DESTRUCTIVE)):
            self._complain_of_strangers(which, marks - set(exported))
        tools = {
            name: tool
            for name in exported
            if (tool := self._tool(name, read_only=name in read_only, destructive=name in destructive)) is not None
        }
        groups = {
            name.strip("_"): self._members(name, value, tools)
            for name, value in vars(self._package).items()
            if _is_dunder(name) and name not in _NOT_GROUPS and isinstance(value, list | tuple)
        }
        return ToolCatalogue(MappingProxyType(tools), MappingProxyType(groups), tuple(self._problems))

    def _tool(self, name: str, *, read_only: bool, destructive: bool) -> Tool | None:
        function = getattr(self._package, name, None)
        try:
            if name in RESERVED_NAMES:
                raise NotATool("the name is reserved")
            if function is None:
                raise NotATool("__all__ names it, and it does not exist")
            schema = self._schemas.schema_of(function, name)
        except NotATool as error:
            self._complain(name, str(error))
            return None
        marked = getattr(function, "destructive", None)
        if isinstance(marked, bool):
            read_only, destructive = not marked, marked
        return Tool(name, function, schema, read_only=read_only and not destructive)

    def _names(self, variable: str, *, required: bool = False) -> list[str]:
        value = getattr(self._package, variable, None)
        if value is None and not required:
            return []
        if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
            self._complain(variable, "it must be a list of names in __init__.py")
            return []
        return list(dict.fromkeys(value))

    def _members(self, variable: str, value: Sequence[object], tools: Mapping[str, Tool]) -> list[str]:
        self._complain_of_strangers(variable, {str(name) for name in value if name not in tools})
        return [str(name) for name in value if name in tools]

    def _complain_of_strangers(self, variable: str, names: set[str]) -> None:
        for name in sorted(names):
            self._complain(variable, f"it names {name!r}, which is no tool of __all__")

    def _complain(self, name: str, message: str) -> None:
        self._problems.append(Problem(name, message))


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and len(name) > 4


def _culprit(error: BaseException, directory: Path) -> str:
    """The file of the directory in which an import failed."""
    if isinstance(error, SyntaxError) and error.filename:
        return Path(error.filename).name
    trace, found = error.__traceback__, "__init__.py"
    while trace is not None:
        path = Path(trace.tb_frame.f_code.co_filename)
        found = path.name if path.parent == directory else found
        trace = trace.tb_next
    return found


def _describe(error: BaseException, directory: Path) -> str:
    """An error in words, without the way to the directory, which is nobody's business who asks over HTTP."""
    where = f" (line {error.lineno})" if isinstance(error, SyntaxError) else ""
    text = f"{type(error).__name__}: {getattr(error, 'msg', None) or error}{where}"
    return text.replace(f"{directory.resolve()}{os.sep}", "").replace(f"{directory}{os.sep}", "")
