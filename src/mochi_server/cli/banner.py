"""Startup banner: addresses, problems, and a curl command that streams an answer."""

import asyncio
import logging
import os
import re
import shlex
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import TypeVar

from mochi_server.agents.config import AgentDefinition
from mochi_server.config import (
    CodeDirectory,
    MochiServerSettings,
    environment_problems,
    without_credentials,
)
from mochi_server.constants import API_PREFIX, DEMO_MODEL
from mochi_server.container import Services
from mochi_server.errors import MochiError
from mochi_server.mcp.config import FILE
from mochi_server.ollama.types import ModelInfo
from mochi_server.telemetry.logging import in_log_format
from mochi_server.tools.discovery import ToolCatalogue
from mochi_server.util.net import is_loopback

_OLDEST_OLLAMA = (0, 5)  # the first version with structured answers
_IMPORT_SECONDS = 5  # for the import of tools and agents, which continues in the background

_OPEN = "any client that reaches this address can run every tool, without an API key"

_Result = TypeVar("_Result")

logger = logging.getLogger(__name__)


async def startup_banner(
    address: str,
    settings: MochiServerSettings,
    services: Services,
    generated_key: str | None = None,
    *,
    import_seconds: float = _IMPORT_SECONDS,
) -> str:
    """Return the text that the command prints when the server is ready: JSON lines if the log has
    this format.

    The text does not contain tools and agents whose import takes longer than ``import_seconds``.
    """
    models, _, storage_error, catalogue, agents = await asyncio.gather(
        _result_or_error(services.fleet.list_models()),
        services.fleet.is_reachable(),
        _result_or_error(services.stores.check()),
        _within(import_seconds, services.tools.directory_tools()),
        _within(import_seconds, services.agents.directory_agents()),
    )
    if isinstance(models, MochiError):
        logger.warning("%s", models.message)
    test_mode = settings.env == "test"
    has_keys = bool(settings.api_keys or settings.api_keys_file)
    is_open = not has_keys and not is_loopback(settings.host)
    clients = [host.client for host in services.fleet.hosts]
    urls = ", ".join(client.endpoint.url for client in clients)
    rows: list[tuple[str, str | None]] = [
        ("LLM" if test_mode else "Ollama", _ollama_row(models, urls)),
        *(("Problem", _outdated(client.version)) for client in clients),
        ("Sessions", _sessions_row(settings)),
        ("Workers", str(settings.workers)),
        ("Docs", f"{address}/docs"),
        *_directory_rows(settings, services, catalogue, agents),
        *(("Problem", problem) for problem in environment_problems(os.environ)),
    ]
    if storage_error is not None:
        rows.append(("Problem", storage_error.message))
    if generated_key:
        rows.append(("API key", f"generated for this run: {generated_key}"))
    if is_open:
        rows.append(("Open", _OPEN))
    head = f"mochi-server is at {address}"
    model = "<model>"
    if test_mode:
        head += " in test mode: a bundled LLM answers"
        model = DEMO_MODEL
    elif isinstance(models, list) and models:
        model = models[0].name
    curl = _curl(address, model, generated_key or ("YOUR_KEY" if has_keys else None))
    # Error texts of other servers may have several lines.
    lines = [f"  {name:<8} {' '.join(text.split())}" for name, text in rows if text]
    text = "\n".join([head, *lines, "", "Create a session and stream an answer:", "", curl, ""])
    return in_log_format(text, settings.log_format)


async def _result_or_error(work: Awaitable[_Result]) -> _Result | MochiError:
    try:
        return await work
    except MochiError as error:
        return error


async def _within(seconds: float, work: Awaitable[_Result]) -> _Result | None:
    """Return the result of ``work``.

    After ``seconds``, return None while ``work`` continues in the background.
    """
    task = asyncio.ensure_future(work)
    await asyncio.wait([task], timeout=seconds)
    return task.result() if task.done() else None


