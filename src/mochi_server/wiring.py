"""The services of one server, built from settings. The only reader of settings; knows no web framework."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from mochi_server.agents.discovery import AgentDiscoveryService
from mochi_server.agents.execution import AgentExecutionService
from mochi_server.agents.library import AgentLibrary
from mochi_server.agents.prompt_loader import PromptLoader
from mochi_server.agents.tool_factory import NAME, AgentToolboxes
from mochi_server.chat.confirmation import ConfirmationBroker
from mochi_server.chat.engine import ChatEngine
from mochi_server.chat.loop import Limits
from mochi_server.chat.run import Run
from mochi_server.chat.runs import RunRegistry
from mochi_server.chat.toolboxes import Toolboxes
from mochi_server.chat.write_retry import WriteRetry
from mochi_server.config import MochiServerSettings
from mochi_server.errors import NotReady, ShuttingDown, StorageFailed
from mochi_server.mcp.servers import McpServers
from mochi_server.observing import turn_ended
from mochi_server.ollama.async_client import AsyncInstructorOllamaClient, AsyncOllamaClient
from mochi_server.ollama.traffic import Traffic
from mochi_server.openai.completions import Completions, Passing, Place
from mochi_server.services.compare import CompareService
from mochi_server.services.context_window import WindowRegistry
from mochi_server.services.metrics import Metrics
from mochi_server.services.sessions import SessionService
from mochi_server.services.summarization import SummarizationService
from mochi_server.services.summary_model import SummaryModelManager
from mochi_server.services.system_prompts import SystemPromptService
from mochi_server.services.transfer import TransferService
from mochi_server.sessions.files import FileStores
from mochi_server.sessions.store import SessionStore, Stores
from mochi_server.tools.discovery import ToolDiscoveryService
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.library import ToolLibrary


@dataclass(frozen=True)
class Services:
    """Everything routes need; belongs to one event loop. Open it where it serves, close it when done."""

    client: AsyncOllamaClient
    stores: Stores
    store: SessionStore
    windows: WindowRegistry
    prompts: SystemPromptService
    sessions: SessionService
    transfers: TransferService
    tools: ToolLibrary
    mcp: McpServers
    execution: ToolExecutionService
    confirmations: ConfirmationBroker
    agents: AgentLibrary
    agent_chats: SessionStore
    instructor: AsyncInstructorOllamaClient
    summaries: SummarizationService
    compare: CompareService
    runs: RunRegistry
    passing: Passing
    passing_runs: RunRegistry
    """Turns of conversations that nobody stores; they shut down with ``runs``."""
    completions: Completions
    metrics: Metrics

    async def open(self) -> None:
        """Be known to others that serve the same sessions, and begin to connect to MCP servers.

        Raises ``MochiError`` where nothing can be stored.
        """
        await self.stores.open()
        await self.mcp.open()

    async def check_ready(self) -> None:
        """Raises ``ShuttingDown`` or ``NotReady`` where new turns had better go elsewhere."""
        if self.runs.shutdown.is_set():
            raise ShuttingDown
        try:
            await self.stores.check()
        except StorageFailed as error:
            raise NotReady(error.message) from error

    async def drain(self) -> None:
        """Refuse new turns and comparisons, give running ones their grace, then end them."""
        await asyncio.gather(self.runs.drain(), self.passing_runs.drain(), self.compare.drain())

    async def end_turns(self) -> None:
        """End running turns and comparisons now."""
        await asyncio.gather(self.runs.end_all(), self.passing_runs.end_all(), self.compare.end_all())

    async def aclose(self) -> None:
        """End running turns, store what they had, close files and connections."""
        await asyncio.gather(self.runs.aclose(), self.passing_runs.aclose())
        await self.mcp.aclose()
        await self.summaries.aclose()
        await self.instructor.aclose()
        await self.stores.aclose()
        await self.client.aclose()


def build_services(settings: MochiServerSettings) -> Services:
    """Build the services that settings describe. Opens nothing yet."""
    metrics = Metrics()
    client = AsyncOllamaClient(
        settings.ollama_host,
        traffic=Traffic(metrics.first_words),
        answered=metrics.answered,
        connect_timeout=settings.ollama_connect_timeout_seconds,
        stall_timeout=settings.ollama_stall_timeout_seconds,
    )
    stores = build_stores(settings, settings.resolved_advertise_url if settings.store_url else "")
    store, agent_chats = stores.chats, stores.agents
    windows = WindowRegistry(client.loaded_windows, dynamic=settings.dynamic_context_window_enabled, watch=metrics)
    mcp = McpServers(settings.resolved_tools_dir, reserved=[NAME])
    library = ToolLibrary(ToolDiscoveryService(settings.resolved_tools_dir), mcp)
    execution = ToolExecutionService(
        timeout=settings.tool_timeout_seconds, output_limit=settings.tool_output_limit_chars, watch=metrics
    )
    broker = ConfirmationBroker(timeout=settings.tool_confirmation_timeout_seconds)
    limits = Limits(
        rounds=settings.max_tool_iterations,
        identical_calls=settings.max_identical_tool_calls,
        calls_per_round=settings.max_tool_calls_per_round,
    )
    agents = AgentLibrary(AgentDiscoveryService(settings.resolved_agents_dir, settings.resolved_agent_chats_dir))
    retry = WriteRetry(settings.store_retry_seconds)
    execution_of_agents = partial(
        AgentExecutionService,
        client,
        windows=windows,
        tools=execution,
        prompts=PromptLoader(settings.resolved_planning_prompt_path, settings.resolved_execution_prompt_path),
        limits=replace(limits, rounds=settings.max_agent_iterations),
        called=metrics.called,
        retry=retry,
    )
    agent_execution = execution_of_agents(store=agent_chats)
    agent_tool = AgentToolboxes(agents, agent_execution, settings.tool_output_limit_chars)
    toolboxes = Toolboxes(library, execution, broker, store, [agent_tool])
    engine = ChatEngine(store, client, windows, toolboxes, limits, retry=retry)
    instructor = AsyncInstructorOllamaClient(
        settings.ollama_host, timeout=settings.ollama_stall_timeout_seconds, answered=metrics.answered
    )
    summaries = SummarizationService(
        store,
        client,
        instructor,
        windows,
        SummaryModelManager(settings.summary_unsupported_models),
        enabled=settings.summarization_enabled,
        interval=settings.summarization_interval_seconds,
    )
    runs = RunRegistry(
        store,
        engine,
        summaries,
        disconnect_grace=settings.disconnect_grace_seconds,
        shutdown_grace=settings.shutdown_grace_seconds,
        ended=partial(turn_ended, metrics),
    )
    stores.when_lost(runs.lose)
    passing = Passing()
    passing_runs = RunRegistry(
        passing.sessions,
        ChatEngine(passing.sessions, client, windows, Toolboxes(library, execution, broker, passing.sessions), limits),
        passing,
        shutdown_grace=settings.shutdown_grace_seconds,
        ended=partial(turn_ended, metrics),
        kept_seconds=0,
        shutdown=runs.shutdown,
    )

    def running() -> list[Run]:
        return runs.running() + passing_runs.running()

    metrics.watch(lambda: len(running()), lambda: sum(run.listeners for run in running()), lambda: stores.connected)
    prompts = SystemPromptService(settings.resolved_system_prompts_dir)
    sessions = SessionService(store, client, windows, prompts, library)
    return Services(
        client=client,
        stores=stores,
        store=store,
        windows=windows,
        prompts=prompts,
        sessions=sessions,
        transfers=TransferService(store, max_sessions=settings.max_import_sessions, shutdown=runs.shutdown),
        tools=library,
        mcp=mcp,
        execution=execution,
        confirmations=broker,
        agents=agents,
        agent_chats=agent_chats,
        instructor=instructor,
        summaries=summaries,
        compare=CompareService(client, windows, shutdown_grace=settings.shutdown_grace_seconds),
        runs=runs,
        passing=passing,
        passing_runs=passing_runs,
        completions=Completions(
            client,
            sessions,
            library,
            agents,
            stored=Place(store, runs, agent_chats, agent_execution),
            passing=Place(
                passing.sessions, passing_runs, passing.agent_chats, execution_of_agents(store=passing.agent_chats)
            ),
            ended=passing.turn_ended,
        ),
        metrics=metrics,
    )


async def prepare_store(settings: MochiServerSettings) -> str:
    """Bring what sessions are kept in up to date before anybody serves; what that is now, in words.

    Raises ``StorageFailed``.
    """
    if not settings.store_url:
        return "files need no migration"
    with _driver():
        from mochi_server.postgres.migrating import prepare  # noqa: PLC0415 - whose driver not everybody installs
    return f"the database's schema is version {await prepare(settings.store_url)}"


def build_stores(settings: MochiServerSettings, url: str = "") -> Stores:
    """What keeps sessions. Opens nothing yet. Raises ``StorageFailed`` where a driver is missing.

    ``url`` is where other servers of the same database reach this process, if it serves requests.
    """
    if not settings.store_url:
        return FileStores(
            settings.resolved_sessions_dir,
            settings.resolved_agent_chats_dir,
            wait_seconds=settings.storage_wait_seconds,
        )
    with _driver():
        from mochi_server.postgres.stores import PostgresStores  # noqa: PLC0415 - whose driver not everybody installs
    return PostgresStores(settings.store_url, url)


@contextmanager
def _driver() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        reason = "its driver is missing, which `pip install 'mochi-server[postgres]'` brings"
        raise StorageFailed("use the database of MOCHI_STORE_URL", OSError(0, reason)) from error
