"""Services of one server, built from its settings.

This module does not import the web framework.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

from anyio import to_thread

from mochi_server.agents.discovery import AgentDiscoveryService, AgentRegistry
from mochi_server.agents.execution import AgentExecutionService, AgentTurns
from mochi_server.agents.prompt_loader import PromptLoader
from mochi_server.agents.tool_factory import AgentTools
from mochi_server.chat.approvals import ApprovalService
from mochi_server.chat.conversation import Conversations
from mochi_server.chat.expiry import SessionExpiry
from mochi_server.chat.limits import DEFAULT_LIMITS, RunLimits
from mochi_server.chat.preparation import ModelTurns
from mochi_server.chat.service import TurnService
from mochi_server.chat.steps import TurnRules
from mochi_server.config import MochiServerSettings, hosts_file
from mochi_server.constants import (
    AGENT_TOOL,
    DEFAULT_WINDOW,
    OLLAMA_SETTING,
    PING_SECONDS,
    SECONDS_PER_HOUR,
)
from mochi_server.errors import MochiError, NotReady, ShuttingDown, StorageBusy, StorageFailed
from mochi_server.inference.gateway import ModelGateway
from mochi_server.mcp.authorizations import McpAuthorizations
from mochi_server.mcp.limits import McpLimits
from mochi_server.mcp.servers import McpServers
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.injected_client import ChatClient, InjectedOllamaClient, StructuredClient
from mochi_server.services.compare import CompareService
from mochi_server.services.import_export import ImportExportService
from mochi_server.services.keys import KeyRing
from mochi_server.services.recent_responses import RecentResponses
from mochi_server.services.sessions import SessionService
from mochi_server.services.summarization import SummarizationService
from mochi_server.services.summary_model import SummaryModelSelector
from mochi_server.services.system_prompts import SystemPromptService
from mochi_server.services.usage import TurnLimiter, UsageService
from mochi_server.services.versions import VersionService
from mochi_server.sessions.store import SessionStore, Stores, VisibleSessions
from mochi_server.storage.files.store import FileStores
from mochi_server.storage.retry import StorageRetry
from mochi_server.telemetry.metrics import Metrics, record_turn
from mochi_server.telemetry.webhooks import DEFAULT_TIMES, WebhookService, WebhookTimes
from mochi_server.tools.discovery import ToolDiscoveryService
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.registry import ToolRegistry
from mochi_server.util.log_events import log_event
from mochi_server.util.schema_checks import SchemaChecks
from mochi_server.util.text import install_command

_OVERDUE_SECONDS = 60
"""Time after which a turn that has not continued counts as overdue."""

logger = logging.getLogger(__name__)


def stores_of(settings: MochiServerSettings) -> Stores:
    """Build the session stores of a server with these settings."""
    return build_stores(settings, settings.resolved_advertise_url if settings.store_url else "")


@dataclass(frozen=True)
class Components:
    """Parts and limits of a server that have no setting, and that a program can replace.

    The functions are called once for each start of the server.
    """

    stores: Callable[[MochiServerSettings], Stores] = stores_of
    schema_checks: Callable[[], SchemaChecks] = SchemaChecks
    mcp: McpLimits = McpLimits()  # noqa: RUF009 - immutable
    runs: RunLimits = DEFAULT_LIMITS
    webhooks: WebhookTimes = DEFAULT_TIMES
    ping_seconds: float = PING_SECONDS
    instructor_client: StructuredClient | None = None


DEFAULT_COMPONENTS = Components()


class Services:
    """Services of one server.

    Open and close them once, on the same event loop. With ``ollama_client``, only the first Ollama
    host is used, through this client.
    """

    is_closed = False

    def __init__(
        self,
        settings: MochiServerSettings,
        ollama_client: ChatClient | None = None,
        components: Components = DEFAULT_COMPONENTS,
    ) -> None:
        self.ping_seconds = components.ping_seconds
        self.stores = components.stores(settings)
        self.usage = UsageService(self.stores.usage)
        self.limiter = TurnLimiter(self.usage, self.stores.turn_counts)
        self.metrics = metrics = Metrics(self.usage.add)
        metrics.queue_limit.set(settings.max_queue)
        self._data_dir = settings.data_dir
        given_keys = [key.get_secret_value() for key in settings.api_keys]
        self.keys = KeyRing(given_keys, settings.keys_path)
        connect = partial(
            AsyncOllamaClient,
            connect_timeout=settings.ollama_connect_timeout_seconds,
            stall_timeout=settings.ollama_stall_timeout_seconds,
            can_install=settings.env != "test",
            setting="MOCHI_OLLAMA_HOSTS" if settings.ollama_hosts else OLLAMA_SETTING,
        )
        self.gateway = gateway = ModelGateway(
            InjectedOllamaClient(ollama_client, settings.ollama_host) if ollama_client else connect,
            hosts=lambda: settings.hosts()[:1] if ollama_client else settings.hosts(),
            hosts_file=hosts_file(settings.ollama_hosts, settings.data_dir),
            slots=settings.ollama_slots,
            max_queue=settings.max_queue,
            dynamic=settings.dynamic_context_window_enabled,
            # Other servers of a database also load models, so a loaded window need not be Ollama's
            # own.
            initial=settings.initial_context_window
            or (DEFAULT_WINDOW if settings.store_url else None),
            observer=metrics,
        )
        self.fleet = gateway.fleet
        self.store: SessionStore = VisibleSessions(self.stores.chats)
        self.agent_chats: SessionStore = VisibleSessions(self.stores.agents)
        retry = StorageRetry(settings.store_retry_seconds)
        webhook_url = settings.webhook_url.get_secret_value()
        self.conversations = Conversations(
            self.store, self.agent_chats, retry, reports=bool(webhook_url)
        )
        self.prompts = SystemPromptService(settings.resolved(settings.system_prompts_dir))
        tools_dir = settings.code_directory("tools_dir")
        self.mcp = McpServers(
            tools_dir,
            [AGENT_TOOL],
            limits=components.mcp,
            checks=components.schema_checks(),
            secrets=self.stores.secrets,
        )
        self.mcp_authorizations = McpAuthorizations(self.mcp)
        self.tools = ToolRegistry(ToolDiscoveryService(tools_dir), self.mcp)
        self.execution = ToolExecutionService(
            timeout=settings.tool_timeout_seconds,
            output_limit=settings.tool_output_limit_chars,
            on_lost=metrics.lost_threads.inc,
            on_refused=metrics.refused_calls.inc,
        )
        self.webhooks = WebhookService(
            self.stores.webhooks,
            url=webhook_url,
            secret=settings.webhook_secret.get_secret_value(),
            times=components.webhooks,
        )
        self.approvals = ApprovalService(
            timeout=settings.tool_confirmation_timeout_seconds,
            suspend_seconds=settings.park_seconds,
            execution=self.execution,
        )
        agents_dir = settings.code_directory("agents_dir")
        discovery = AgentDiscoveryService(agents_dir, settings.resolved(settings.agent_chats_dir))
        self.agents = AgentRegistry(discovery, self.tools)
        self.sessions = SessionService(
            self.store, gateway, self.prompts, self.tools, self.agents.directory_agents, self.keys
        )
        self.versions = VersionService(self.sessions)
        self.summaries = SummarizationService(
            self.store,
            gateway,
            SummaryModelSelector(settings.summary_unsupported_models),
            self.limiter,
            enabled=settings.summarization_enabled,
            interval=settings.summarization_interval_seconds,
            keys=self.keys,
            instructor=components.instructor_client,
        )
        rules = TurnRules(
            rounds=settings.max_tool_iterations,
            identical_calls=settings.max_identical_tool_calls,
            calls_per_round=settings.max_tool_calls_per_round,
            repairs_answers=settings.repair_answers,
        )
        agent_execution = AgentExecutionService(
            gateway,
            self.agent_chats,
            self.execution,
            PromptLoader(
                settings.resolved(settings.planning_prompt_path),
                settings.resolved(settings.execution_prompt_path),
            ),
            replace(rules, rounds=settings.max_agent_iterations),
            on_tool_calls=metrics.tool_calls_ended,
            retry=retry,
            callers=self.store,
        )
        preparation = ModelTurns(
            gateway=gateway,
            registry=self.tools,
            execution=self.execution,
            approvals=self.approvals,
            agents=AgentTools(agent_execution, self.agents),
            rules=rules,
            sessions=self.sessions,
            checks=self.mcp.checks,
            continues_background_turns=settings.continue_background_turns,
        )
        self.turns = TurnService(
            preparation=preparation,
            agent_preparation=AgentTurns(self.agents, agent_execution),
            summaries=self.summaries,
            approvals=self.approvals,
            conversations=self.conversations,
            keys=self.keys,
            limiter=self.limiter,
            disconnect_grace=settings.disconnect_grace_seconds,
            shutdown_grace=settings.shutdown_grace_seconds,
            on_ended=partial(record_turn, metrics, trace_content=settings.trace_content),
            limits=components.runs,
        )
        self.expiry = SessionExpiry(
            self.turns, idle_seconds=settings.temporary_session_hours * SECONDS_PER_HOUR
        )
        self.transfers = ImportExportService(
            self.store,
            gateway.fleet,
            max_sessions=settings.max_import_sessions,
            max_bytes=settings.max_body_bytes,
            shutdown=self.turns.shutdown,
        )
        self.responses = RecentResponses()
        self.compare = CompareService(
            gateway,
            self.limiter,
            shutdown_grace=settings.shutdown_grace_seconds,
            repairs_answers=settings.repair_answers,
        )
        self._connect_gauges()

    def _connect_gauges(self) -> None:
        metrics = self.metrics
        running = self.turns.table.running
        fleet = self.fleet
        metrics.waiting.set_function(
            lambda: sum(host.tracker.waiting_turns() for host in fleet.hosts)
        )
        metrics.running.set_function(lambda: len(running()))
        metrics.subscribers.set_function(lambda: sum(run.subscribers for run in running()))
        metrics.store.set_function(lambda: self.stores.connected)
        metrics.hosts = lambda: [
            (host.name, host.state, host.queue.waiting) for host in fleet.hosts
        ]

    async def open(self) -> None:
        """Open the stores and start to connect to MCP servers.

        Raises ``MochiError`` if the stores cannot be used.
        """
        await self.stores.open(self.turns.abort_all)
        await self.mcp.open()
        self.webhooks.open()
        self.usage.open()
        self.turns.open(is_shared=self.stores.is_shared)
        self.expiry.open()

    async def measure(self) -> None:
        """Update the metrics of Ollama, the disk and the store.

        If the store cannot be reached, its metrics keep their values.
        """
        metrics = self.metrics
        metrics.ollama.set(await self.fleet.is_reachable())
        with suppress(OSError):
            disk = await to_thread.run_sync(shutil.disk_usage, self._data_dir)
            metrics.disk_free.set(disk.free)
            metrics.disk_size.set(disk.total)
        if not self.stores.connected:
            return
        with suppress(MochiError):
            webhooks, age = await self.webhooks.backlog()
            metrics.webhooks.set(webhooks)
            metrics.webhook_age.set(age)
            overdue = await self.stores.chats.due_turns(time.time() - _OVERDUE_SECONDS)
            metrics.overdue.set(len(overdue))

    async def check_ready(self) -> None:
        """Raise ``ShuttingDown`` or ``NotReady`` if the server cannot run or store new turns."""
        if self.turns.shutdown.is_set():
            raise ShuttingDown
        try:
            await self.stores.check()
        except StorageFailed as error:
            raise NotReady(error.message) from error
        except StorageBusy as error:
            raise NotReady(error.cause) from error  # the message contains a path

    async def drain(self) -> None:
        """Refuse new turns and comparisons, and wait for the running ones.

        Those that exceed the grace period are ended.
        """
        turns = self.turns.table.running()
        began = time.monotonic()
        log_event(logger, logging.INFO, "Draining began", turns=len(turns))
        await asyncio.gather(self.turns.drain(), self.compare.drain())
        seconds = time.monotonic() - began
        log_event(
            logger,
            logging.INFO,
            "Draining ended",
            cancelled=sum(run.state == "cancelled" for run in turns),
            duration_ms=round(seconds * 1000),
        )

    async def end_turns(self) -> None:
        """End running turns and comparisons now."""
        await asyncio.gather(self.turns.end_all(), self.compare.end_all())

    async def aclose(self) -> None:
        """End running turns, store their partial answers, and close files and connections.

        The stores close after all services that use them.
        """
        self.is_closed = True
        await self.expiry.aclose()
        await self.turns.aclose()
        await self.webhooks.aclose()
        await self.mcp_authorizations.aclose()
        await self.mcp.aclose()
        await self.summaries.aclose()
        await self.usage.aclose()
        await self.stores.aclose()
        await self.fleet.aclose()


def build_services(
    settings: MochiServerSettings,
    ollama_client: ChatClient | None = None,
    components: Components = DEFAULT_COMPONENTS,
) -> Services:
    """Build the services of a server. Connections are opened later, by ``open()``."""
    return Services(settings.with_absolute_data_dir(), ollama_client, components)


async def prepare_store(settings: MochiServerSettings) -> str:
    """Migrate the database, and return its version as a text for the user.

    Raises ``StorageFailed``.
    """
    with _database_driver():
        from mochi_server.storage.postgres.database import prepare  # noqa: PLC0415 - its driver is optional
    version = await prepare(settings.store_url.get_secret_value())
    return f"the database schema is up to date (version {version})"


def build_stores(
    settings: MochiServerSettings, url: str = "", *, reads_only: bool = False
) -> Stores:
    """Build the session stores, without opening connections.

    ``url`` is the address at which other servers with the same database reach this process. If
    ``reads_only`` is true, the stores do not change the database.

    Raises ``StorageFailed`` if the settings name a database whose driver is not installed.
    """
    if not settings.store_url:
        return FileStores(
            settings.resolved_sessions_dir,
            settings.resolved(settings.agent_chats_dir),
            settings.resolved("mcp_authorizations"),
            settings.usage_path,
        )
    with _database_driver():
        from mochi_server.storage.postgres.store import PostgresStores  # noqa: PLC0415 - its driver is optional
    return PostgresStores(settings.store_url.get_secret_value(), url, reads_only=reads_only)


@contextmanager
def _database_driver() -> Iterator[None]:
    """Convert the ImportError of a missing driver to ``StorageFailed``."""
    try:
        yield
    except ImportError as error:
        reason = f"its driver is not installed. Run `{install_command('postgres')}`"
        raise StorageFailed("use the database of MOCHI_STORE_URL", OSError(0, reason)) from error
