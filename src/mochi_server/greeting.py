"""What start-up tells a person: one block, whatever the log's level, ending with a command that streams an answer."""

import asyncio
import logging
import shlex
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mochi_server.agents.config import AgentDefinition
from mochi_server.constants import API_PREFIX
from mochi_server.errors import MochiError
from mochi_server.mcp.config import FILE, McpConfig
from mochi_server.ollama.types import ModelInfo
from mochi_server.tools.discovery import ToolCatalogue
from mochi_server.wiring import Services

_PATIENCE_SECONDS = 5
"""For tools and agents that are slow to import; they are looked for all the same."""

_Found = TypeVar("_Found")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """How a server was started. ``key`` is one that was made for this run."""

    address: str
    tools_dir: Path
    agents_dir: Path
    key: str | None = None
    has_keys: bool = False
    """Whether it needs one that was set for it."""
    is_open: bool = False
    """Whether anybody who reaches it is served without a key."""
    test_mode: bool = False


async def greeting(start: Start, services: Services) -> str:
    """The block."""
    models, catalogue, agents = await asyncio.gather(
        _models(services),
        _in_time(services.tools.own()),
        _in_time(services.agents.agents()),
    )
    mode = " in test mode: a bundled LLM answers, sessions are forgotten at exit" if start.test_mode else ""
    rows = [
        ("LLM" if start.test_mode else "Ollama", _of_ollama(models, services.client.endpoint.url)),
        ("Tools", _of_tools(catalogue, start.tools_dir)),
        *(("MCP", _of_mcp(services.mcp.config, start.tools_dir)) for _ in range(bool(services.mcp.config.servers))),
        ("Agents", _of_agents(agents, start.agents_dir)),
        *(("Problem", problem) for problem in await _problems(start, services, catalogue, agents)),
        *(("API key", f"made for this run: {start.key}") for _ in range(start.key is not None)),
        *(("Open", "without a key, whoever reaches this address can run every tool") for _ in range(start.is_open)),
    ]
    lines = [f"mochi-server is at {start.address}{mode}", *(f"  {name:<8} {text}" for name, text in rows)]
    model = models[0].name if isinstance(models, list) and models else "<model>"
    curl = _curl(start.address, model, start.key or ("YOUR_KEY" if start.has_keys else None))
    return "\n".join([*lines, "", "Create a session and stream an answer:", "", curl, ""])


async def _models(services: Services) -> list[ModelInfo] | MochiError:
    try:
        return await services.client.list_models()
    except MochiError as error:
        logger.warning("%s", error.message)
        return error


async def _in_time(looking: Awaitable[_Found]) -> _Found | None:
    """What was found, unless that takes longer than a person should wait; it goes on then."""
    task = asyncio.ensure_future(looking)
    await asyncio.wait([task], timeout=_PATIENCE_SECONDS)
    return task.result() if task.done() else None


def _of_ollama(models: list[ModelInfo] | MochiError, url: str) -> str:
    if isinstance(models, MochiError):
        # What is no Ollama answers with whatever it likes, a page for instance.
        return _one_line(models.message if url in models.message else f"{url}: {models.message}")
    if not models:
        return f"{url} has no chat model; `ollama pull qwen3` gets one"
    return f"{url} with {_count(len(models), 'chat model')}"


def _of_tools(catalogue: ToolCatalogue | None, directory: Path) -> str:
    return (
        f"{'still importing' if catalogue is None else len(catalogue.tools)} in {directory}{_hint(directory, 'tools')}"
    )


def _of_mcp(config: McpConfig, directory: Path) -> str:
    return f"{_count(len(config.servers), 'server')} in {directory / FILE}; GET /tools says how they are"


def _of_agents(agents: dict[str, AgentDefinition] | None, directory: Path) -> str:
    usable = "still importing" if agents is None else sum(agent.valid for agent in agents.values())
    return f"{usable} in {directory}{_hint(directory, 'agents')}"


def _hint(directory: Path, sample: str) -> str:
    """What to do about a directory that is not there. One that may not be looked at is there."""
    try:
        directory.stat()
    except (FileNotFoundError, NotADirectoryError):
        where = "" if directory.parent == Path() else f" {shlex.quote(str(directory.parent))}"
        made = f"; `mochi-server init{where}` makes one with samples" if directory.name == sample else ""
        return f", which is not there{made}"
    except OSError as error:
        return f": {error.strerror}"
    return ""


async def _problems(
    start: Start, services: Services, catalogue: ToolCatalogue | None, agents: dict[str, AgentDefinition] | None
) -> list[str]:
    tools = [*(catalogue.problems if catalogue else ()), *services.mcp.config.problems]
    found = [f"{start.tools_dir / problem.name}: {problem.message}" for problem in tools]
    found += [f"{start.agents_dir / a.name}: {a.error_message}" for a in (agents or {}).values() if not a.valid]
    found += services.stores.problems
    try:
        await services.stores.check()
    except MochiError as error:
        found.append(error.message)
    return [_one_line(problem) for problem in found]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _curl(address: str, model: str, key: str | None) -> str:
    api = address + API_PREFIX
    headers = "-H 'Content-Type: application/json'" + (f" -H 'Authorization: Bearer {key}'" if key else "")
    create = f"""curl -s {api}/sessions {headers} -d '{{"model": "{model}"}}'"""
    session_id = rf"""$({create} | sed 's/.*"session_id":"\([0-9a-f]*\)".*/\1/')"""
    return f"""curl -N "{api}/chat/{session_id}/stream" {headers} -d '{{"message": "Hello!"}}'"""
