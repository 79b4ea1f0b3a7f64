"""Checks of the source files of a tools directory for likely mistakes. No code is executed."""

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from mochi_server.tools.loader import Problem, describe, leads_out, modules_in, parse_file

_INIT = "__init__.py"

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def find_mistakes(directory: Path, exported: Collection[str] | None) -> list[Problem]:
    """Return a problem for each unreadable folder, syntax error, name that is defined twice and tool not exported.

    ``exported`` contains the names in ``__all__``. If ``__init__.py`` is broken, ``exported`` is None, and the result
    has no problems about tools that are not exported.
    """
    problems = list(_unreadable_folders(directory))
    trees = dict(_trees(directory, directory, problems))
    problems += _duplicates(trees)
    if exported is not None:
        problems += _not_exported(trees, exported)
    return problems


def _trees(folder: Path, directory: Path, problems: list[Problem]) -> Iterator[tuple[str, ast.Module]]:
    """Yield the names and syntax trees of the files of a folder and of its packages. Report syntax errors."""
    for path in [folder / _INIT, *modules_in(folder)]:
        name = path.relative_to(directory).as_posix()
        with suppress(OSError, ValueError, RuntimeError, MemoryError):  # the import reports the errors of used files
            if leads_out(path, directory):
                continue
            if path.is_dir():
                yield from _trees(path, directory, problems)
                continue
            try:
                yield name, parse_file(path)
            except SyntaxError as error:
                problems.append(Problem(name, describe(error, error.lineno)))


def _unreadable_folders(directory: Path) -> Iterator[Problem]:
    for path in sorted(directory.iterdir()):
        if path.name.startswith((".", "__")) or not path.is_dir():
            continue
        try:
            next(path.iterdir(), None)
        except OSError as error:
            yield Problem(path.name, f"the folder cannot be read: {error.strerror}. Change its permissions")


def _duplicates(trees: dict[str, ast.Module]) -> Iterator[Problem]:
    """Yield a problem for each public name that a file defines, or ``__init__.py`` imports, more than once."""
    for file, tree in trees.items():
        origins: dict[str, dict[str, str]] = defaultdict(dict)
        for node in tree.body:
            if isinstance(node, _Function) and not node.name.startswith("_") and not _is_overload(node):
                origins[node.name][f"line {node.lineno}"] = f"line {node.lineno}"
            elif isinstance(node, ast.ImportFrom) and file == _INIT:
                for name in _imported_names(node, trees):
                    origins[name][f"{node.level} {node.module}"] = f"{node.module or '.'} (line {node.lineno})"
        for name, places in origins.items():
            if len(places) > 1:
                text = f"{file} defines it more than once: {', '.join(places.values())}"
                yield Problem(name, f"{text}. Only the last one is used. Rename one")


def _is_overload(function: _Function) -> bool:
    """Return whether a function has the decorator ``overload``, which declares types of another definition."""
    return any("overload" in (getattr(node, "id", ""), getattr(node, "attr", "")) for node in function.decorator_list)


def _imported_names(node: ast.ImportFrom, trees: dict[str, ast.Module]) -> list[str]:
    if node.names[0].name != "*":
        return [alias.asname or alias.name for alias in node.names]
    tree = trees.get(f"{str(node.module).replace('.', '/')}.py")
    return [function.name for function in _typed_functions(tree)] if tree is not None else []


def _not_exported(trees: dict[str, ast.Module], exported: Collection[str]) -> Iterator[Problem]:
    """Yield a problem for each function that looks like a tool, but is neither exported nor used by other code."""
    used = {name for file, tree in trees.items() for name in _used_names(file, tree)}
    reason = f"__all__ in {_INIT} does not list it" if _INIT in trees else f"there is no {_INIT}"
    for file, tree in trees.items():
        for function in () if _is_script(tree) else _typed_functions(tree):
            if function.name not in exported and function.name not in used:
                text = f"its function {function.name} (line {function.lineno}) is not a tool, because {reason}"
                advice = f"Import it in {_INIT} and list it in __all__, or rename it to _{function.name}"
                yield Problem(file, f"{text}. {advice}")


def _used_names(file: str, tree: ast.Module) -> Iterator[str]:
    """Yield the names that the code of a file uses. In ``__init__.py``, only imports with a new name count as uses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if file != _INIT or alias.asname)


def _typed_functions(tree: ast.Module) -> Iterator[_Function]:
    """Yield the public functions that have type annotations for all parameters and for the result."""
    for node in tree.body:
        if isinstance(node, _Function) and not node.name.startswith("_") and node.returns is not None:
            arguments = node.args
            parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            has_fixed_parameters = arguments.vararg is None and arguments.kwarg is None
            if has_fixed_parameters and all(parameter.annotation is not None for parameter in parameters):
                yield node


def _is_script(tree: ast.Module) -> bool:
    """Return whether a file has a condition on ``__name__``, as scripts have."""
    conditions = (node.test for node in tree.body if isinstance(node, ast.If))
    return any(isinstance(node, ast.Name) and node.id == "__name__" for test in conditions for node in ast.walk(test))
