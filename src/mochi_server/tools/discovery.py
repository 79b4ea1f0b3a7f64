"""Discovery of tools in a directory of Python files, and of likely mistakes in these files."""

import ast
import logging
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from mochi_server.errors import ToolNotFound
from mochi_server.sessions.caller import CALLER
from mochi_server.tools.loader import (
    Problem,
    UnavailableFunction,
    describe,
    leads_out,
    load_package,
    location,
    modules_in,
    parse_file,
)
from mochi_server.tools.schema import InvalidTool, ToolSchema, make_schema

RESERVED_NAMES = frozenset({"executions", "reload"})
"""Names that no tool can have, because ``/tools/{tool_name}`` would conflict with other routes."""

_DESTRUCTIVE = "__destructive__"
_READ_ONLY = "__read_only__"
_NOT_GROUPS = frozenset({"__all__", "__path__", _DESTRUCTIVE, _READ_ONLY})
_INIT = "__init__.py"
_NO_NAMES = 'it must be a list of names in __init__.py, such as ["add"]'

_Function = ast.FunctionDef | ast.AsyncFunctionDef
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tool:
    """Function that models may call.

    ``read_only`` is true if the function is declared to have no side effects.
    """

    name: str
    function: Callable[..., Any]
    schema: ToolSchema
    read_only: bool = False
    source: str | None = None
    """MCP server and original name of an MCP tool, as ``mcp:SERVER/NAME``.

    None for tools of the tools directory.
    """

    @property
    def destructive(self) -> bool:
        """Whether calls need approval under the policy ``confirm_destructive``.

        True unless the tool is read-only.
        """
        return not self.read_only

    @property
    def identity(self) -> dict[str, Any]:
        """Name, source, schema and mark of the tool as a JSON object.

        Two tools are the same if their identity is.
        """
        return {
            "name": self.name,
            "source": self.source or location(self.function),
            "schema": self.schema.definition(),
            "read_only": self.read_only,
        }

    @property
    def approved_as(self) -> str:
        """Key under which approvals are stored.

        Tools of different MCP servers never share a key.
        """
        return self.source or self.name


@dataclass(frozen=True)
class ToolCatalogue:
    """Tools by name, the tool names of each group, and the problems found.

    Tools are in the order of ``__all__``.
    """

    tools: Mapping[str, Tool] = field(default_factory=dict)
    groups: Mapping[str, list[str]] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def get(self, name: str) -> Tool:
        """Return the tool with this name. Raises ``ToolNotFound``."""
        if name not in self.tools:
            raise ToolNotFound(name)
        return self.tools[name]

    def selected(self, names: Sequence[str], group: str | None) -> dict[str, Tool]:
        """Return the tools in ``names`` and in ``group``, as a mapping by name.

        Unknown names are skipped.
        """
        members = self.groups.get(group or "", ())
        selected = {}
        for name in (*names, *members):
            if name in self.tools:
                selected[name] = self.tools[name]
        return selected


def permitted(catalogue: ToolCatalogue) -> ToolCatalogue:
    """Return the tools that the current caller may use.

    For a caller with restricted tools, leave out the others, empty groups and all problems.
    """
    permissions = CALLER.get().permissions
    if not permissions.tools:
        return catalogue
    tools = {name: tool for name, tool in catalogue.tools.items() if permissions.allow_tool(name)}
    groups = {}
    for group, names in catalogue.groups.items():
        members = [name for name in names if name in tools]
        if members:
            groups[group] = members
    return ToolCatalogue(tools, groups)  # problems name other tools and files


class ToolDiscoveryService:
    """Service that finds the tools of one directory and caches them."""

    def __init__(self, tools_dir: str | Path | None) -> None:
        """If ``tools_dir`` is None, there are no tools."""
        self._directory = None if tools_dir is None else Path(tools_dir)
        self.cached: ToolCatalogue | None = None
        """Tools that the latest import of the directory found; None before the first import."""
        self._lock = threading.Lock()

    def discover(self) -> ToolCatalogue:
        """Return the tools of the directory.

        The first call imports the directory, which blocks the thread.
        """
        with self._lock:
            if self.cached is None:
                return self.reload_tools()
            return self.cached

    def reload_tools(self) -> ToolCatalogue:
        """Import the directory again, log its problems and return its tools.

        During the import, ``discover`` returns the tools of the import before, if there was any.
        """
        catalogue = ToolCatalogue()
        if self._directory is not None:
            catalogue = find_tools(self._directory)
        for problem in catalogue.problems:
            logger.warning(
                "Tool problem name=%s directory=%s: %s",
                problem.name,
                self._directory,
                problem.message,
            )
        self.cached = catalogue
        return catalogue


