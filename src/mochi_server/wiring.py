"""The services of one server, built from settings. The only reader of settings; knows no web framework."""

from dataclasses import dataclass

from mochi_server.chat.confirmation import ConfirmationBroker
from mochi_server.chat.engine import ChatEngine
from mochi_server.chat.loop import Limits
from mochi_server.chat.runs import RunRegistry
from mochi_server.chat.toolboxes import Toolboxes
from mochi_server.config import MochiServerSettings
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.services.context_window import WindowRegistry
from mochi_server.services.sessions import SessionService
from mochi_server.services.system_prompts import SystemPromptService
from mochi_server.sessions.files import FileSessionStore
from mochi_server.tools.discovery import ToolDiscoveryService
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.library import ToolLibrary


@dataclass(frozen=True)
class Services:
    """Everything routes need; belongs to one event loop. Close it when done."""

    client: AsyncOllamaClient
    store: FileSessionStore
    windows: WindowRegistry
    prompts: SystemPromptService
    sessions: SessionService
    tools: ToolLibrary
    execution: ToolExecutionService
    confirmations: ConfirmationBroker
    runs: RunRegistry

    async def aclose(self) -> None:
        """End running turns, store what they had, close files and connections."""
        await self.runs.aclose()
        await self.store.aclose()
        await self.client.aclose()


def build_services(settings: MochiServerSettings) -> Services:
    """Build the services that settings describe. Opens nothing yet."""
    client = AsyncOllamaClient(
        settings.ollama_host,
        connect_timeout=settings.ollama_connect_timeout_seconds,
        stall_timeout=settings.ollama_stall_timeout_seconds,
    )
    store = FileSessionStore(settings.resolved_sessions_dir)
    windows = WindowRegistry(client.loaded_windows, dynamic=settings.dynamic_context_window_enabled)
    library = ToolLibrary(ToolDiscoveryService(settings.resolved_tools_dir))
    execution = ToolExecutionService(
        timeout=settings.tool_timeout_seconds, output_limit=settings.tool_output_limit_chars
    )
    broker = ConfirmationBroker(timeout=settings.tool_confirmation_timeout_seconds)
    limits = Limits(rounds=settings.max_tool_iterations, identical_calls=settings.max_identical_tool_calls)
    engine = ChatEngine(store, client, windows, Toolboxes(library, execution, broker, store), limits)
    runs = RunRegistry(
        store,
        engine,
        disconnect_grace=settings.disconnect_grace_seconds,
        shutdown_grace=settings.shutdown_grace_seconds,
    )
    prompts = SystemPromptService(settings.resolved_system_prompts_dir)
    sessions = SessionService(store, client, windows, prompts)
    return Services(client, store, windows, prompts, sessions, library, execution, broker, runs)
