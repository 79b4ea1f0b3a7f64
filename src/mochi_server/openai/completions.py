"""Completions as turns: in a session, in a conversation with an agent, or in one that is not stored."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mochi_server import errors
from mochi_server.agents.config import AgentDefinition
from mochi_server.agents.execution import AgentExecutionService
from mochi_server.agents.registry import AgentRegistry
from mochi_server.agents.task import AgentTask
from mochi_server.chat.run import Run
from mochi_server.chat.run_registry import RunRegistry
from mochi_server.chat.turn import TurnRequest, TurnResult
from mochi_server.events import Publish
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelInfo
from mochi_server.openai.errors import invalid_parameter
from mochi_server.openai.request_mapping import CompletionInput, to_session_turn_request, to_turn_request
from mochi_server.services.sessions import SessionService
from mochi_server.sessions.images import Image
from mochi_server.sessions.session import OWNER, ChatSession
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message, SessionCreationOptions, ToolExecutionPolicy, ToolSettings
from mochi_server.storage.memory import MemorySessionStore
from mochi_server.tools.registry import ToolRegistry
from mochi_server.util.clock import new_id

PREFIX = "agent:"
"""Of the names of models that mean agents. An agent answers a whole conversation, in a session of its own."""

_NO_MODEL = "Ollama has no chat model. `ollama pull qwen3` gets one."


class EphemeralConversations:
    """Conversations of one request each, which are deleted when their turns end."""

    def __init__(self) -> None:
        self.sessions = MemorySessionStore()
        self.agent_chats = MemorySessionStore()
        """Conversations with agents, under the IDs of their sessions."""

    def turn_starting(self, _: str) -> None:
        """Do nothing."""

    def turn_ended(self, session_id: str) -> None:
        """Delete the conversation."""
        self.sessions.discard(session_id)
        self.agent_chats.discard(session_id)

    def session_deleting(self, _: str) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class TurnBackend:
    """The stores and services of stored or of unstored conversations."""

    store: SessionStore
    runs: RunRegistry
    agent_chats: SessionStore
    agents: AgentExecutionService


@dataclass(frozen=True)
class CompletionRun:
    """A run that answers a client, and its registry."""

    runs: RunRegistry
    run: Run


@dataclass(eq=False)
class Completions:
    """Starts turns for clients of the OpenAI API."""

    client: AsyncOllamaClient
    sessions: SessionService
    tools: ToolRegistry
    agents: AgentRegistry
    stored: TurnBackend
    ephemeral: TurnBackend
    on_not_started: Callable[[str], None]
    """Receives the ID of an unstored conversation whose turn could not begin."""

    async def models(self) -> list[str]:
        """List the names of the models that can chat and of the valid agents."""
        agents = [f"{PREFIX}{name}" for name, agent in (await self.agents.agents()).items() if agent.valid]
        return [model.name for model in await self.client.list_models()] + agents

    async def check_model(self, name: str) -> None:
        """Raise ``ModelNotFound``, ``AgentNotFound`` or ``AgentInvalid`` unless a model or an agent has the name."""
        if await self._agent(name) is None:
            await self.client.find_model(name)

    async def start(self, request: CompletionInput) -> CompletionRun:
        """Start the turn that answers a request. Errors are raised before it starts."""
        known = (await self.tools.catalogue()).tools if request.tools else {}
        for name in request.tools or ():
            if name not in known:
                raise errors.ToolNotFound(name)
        if (agent := await self._agent(request.model)) is not None:
            return await self._with_agent(request, agent)
        if request.session_id is not None:
            return await self._in_session(request, request.session_id)
        model = await self.client.find_model(request.model)
        _check_abilities(request, model, request.images)
        images = [image for of_message in request.images.values() for image in of_message]
        policy = request.policy or ToolExecutionPolicy.CONFIRM_DESTRUCTIVE
        settings = ToolSettings(tools=list(request.tools or ()), execution_policy=policy)
        session = ChatSession.create(SessionCreationOptions(request.model, tool_settings=settings))
        return await self._begin(session, to_turn_request(request), request.messages_with_images, images)

    async def _in_session(self, request: CompletionInput, session_id: str) -> CompletionRun:
        if request.policy is not None:
            raise invalid_parameter("X-Mochi-Tool-Policy", "the session has its own policy")
        session = await self.stored.store.load(session_id)
        run = await self.stored.runs.find(session_id)
        if run is not None and run.running:
            raise errors.SessionBusy(session_id, run.run_id)
        turn = to_session_turn_request(session, request)
        with suppress(errors.OllamaUnreachable, errors.OllamaError):  # the message is stored nevertheless
            model = await self.client.find_model(request.model)
            _check_abilities(request, model, turn.images)
        if qualified_name(request.model) != qualified_name(session.model):
            await self.sessions.patch(session_id, {"model": request.model})
        return CompletionRun(self.stored.runs, await self.stored.runs.start(session_id, turn))

    async def _with_agent(self, request: CompletionInput, agent: AgentDefinition) -> CompletionRun:
        place = self.ephemeral if request.session_id is None else self.stored
        instruction, model = _instruction_of(request), await self._fallback_model(agent)
        session = ChatSession.create(SessionCreationOptions(model))
        if request.session_id is None:
            await place.agent_chats.create(_conversation_with(agent, request, session.session_id))
        else:
            if (await place.agent_chats.load(request.session_id)).metadata.extra.get(OWNER) != agent.name:
                raise errors.SessionNotFound(request.session_id)
            async with place.agent_chats.hold(request.session_id, run_id=new_id()):
                pass  # raises errors.SessionBusy
        task = AgentTask(
            agent,
            instruction,
            model,
            session_id=request.session_id or session.session_id,
            policy=request.policy or ToolExecutionPolicy.CONFIRM_DESTRUCTIVE,
        )

        async def respond(publish: Publish) -> TurnResult:
            result = await place.agents.execute(task, publish)
            return TurnResult(stored=result.messages, failure=result.failure)

        turn = TurnRequest(interactive=False, continues=True, responder=respond)
        return await self._begin(session, turn)

    async def _begin(
        self, session: ChatSession, turn: TurnRequest, messages: Sequence[Message] = (), images: Sequence[Image] = ()
    ) -> CompletionRun:
        """Start a turn in an unstored conversation."""
        place = self.ephemeral
        created = await place.store.create(session)
        try:
            await place.store.append(created.session_id, messages, images=images)
            return CompletionRun(place.runs, await place.runs.start(created.session_id, turn))
        except BaseException:
            self.on_not_started(created.session_id)
            raise

    async def _agent(self, name: str) -> AgentDefinition | None:
        """Return the current agent for a model's name, or None if the name means a model.

        Raises ``AgentNotFound`` for an unknown name, and ``AgentInvalid``.
        """
        if not name.startswith(PREFIX):
            return None
        agent = name.removeprefix(PREFIX)
        if agent in await self.agents.agents():
            return await self.agents.current(await self.agents.get(agent))
        try:
            await self.client.find_model(name)
        except errors.ModelNotFound:
            raise errors.AgentNotFound(agent) from None
        return None

    async def _fallback_model(self, agent: AgentDefinition) -> str:
        """Return the first model that can call tools, for agents without an installed model."""
        models = await self.client.list_models()
        if not models:
            raise errors.ModelNotFound(agent.model) if agent.model else errors.OllamaError(_NO_MODEL)
        return next((model.name for model in models if model.can("tools")), models[0].name)


def _check_abilities(request: CompletionInput, model: ModelInfo, images: Collection[object]) -> None:
    """Refuse tools and images that the model cannot use."""
    if request.may_call and (request.client_tools or request.tools) and not model.can("tools"):
        raise invalid_parameter("tools", f"model {model.name!r} cannot use tools")
    if images and not model.can("vision"):
        raise invalid_parameter("messages", f"model {model.name!r} cannot see images")


def _instruction_of(request: CompletionInput) -> str:
    """Return the last message as the instruction. Raises ``ValidationFailed`` for requests that no agent supports."""
    if request.client_tools or request.tools is not None:
        raise invalid_parameter("tools", "an agent has its own tools, and takes no others")
    if request.images:
        raise invalid_parameter("messages", "an agent takes no images")
    last = request.messages[-1]
    if last["role"] != "user" or not last["content"].strip():
        raise invalid_parameter("messages", "the last of them must be the user's and say what the agent is to do")
    return last["content"]


def _conversation_with(agent: AgentDefinition, request: CompletionInput, session_id: str) -> ChatSession:
    """Create a session of the agent with the messages before the instruction."""
    session = ChatSession.create(SessionCreationOptions(request.model))
    session.metadata.session_id = session_id
    session.metadata.extra[OWNER] = agent.name
    session.messages = [message for message in request.messages[:-1] if message["role"] != "system"]
    return session