def find_tools(directory: Path) -> ToolCatalogue:
    """Import a directory's ``__init__.py`` and return its tools, groups and problems.

    A missing directory has none. Never raises.
    """
    try:
        paths = set(directory.iterdir())
    except FileNotFoundError:
        return ToolCatalogue()
    except OSError as error:
        problem = Problem(_INIT, f"its directory cannot be read: {error.strerror}")
        return ToolCatalogue(problems=(problem,))
    if directory / _INIT not in paths:
        return ToolCatalogue(problems=_encodable(find_mistakes(directory, ())))
    package, problems = load_package(directory)
    catalogue = ToolCatalogue()
    if package is not None:
        catalogue = _read_package(package, problems)
    exported = getattr(package, "__all__", None)
    if not _is_list_of_names(exported):
        exported = None  # it is unknown what the package exports
    problems += find_mistakes(directory, exported)
    return replace(catalogue, problems=_encodable(problems))


def _encodable(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Remove duplicates, and escape lone surrogates, which file names and errors may contain but
    JSON may not.
    """
    return tuple(
        Problem(_escaped(problem.name), _escaped(problem.message))
        for problem in dict.fromkeys(problems)
    )


def _escaped(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def _read_package(package: ModuleType, problems: list[Problem]) -> ToolCatalogue:
    """Return the tools and groups of a package, and append to ``problems`` what is wrong."""
    variables = vars(package)
    exported = _names(variables.get("__all__"), "__all__", problems)
    marks = {
        variable: _names(variables.get(variable, []), variable, problems)
        for variable in (_READ_ONLY, _DESTRUCTIVE)
    }
    groups = {}  # by variable, such as `__math__`
    for variable, value in variables.items():
        may_be_group = re.fullmatch("__.+__", variable) and variable not in _NOT_GROUPS
        if may_be_group and isinstance(value, list | tuple):
            groups[variable] = _names(value, variable, problems)
    for variable, names in (marks | groups).items():
        for name in sorted(set(names) - set(exported)):
            text = f"it names {name!r}, which is not in __all__; add it there"
            problems.append(Problem(variable, text))
    tools = {}
    for name in exported:
        own_marks = [mark for mark, names in marks.items() if name in names]
        try:
            function = getattr(package, name, None)
            # The problem of its file is already reported.
            if not isinstance(function, UnavailableFunction):
                tools[name] = _make_tool(name, function, own_marks)
        except InvalidTool as error:
            problems.append(Problem(name, str(error)))
        except BaseException as error:  # the types and attributes of a function are user code
            problems.append(Problem(name, describe(error, None)))
    members = {}
    for variable, names in groups.items():
        members[variable.strip("_")] = [name for name in names if name in tools]
    return ToolCatalogue(tools, members)


def _names(value: object, variable: str, problems: list[Problem]) -> list[str]:
    """Return the distinct names in the value of a variable of ``__init__.py``.

    Append to ``problems`` what is wrong. A value that is no list of names has none.
    """
    if not _is_list_of_names(value):
        problems.append(Problem(variable, _NO_NAMES))
        return []
    counts = Counter(value)
    for name in sorted(counts):
        if counts[name] > 1:
            problems.append(Problem(name, f"{variable} lists it more than once; remove one"))
    return list(counts)


def _is_list_of_names(value: object) -> TypeGuard[Sequence[str]]:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)


def _make_tool(name: str, function: Any, marks: Collection[str]) -> Tool:
    """Return the tool of an exported function. Raises ``InvalidTool``, and errors of user code."""
    if name in RESERVED_NAMES:
        raise InvalidTool("the name is reserved; rename the function")
    if function is None:
        raise InvalidTool(
            "__all__ names it, but it does not exist; define it or remove the name from __all__"
        )
    attribute = getattr(function, "destructive", None)
    is_destructive = attribute is True or _DESTRUCTIVE in marks
    is_read_only = attribute is False or _READ_ONLY in marks
    schema = make_schema(function, name)
    # A contradictory mark does not make a tool read-only.
    return Tool(name, function, schema, read_only=is_read_only and not is_destructive)


def find_mistakes(directory: Path, exported: Collection[str] | None) -> Iterator[Problem]:
    """Yield each syntax error, name that is defined twice, and function that looks like a tool and
    is not ``exported``.

    No file is imported. If ``exported`` is None, every function may be exported.
    """
    trees: dict[str, ast.Module] = {}
    for path in _files(directory, directory):
        name = path.relative_to(directory).as_posix()
        try:
            trees[name] = parse_file(path)
        except SyntaxError as error:
            yield Problem(name, describe(error, error.lineno))
        except (OSError, ValueError, MemoryError, RecursionError):
            pass  # the import reports the errors of used files
    for file, tree in trees.items():
        yield from _duplicates(file, tree, trees)
    if exported is not None:
        yield from _not_exported(trees, exported)


def _files(folder: Path, directory: Path) -> Iterator[Path]:
    """Yield the Python files of a package and of the packages in it, within ``directory``.

    The ``__init__.py`` of the first folder may not exist.
    """
    for path in [folder / _INIT, *modules_in(folder)]:
        with suppress(OSError, RuntimeError):  # links in a circle
            if leads_out(path, directory):
                continue
            if path.is_dir():
                yield from _files(path, directory)
            else:
                yield path


def _duplicates(file: str, tree: ast.Module, trees: Mapping[str, ast.Module]) -> Iterator[Problem]:
    """Yield a problem for each name that a file gives to several public functions.

    In ``__init__.py``, imports of the name count too.
    """
    # Descriptions of the places of each name. A module counts once, even if it is imported twice.
    places: dict[str, dict[object, str]] = defaultdict(dict)
    for node in tree.body:
        if isinstance(node, _Function) and not node.name.startswith("_"):
            places[node.name][node.lineno] = f"line {node.lineno}"
        elif isinstance(node, ast.ImportFrom) and file == _INIT:
            module = (node.level, node.module)
            for name in _imported_names(node, trees):
                places[name][module] = f"{node.module or '.'} (line {node.lineno})"
    for name, descriptions in places.items():
        if len(descriptions) > 1:
            text = f"{file} defines it more than once: {', '.join(descriptions.values())}"
            yield Problem(name, f"{text}. Only the last one is used. Rename one")


def _imported_names(node: ast.ImportFrom, trees: Mapping[str, ast.Module]) -> list[str]:
    """Return the names that an import binds, of ``*`` only those of functions like tools."""
    if node.names[0].name != "*":
        return [alias.asname or alias.name for alias in node.names]
    path = str(node.module).replace(".", "/")
    tree = trees.get(f"{path}.py")
    if tree is None:
        return []
    return [function.name for function in _typed_functions(tree)]


def _not_exported(trees: Mapping[str, ast.Module], exported: Collection[str]) -> Iterator[Problem]:
    """Yield a problem for each function that looks like a tool, and is neither exported nor used
    by the files.
    """
    modules = _module_names(trees)
    known = set(exported)
    for file, tree in trees.items():
        known.update(_names_used_from(modules, file, tree))
    reason = f"there is no {_INIT}"
    if _INIT in trees:
        reason = f"__all__ in {_INIT} does not list it"
    for file, tree in trees.items():
        if _is_script(tree):
            continue
        uses = Counter(_loaded_names(tree))
        for function in _typed_functions(tree):
            name = function.name
            own_uses = Counter(_loaded_names(function))
            is_helper = uses[name] > own_uses[name]  # recursion alone does not make one
            if name not in known and not is_helper:
                text = f"its function {name} (line {function.lineno}) is not a tool"
                advice = f"Import it in {_INIT} and list it in __all__, or rename it to _{name}"
                yield Problem(file, f"{text}, because {reason}. {advice}")


def _is_script(tree: ast.Module) -> bool:
    """Return whether a file tests ``__name__``, as programs do."""
    return any(
        isinstance(node, ast.If) and "'__name__'" in ast.dump(node.test) for node in tree.body
    )


def _module_names(files: Iterable[str]) -> set[str]:
    names = set()
    for file in files:
        path = Path(file)
        if path.name == _INIT:
            path = path.parent
        names.add(path.stem)
    return names


def _loaded_names(node: ast.AST) -> Iterator[str]:
    """Yield each variable that the code reads, once for each use."""
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
            yield child.id


def _names_used_from(modules: Collection[str], file: str, tree: ast.Module) -> Iterator[str]:
    """Yield the names from the ``modules`` of the directory that the code of a file uses.

    An import counts as a use. In ``__init__.py`` it counts only if the file reads the name, or
    gives it a new name.
    """
    loaded = set(_loaded_names(tree))
    module_names = {*modules, *_aliases(tree, modules)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = _last_name(node.value)
            if owner in module_names:
                yield node.attr
        elif isinstance(node, ast.ImportFrom):
            source = _last_part(node.module or "")
            if node.level == 0 and source not in modules:
                continue
            for alias in node.names:
                if alias.name == "*":  # any name that the file reads can come from there
                    yield from loaded
                elif file != _INIT or alias.asname or alias.name in loaded:
                    yield alias.name


def _aliases(tree: ast.Module, modules: Collection[str]) -> Iterator[str]:
    """Yield the new names that a file gives to imported ``modules``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for alias in node.names:
            original = _last_part(alias.name)
            if alias.asname and original in modules:
                yield alias.asname


def _last_part(name: str) -> str:
    _, _, last = name.rpartition(".")
    return last


def _last_name(node: ast.expr) -> str | None:
    """Return the last part of a dotted name, or None for another expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return None


def _typed_functions(tree: ast.Module) -> Iterator[_Function]:
    """Yield the public functions with types for all parameters and the result, as tools have.

    Functions with ``*args`` or ``**kwargs`` are no tools.
    """
    for node in tree.body:
        if not isinstance(node, _Function) or node.name.startswith("_") or node.returns is None:
            continue
        arguments = node.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        has_types = all(parameter.annotation is not None for parameter in parameters)
        if has_types and arguments.vararg is None and arguments.kwarg is None:
            yield node