def _ollama_row(models: list[ModelInfo] | MochiError, url: str) -> str:
    if isinstance(models, MochiError):
        return models.message if url in models.message else f"{url}: {models.message}"
    if not models:
        return f"{url} has no chat model. Install one with `ollama pull qwen3`"
    return f"{url} with {_count(len(models), 'chat model')}"


def _outdated(version: str) -> str | None:
    """Return a problem if Ollama's version is too old.

    Builds without a version, such as 0.0.0, are not checked.
    """
    numbers = tuple(map(int, re.findall(r"\d+", version)[:3]))
    if not (0, 0, 0) < numbers < _OLDEST_OLLAMA:
        return None
    oldest = ".".join(map(str, _OLDEST_OLLAMA))
    return f"Ollama {version} is too old. Update it to {oldest} or newer"


def _sessions_row(settings: MochiServerSettings) -> str:
    if settings.store_url:
        return f"in the database {without_credentials(settings.store_url.get_secret_value())}"
    lifetime = ", deleted at exit" if settings.env == "test" else ""
    return f"files in {settings.resolved_sessions_dir}{lifetime}"


def _directory_rows(
    settings: MochiServerSettings,
    services: Services,
    catalogue: ToolCatalogue | None,
    agents: dict[str, AgentDefinition] | None,
) -> Iterator[tuple[str, str]]:
    tools_dir = settings.resolved(settings.tools_dir)
    agents_dir = settings.resolved(settings.agents_dir)
    mcp = services.mcp.config
    importing = "still importing"
    tools = importing if catalogue is None else len(catalogue.tools)
    yield "Tools", f"{tools} in {tools_dir}{_hint(settings, 'tools_dir')}"
    if mcp.servers:
        servers = _count(len(mcp.servers), "server")
        yield "MCP", f"{servers} in {tools_dir / FILE}; GET /tools lists their problems"
    usable = importing if agents is None else sum(agent.valid for agent in agents.values())
    yield "Agents", f"{usable} in {agents_dir}{_hint(settings, 'agents_dir')}"
    tool_problems = catalogue.problems if catalogue else ()
    for problem in tool_problems + mcp.problems:
        yield "Problem", f"{tools_dir / problem.name}: {problem.message}"
    for agent in (agents or {}).values():
        if not agent.valid:
            yield "Problem", f"{agents_dir / agent.name}: {agent.error_message}"
        for problem in agent.catalogue.problems:
            yield "Problem", f"{agents_dir / agent.name / problem.name}: {problem.message}"


def _hint(settings: MochiServerSettings, name: CodeDirectory) -> str:
    """Return a note if the directory of the tools or agents is missing, unreadable or not used."""
    directory = settings.resolved(getattr(settings, name))
    try:
        next(directory.iterdir(), None)
    except FileNotFoundError:
        argument = "" if directory.parent == Path() else f" {shlex.quote(str(directory.parent))}"
        is_sample = directory.name == name.removesuffix("_dir")
        advice = f". `mochi-server init{argument}` creates it with samples" if is_sample else ""
        return f", which does not exist{advice}"
    except OSError as error:
        return f": {error.strerror}"
    if settings.code_directory(name) is not None:
        return ""
    command = f"mochi-server --data-dir {shlex.quote(str(directory.parent))}"
    return f", which is not used. To use it, start with `{command}`"


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def _curl(address: str, model: str, key: str | None) -> str:
    api = address + API_PREFIX
    headers = "-H 'Content-Type: application/json'"
    if key:
        headers += f" -H 'Authorization: Bearer {key}'"
    create = f"""curl -s {api}/sessions {headers} -d '{{"model": "{model}"}}'"""
    session_id = rf"""$({create} | sed 's/.*"session_id":"\([0-9a-f]*\)".*/\1/')"""
    return f"""curl -N "{api}/chat/{session_id}/stream" {headers} -d '{{"message": "Hello!"}}'"""
