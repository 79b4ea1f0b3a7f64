"""Check the architecture: packages import only from lower ones, and the library imports no web framework."""

import ast
from functools import cache
from pathlib import Path

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
    {"models"},
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


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return every node of the syntax tree of a file."""
    return [*ast.walk(ast.parse(path.read_text()))]


@cache
def imports(path: Path) -> frozenset[str]:
    """Return every module that a file imports, at any level of nesting."""
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found.add(node.module or "")
            found |= {f"{node.module}.{name.name}" for name in node.names if node.module == "mochi_server"}
    return frozenset(found)


def package_of(path: Path) -> str:
    return path.relative_to(SERVER).parts[0].removesuffix(".py")


def level_of(package: str) -> int:
    return next(level for level, packages in enumerate(ORDER) if package in packages)


def first_party(path: Path) -> set[str]:
    """Return the packages and root modules of the server that a file imports."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("mochi_server.")} - {"__version__"}


def test_packages_import_only_from_lower_ones() -> None:
    wrong = {}
    for path in MODULES:
        allowed = set().union(*ORDER[level_of(package_of(path)) :])
        if str(path.relative_to(SERVER)) in LAZY_EXPORTS:
            allowed.add("storage")
        if not first_party(path) <= allowed:
            wrong[str(path.relative_to(SRC))] = sorted(first_party(path) - allowed)
    assert wrong == {}


def test_only_the_gateway_adapts_requests_to_ollama() -> None:
    """Other modules neither send chat requests nor handle refused prompts and a lack of memory."""
    names = {"is_context_refusal", "is_out_of_memory", "post_chat"}
    using = {}
    for path in MODULES:
        used = {
            node.id if isinstance(node, ast.Name) else node.attr
            for node in nodes(path)
            if isinstance(node, ast.Name | ast.Attribute)
        }
        if package_of(path) not in ("ollama", "inference") and used & names:
            using[str(path.relative_to(SRC))] = sorted(used & names)
    assert using == {}


def test_only_the_events_module_contains_their_names() -> None:
    shared = {"done", "error", "snapshot", "status", "stopped", "tool_call", "tool_result", "warning", "logprobs"}
    names = {event.type for event in vars(events).values() if hasattr(event, "type")} - shared
    using = [
        (str(path.relative_to(SRC)), node.value)
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.Constant) and node.value in names and path != SERVER / "events.py"
    ]
    assert using == []


def test_client_imports_only_events_and_errors() -> None:
    assert set().union(*(first_party(path) for path in MODULES if package_of(path) == "client")) <= CLIENT


def test_library_modules_import_no_web_framework() -> None:
    library = set().union(*ORDER[level_of("container") :]) - {"models"}
    wrong = {}
    for path in MODULES:
        web = {name.partition(".")[0] for name in imports(path)} & WEB_FRAMEWORKS
        if package_of(path) in library and web:
            wrong[str(path.relative_to(SRC))] = sorted(web)
    assert wrong == {}


def test_server_and_stub_do_not_import_each_other() -> None:
    assert not {name for path in STUB_MODULES for name in imports(path) if name.startswith("mochi_server")}
    using_the_stub = [path for path in MODULES if any(name.startswith("mochi_stub") for name in imports(path))]
    assert using_the_stub == [SERVER / "cli" / "main.py"]
