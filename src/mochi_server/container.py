"""Services of one server, built from its settings. This module does not import the web framework."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from mochi_server.agents.discovery import AgentDiscoveryService
from mochi_server.agents.execution import AgentExecutionService
from mochi_server.agents.prompt_loader import PromptLoader
from mochi_server.agents.registry import AgentRegistry
from mochi_server.agents.tool_factory import AgentToolboxProvider
from mochi_server.chat.approvals import ApprovalService, ConfirmationBroker
from mochi_server.chat.engine import ChatEngine
from mochi_server.chat.run import Run
from mochi_server.chat.run_cache import RunCache
from mochi_server.chat.run_registry import RunRegistry
from mochi_server.chat.storage_retry import StorageRetry
from mochi_server.chat.tool_loop import ToolLoopLimits
from mochi_server.chat.toolbox_factory import ToolboxFactory
from mochi_server.config import MochiServerSettings
from mochi_server.constants import AGENT_TOOL
from mochi_server.errors import NotReady, ShuttingDown, StorageFailed
from mochi_server.frontends.runs import FrontendRuns
from mochi_server.mcp.manager import McpServers
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.injected_client import ChatClient, InjectedOllamaClient
from mochi_server.ollama.prompt_speed import PromptSpeeds
from mochi_server.ollama.request_tracker import RequestTracker
from mochi_server.openai.completions import Completions, EphemeralConversations, TurnBackend
from mochi_server.openai.embeddings import Embeddings
from mochi_server.openai.responses_state import ResponseItems
from mochi_server.services.compare import CompareService
from mochi_server.services.context_window import WindowRegistry
from mochi_server.services.import_export import ImportExportService
from mochi_server.services.selection import SelectionChecker
from mochi_server.services.sessions import SessionService
from mochi_server.services.summarization import SummarizationService
from mochi_server.services.summary_model import SummaryModelManager
from mochi_server.services.system_prompts import SystemPromptService
from mochi_server.sessions.store import Stores
from mochi_server.storage.files.store import FileStores
from mochi_server.telemetry.metrics import Metrics
from mochi_server.telemetry.tracing import record_turn
from mochi_server.tools.discovery import ToolDiscoveryService
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.registry import ToolRegistry


class Services:
    """Services of one server. Open and close them on the same event loop."""

    def __init__(self, settings: MochiServerSettings, ollama_client: ChatClient | None = None) -> None:
        """``ollama_client`` answers in place of the Ollama server of the settings."""
        speeds = PromptSpeeds()
        self.metrics = metrics = Metrics(speeds)
        self.client = client = _ollama_client(settings, metrics, ollama_client)
        self.stores = build_stores(settings, settings.resolved_advertise_url if settings.store_url else "")
        self.store, self.agent_chats = self.stores.chats, self.stores.agents
        self.windows = windows = WindowRegistry(
            client.loaded_windows,
            load_session=self.store.load,
            dynamic=settings.dynamic_context_window_enabled,
            on_adjusted=metrics.context_adjusted,
            on_compacted=metrics.compactions.inc,
        )
        self.prompts = SystemPromptService(settings.resolved(settings.system_prompts_dir))
        tools_dir = settings.code_directory("tools_dir")
        self.mcp = McpServers(tools_dir, reserved=[AGENT_TOOL])
        self.tools = ToolRegistry(ToolDiscoveryService(tools_dir), self.mcp)
        self.execution = ToolExecutionService(
            timeout=settings.tool_timeout_seconds,
            output_limit=settings.tool_output_limit_chars,
            on_lost=metrics.lost_threads.inc,
            on_refused=metrics.refused_calls.inc,
        )
        self.confirmations = ConfirmationBroker(timeout=settings.tool_confirmation_timeout_seconds)
        self.approvals = ApprovalService(self.confirmations, self.store)
        agents_dir, agent_chats_dir = settings.code_directory("agents_dir"), settings.resolved(settings.agent_chats_dir)
        self.agents = AgentRegistry(AgentDiscoveryService(agents_dir, agent_chats_dir), self.tools)
        selections = SelectionChecker(self.tools, self.agents.directory_agents)
        self.sessions = SessionService(self.store, client, windows, self.prompts, selections, speeds)
        limits = ToolLoopLimits(
            rounds=settings.max_tool_iterations,
            identical_calls=settings.max_identical_tool_calls,
            calls_per_round=settings.max_tool_calls_per_round,
        )
        retry = StorageRetry(settings.store_retry_seconds)
        build_agent_execution = partial(
            AgentExecutionService,
            client,
            windows=windows,
            tools=self.execution,
            prompts=PromptLoader(
                settings.resolved(settings.planning_prompt_path), settings.resolved(settings.execution_prompt_path)
            ),
            limits=replace(limits, rounds=settings.max_agent_iterations, rounds_setting="MOCHI_MAX_AGENT_ITERATIONS"),
            on_tool_calls=metrics.tool_calls_ended,
            retry=retry,
        )
        agent_execution = build_agent_execution(store=self.agent_chats)
        agent_tool = AgentToolboxProvider(self.agents, agent_execution, settings.tool_output_limit_chars)
        toolboxes = ToolboxFactory(
            self.tools, self.execution, self.confirmations, self.store, [agent_tool.create], retry
        )
        self.summaries = SummarizationService(
            self.store,
            client,
            windows,
            SummaryModelManager(settings.summary_unsupported_models),
            enabled=settings.summarization_enabled,
            interval=settings.summarization_interval_seconds,
        )
        self.runs = RunRegistry(
            self.store,
            ChatEngine(self.store, client, windows, toolboxes, limits, retry, selections),
            self.summaries,
            disconnect_grace=settings.disconnect_grace_seconds,
            shutdown_grace=settings.shutdown_grace_seconds,
            on_ended=partial(record_turn, metrics),
        )
        self.stores.on_sessions_lost(self.runs.abort_all)
        self.frontends = FrontendRuns(
            self.runs, self.sessions, self.approvals, settings.tool_confirmation_timeout_seconds
        )
        # These runs belong to conversations that are not stored.
        self.ephemeral = ephemeral = EphemeralConversations(self.summaries)
        toolboxes = ToolboxFactory(self.tools, self.execution, self.confirmations, ephemeral.sessions)
        self.ephemeral_runs = RunRegistry(
            ephemeral.sessions,
            ChatEngine(ephemeral.sessions, client, windows, toolboxes, limits),
            ephemeral,
            shutdown_grace=settings.shutdown_grace_seconds,
            on_ended=partial(record_turn, metrics),
            cache=RunCache(retention_seconds=0),
            shutdown=self.runs.shutdown,
        )
        ephemeral_agents = build_agent_execution(store=ephemeral.agent_chats)
        self.completions = Completions(
            client,
            self.sessions,
            self.tools,
            self.agents,
            stored=TurnBackend(self.store, self.runs, self.agent_chats, agent_execution),
            ephemeral=TurnBackend(ephemeral.sessions, self.ephemeral_runs, ephemeral.agent_chats, ephemeral_agents),
            on_not_started=ephemeral.turn_ended,
        )
        self.embeddings = Embeddings(client, windows)
        self.response_items = ResponseItems()
        self.transfers = ImportExportService(
            self.store, max_sessions=settings.max_import_sessions, shutdown=self.runs.shutdown
        )
        self.compare = CompareService(client, windows, shutdown_grace=settings.shutdown_grace_seconds)
        metrics.set_sources(
            lambda: len(self._running()),
            lambda: sum(run.subscribers for run in self._running()),
            lambda: self.stores.connected,
        )

    def _running(self) -> list[Run]:
        return self.runs.cache.running() + self.ephemeral_runs.cache.running()

    async def open(self) -> None:
        """Open the stores and start to connect to MCP servers. Raises ``MochiError`` if the stores cannot be used."""
        await self.stores.open()
        await self.mcp.open()

    async def check_ready(self) -> None:
        """Raise ``ShuttingDown`` or ``NotReady`` if the server cannot run or store new turns."""
        if self.runs.shutdown.is_set():
            raise ShuttingDown
        try:
            await self.stores.check()
        except StorageFailed as error:
            raise NotReady(error.message) from error

    async def drain(self) -> None:
        """Refuse new turns and comparisons. Wait for the running ones, and end those that exceed the grace period."""
        await asyncio.gather(self.runs.drain(), self.ephemeral_runs.drain(), self.compare.drain())

    async def end_turns(self) -> None:
        """End running turns and comparisons now."""
        await asyncio.gather(self.runs.end_all(), self.ephemeral_runs.end_all(), self.compare.end_all())

    async def aclose(self) -> None:
        """End running turns, store their partial answers, and close files and connections."""
        await asyncio.gather(self.runs.aclose(), self.ephemeral_runs.aclose())
        await self.mcp.aclose()
        await self.summaries.aclose()
        await self.stores.aclose()
        await self.client.aclose()


def build_services(settings: MochiServerSettings, ollama_client: ChatClient | None = None) -> Services:
    """Build the services of a server. Connections are opened later, by ``open()``."""
    return Services(settings.with_absolute_data_dir(), ollama_client)


def _ollama_client(settings: MochiServerSettings, metrics: Metrics, injected: ChatClient | None) -> AsyncOllamaClient:
    tracker = RequestTracker(metrics.first_token)
    if injected is not None:
        return InjectedOllamaClient(injected, settings.ollama_host, tracker=tracker, on_response=metrics.response_ended)
    return AsyncOllamaClient(
        settings.ollama_host,
        tracker=tracker,
        on_response=metrics.response_ended,
        connect_timeout=settings.ollama_connect_timeout_seconds,
        stall_timeout=settings.ollama_stall_timeout_seconds,
        can_install=settings.env != "test",
    )


async def prepare_store(settings: MochiServerSettings) -> str:
    """Migrate the database, and return its version as a text for the user. Raises ``StorageFailed``."""
    with _database_driver():
        from mochi_server.storage.postgres.migrations import prepare  # noqa: PLC0415 - its driver is optional
    return f"the database schema is up to date (version {await prepare(settings.store_url)})"


def build_stores(settings: MochiServerSettings, url: str = "") -> Stores:
    """Build the session stores. Connections are opened later, by ``open()``.

    ``url`` is the address at which other servers with the same database reach this process.
    Raises ``StorageFailed`` if the driver is not installed.
    """
    if not settings.store_url:
        return FileStores(settings.resolved_sessions_dir, settings.resolved(settings.agent_chats_dir))
    with _database_driver():
        from mochi_server.storage.postgres.stores import PostgresStores  # noqa: PLC0415 - its driver is optional
    return PostgresStores(settings.store_url, url)


@contextmanager
def _database_driver() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        reason = "its driver is not installed. Run `pip install 'mochi-server[postgres]'`"
        raise StorageFailed("use the database of MOCHI_STORE_URL", OSError(0, reason)) from error
