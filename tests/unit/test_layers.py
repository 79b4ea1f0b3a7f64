"""Check the architecture: packages import only from lower ones, and the library imports no web
framework.
"""

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from mochi_server import events

SRC = Path(__file__).parents[2] / "src"
SERVER = SRC / "mochi_server"
MODULES = sorted(SERVER.rglob("*.py"))
STUB_MODULES = sorted((SRC / "mochi_stub").rglob("*.py"))
ORDER = [
    {"__init__", "__main__"},
    {"pytest_plugin"},
    {"cli", "testing"},
    {"app"},
    {"routers", "protocols", "cluster"},
    {"web", "dependencies"},
    {"container"},
    {"schemas", "models"},
    {"agents", "mcp", "telemetry"},
    {"chat"},
    {"services"},
    {"inference"},
    {"storage", "tools"},
    {"sessions", "ollama", "client"},
    {"events", "config"},
    {"errors", "constants", "util"},
]
"""Each module imports only from its own line and from those below it."""
LAZY_EXPORTS = {"sessions/__init__.py", "sessions/manager.py"}
"""Modules that export stores, which they import on first use."""
CLIENT = {"client", "events", "errors", "constants", "util"}
WEB_FRAMEWORKS = {"fastapi", "starlette", "sse_starlette", "uvicorn"}


IMPORT = re.compile(r"^ *(?:from ([\w.]+) import (\([^)]*\)|.*)|import (.*))", re.MULTILINE)


@cache
def source(path: Path) -> str:
    return path.read_text()


@cache
def imports(path: Path) -> frozenset[str]:
    """Return every module that a file imports, at any level of nesting."""
    found: set[str] = set()
    assert not re.search(r"^ *from \.", source(path), re.MULTILINE), f"{path} imports relatively"
    for module, members, modules in IMPORT.findall(source(path)):
        found |= {module} if module else {name.split()[0] for name in modules.split(",")}
        if module == "mochi_server":
            found |= {f"{module}.{name}" for name in re.findall(r"(\w+)(?: as \w+)?", members)}
    return frozenset(found)


def package_of(path: Path) -> str:
    return path.relative_to(SERVER).parts[0].removesuffix(".py")


def level_of(package: str) -> int:
    return next(level for level, packages in enumerate(ORDER) if package in packages)


def first_party(path: Path) -> set[str]:
    """Return the packages and root modules of the server that a file imports."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("mochi_server.")} - {
        "__version__"
    }


def test_packages_import_only_from_lower_ones() -> None:
    wrong = {}
    for path in MODULES:
        allowed = set().union(*ORDER[level_of(package_of(path)) :])
        if str(path.relative_to(SERVER)) in LAZY_EXPORTS:
            allowed.add("storage")
        if not first_party(path) <= allowed:
            wrong[str(path.relative_to(SRC))] = sorted(first_party(path) - allowed)
    assert wrong == {}


def test_modules_import_each_other_in_one_direction() -> None:
    """No circle of imports, not even of types or inside functions."""
    names = {".".join(path.relative_to(SRC).with_suffix("").parts): path for path in MODULES}
    graph = {name: _imported(path) & names.keys() for name, path in names.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def _imported(path: Path) -> set[str]:
    """Return the modules from which a file imports. Unlike `imports`, it skips code in strings."""
    statements = ast.walk(ast.parse(source(path)))
    return {node.module for node in statements if isinstance(node, ast.ImportFrom) and node.module}


def test_only_the_gateway_adapts_requests_to_ollama() -> None:
    """Other modules neither send chat requests nor handle refused prompts and a lack of memory."""
    names = r"\b(is_context_refusal|is_out_of_memory|post_chat)\b"
    outside = [path for path in MODULES if package_of(path) not in ("ollama", "inference")]
    assert [
        (str(path), found[0]) for path in outside if (found := re.search(names, source(path)))
    ] == []


def test_only_the_events_module_contains_their_names() -> None:
    shared = {
        "done",
        "error",
        "snapshot",
        "status",
        "stopped",
        "tool_call",
        "tool_result",
        "warning",
        "logprobs",
    }
    names = {event.type for event in vars(events).values() if hasattr(event, "type")} - shared
    assert len(names) > 10
    quoted = rf"([\"'])({'|'.join(names)})\1"
    outside = [path for path in MODULES if path != SERVER / "events.py"]
    assert [
        (str(path), found[2]) for path in outside if (found := re.search(quoted, source(path)))
    ] == []


def test_client_imports_only_events_and_errors() -> None:
    assert (
        set().union(*(first_party(path) for path in MODULES if package_of(path) == "client"))
        <= CLIENT
    )


def test_library_modules_import_no_web_framework() -> None:
    library = set().union(*ORDER[level_of("container") :]) - {"schemas", "models"}
    wrong = {}
    for path in MODULES:
        web = {name.partition(".")[0] for name in imports(path)} & WEB_FRAMEWORKS
        if package_of(path) in library and web:
            wrong[str(path.relative_to(SRC))] = sorted(web)
    assert wrong == {}


def test_server_and_stub_do_not_import_each_other() -> None:
    assert not {
        name for path in STUB_MODULES for name in imports(path) if name.startswith("mochi_server")
    }
    using_the_stub = [
        path for path in MODULES if any(name.startswith("mochi_stub") for name in imports(path))
    ]
    assert using_the_stub == [SERVER / "cli" / "main.py", SERVER / "cli" / "scenario.py"]
    statements = ast.walk(
        ast.parse(source(SERVER / "cli" / "scenario.py"))
    )  # it writes a program that uses the stub
    assert not [
        node.module
        for node in statements
        if isinstance(node, ast.ImportFrom) and "mochi_stub" in str(node.module)
    ]
