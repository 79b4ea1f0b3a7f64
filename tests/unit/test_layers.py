"""The arrows of the architecture: nothing imports what stands below it, and the library needs no web framework."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
SERVER = SRC / "mochi_server"
MODULES = sorted(SERVER.rglob("*.py"))
STUB_MODULES = sorted((SRC / "mochi_stub").rglob("*.py"))
LAYERS = [
    "constants",
    "addresses",
    "posix",
    "inotify",
    "turns",
    "logs",
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
    "observing",
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
    "relaying",
    "forwarding",
    "app",
    "protocol",
    "workers",
    "serve",
    "scaffold",
    "__main__",
]
LIBRARY = LAYERS[: LAYERS.index("models")]
WEB = {"fastapi", "starlette", "sse_starlette", "uvicorn"}


def imports(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found.add(node.module or "")
            found |= {f"{node.module}.{name.name}" for name in node.names if node.module == "mochi_server"}
    return found


def layer_of(path: Path) -> str:
    return path.relative_to(SERVER).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SERVER)))
def test_a_module_imports_only_from_layers_before_its_own(path: Path) -> None:
    if path == SERVER / "__init__.py":
        return
    above = set(LAYERS[: LAYERS.index(layer_of(path)) + 1]) | {"__version__"}
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("mochi_server.")}
    assert ours <= above


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SERVER)))
def test_the_library_imports_no_web_framework(path: Path) -> None:
    if layer_of(path) in LIBRARY:
        assert not {name.partition(".")[0] for name in imports(path)} & WEB


def test_the_two_packages_do_not_import_each_other() -> None:
    assert not {name for path in STUB_MODULES for name in imports(path) if name.startswith("mochi_server")}
    using_the_stub = [path.name for path in MODULES if any(name.startswith("mochi_stub") for name in imports(path))]
    assert using_the_stub == ["__main__.py"]


@pytest.mark.parametrize(
    "statement",
    [
        "from mochi_server.sessions import SessionManager",
        "from mochi_server.ollama import OllamaClient",
        "from mochi_server.ollama import AsyncOllamaClient, AsyncInstructorOllamaClient",
        "from mochi_server.services import SystemPromptService, WindowRegistry",
        "from mochi_server.agents import AgentDiscoveryService, AgentExecutionService",
        "from mochi_server import MochiServerSettings",
        "from mochi_server.wiring import build_services",
        "from mochi_server.client import AsyncMochiClient, MochiClient",
    ],
)
def test_using_the_library_loads_no_web_framework(statement: str) -> None:
    program = f"{statement}\nimport sys; print(sorted(set(sys.modules) & {WEB!r}))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("named", [False, True], ids=["without a file", "without a server in it"])
def test_nothing_of_mcp_is_imported_before_a_server_is_named(tmp_path: Path, named: bool) -> None:
    if named:
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools" / "mcp.json").write_text('{"mcpServers": {}}')
    program = f"""
import asyncio, sys
from mochi_server import MochiServerSettings, create_app

async def serve():
    services = create_app(MochiServerSettings(data_dir={str(tmp_path)!r})).state.services
    await services.open()
    print(list((await services.tools.catalogue()).tools))
    await services.aclose()

asyncio.run(serve())
print(sorted({{name.partition(".")[0] for name in sys.modules}} & {{"mcp", "mcp_types", "httpx2"}}))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["[]", "[]"]
