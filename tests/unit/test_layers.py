"""Check the architecture: modules import only from lower layers, and the library imports no web framework."""

import ast
from functools import cache
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
SERVER = SRC / "mochi_server"
MODULES = sorted(SERVER.rglob("*.py"))
STUB_MODULES = sorted((SRC / "mochi_stub").rglob("*.py"))
LAYERS = [
    "constants",
    "util",
    "addresses",
    "posix",
    "turns",
    "logs",
    "blocking",
    "errors",
    "config",
    "ollama",
    "sessions",
    "events",
    "client",
    "tools",
    "mcp",
    "services",
    "chat",
    "agents",
    "openai",
    "postgres",
    "tracing",
    "wiring",
    "copying",
    "greeting",
    "models",
    "dependencies",
    "asgi",
    "routers",
    "openapi",
    "docs",
    "access",
    "limits",
    "security",
    "cluster",
    "app",
    "protocol",
    "workers",
    "serve",
    "scaffold",
    "__main__",
]
LIBRARY = LAYERS[: LAYERS.index("models")]
WEB = {"fastapi", "starlette", "sse_starlette", "uvicorn"}


@cache
def imports(path: Path) -> frozenset[str]:
    """Return every module that a file imports, at any level of nesting."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found.add(node.module or "")
            found |= {f"{node.module}.{name.name}" for name in node.names if node.module == "mochi_server"}
    return frozenset(found)


def layer_of(path: Path) -> str:
    return path.relative_to(SERVER).parts[0].removesuffix(".py")


def test_modules_import_only_from_lower_layers() -> None:
    wrong = {}
    for path in MODULES:
        if path == SERVER / "__init__.py":
            continue
        allowed = {*LAYERS[: LAYERS.index(layer_of(path)) + 1], "__version__"}
        ours = {name.split(".")[1] for name in imports(path) if name.startswith("mochi_server.")}
        if not ours <= allowed:
            wrong[str(path.relative_to(SRC))] = sorted(ours - allowed)
    assert wrong == {}


def test_library_modules_import_no_web_framework() -> None:
    wrong = {}
    for path in MODULES:
        web = {name.partition(".")[0] for name in imports(path)} & WEB
        if layer_of(path) in LIBRARY and web:
            wrong[str(path.relative_to(SRC))] = sorted(web)
    assert wrong == {}


def test_server_and_stub_do_not_import_each_other() -> None:
    assert not {name for path in STUB_MODULES for name in imports(path) if name.startswith("mochi_server")}
    using_the_stub = [path.name for path in MODULES if any(name.startswith("mochi_stub") for name in imports(path))]
    assert using_the_stub == ["__main__.py"]
