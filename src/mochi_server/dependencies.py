"""What routes are given. Only fetches: everything was built once, in ``wiring``.

All are coroutines, for FastAPI would run plain functions in threads, one after the other.
"""

from typing import Annotated

from fastapi import Depends, Request

from mochi_server.agents.library import AgentLibrary
from mochi_server.chat.confirmation import ConfirmationBroker
from mochi_server.chat.runs import RunRegistry
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.openai.completions import Completions
from mochi_server.services.compare import CompareService
from mochi_server.services.sessions import SessionService
from mochi_server.services.summarization import SummarizationService
from mochi_server.services.system_prompts import SystemPromptService
from mochi_server.services.transfer import TransferService
from mochi_server.sessions.store import SessionStore
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.library import ToolLibrary
from mochi_server.wiring import Services


async def get_services(request: Request) -> Services:
    """The services of the app."""
    services = request.app.state.services
    assert isinstance(services, Services)  # noqa: S101 - create_app put it there
    return services


ServicesDep = Annotated[Services, Depends(get_services)]


async def _client(services: ServicesDep) -> AsyncOllamaClient:
    return services.client


async def _store(services: ServicesDep) -> SessionStore:
    return services.store


async def _sessions(services: ServicesDep) -> SessionService:
    return services.sessions


async def _transfers(services: ServicesDep) -> TransferService:
    return services.transfers


async def _prompts(services: ServicesDep) -> SystemPromptService:
    return services.prompts


async def _tools(services: ServicesDep) -> ToolLibrary:
    return services.tools


async def _execution(services: ServicesDep) -> ToolExecutionService:
    return services.execution


async def _confirmations(services: ServicesDep) -> ConfirmationBroker:
    return services.confirmations


async def _agents(services: ServicesDep) -> AgentLibrary:
    return services.agents


async def _agent_chats(services: ServicesDep) -> SessionStore:
    return services.agent_chats


async def _summaries(services: ServicesDep) -> SummarizationService:
    return services.summaries


async def _compare(services: ServicesDep) -> CompareService:
    return services.compare


async def _completions(services: ServicesDep) -> Completions:
    return services.completions


async def _runs(services: ServicesDep) -> RunRegistry:
    return services.runs


ClientDep = Annotated[AsyncOllamaClient, Depends(_client)]
StoreDep = Annotated[SessionStore, Depends(_store)]
SessionsDep = Annotated[SessionService, Depends(_sessions)]
TransfersDep = Annotated[TransferService, Depends(_transfers)]
PromptsDep = Annotated[SystemPromptService, Depends(_prompts)]
CompletionsDep = Annotated[Completions, Depends(_completions)]
RunsDep = Annotated[RunRegistry, Depends(_runs)]
ToolsDep = Annotated[ToolLibrary, Depends(_tools)]
AgentsDep = Annotated[AgentLibrary, Depends(_agents)]
AgentChatsDep = Annotated[SessionStore, Depends(_agent_chats)]
ExecutionDep = Annotated[ToolExecutionService, Depends(_execution)]
ConfirmationsDep = Annotated[ConfirmationBroker, Depends(_confirmations)]
SummariesDep = Annotated[SummarizationService, Depends(_summaries)]
CompareDep = Annotated[CompareService, Depends(_compare)]
