"""Completions as turns: in a session, in a conversation with an agent, or in one that is not stored."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mochi_server import errors
from mochi_server.agents.config import AgentDefinition
from mochi_server.agents.execution import AgentExecutionService
from mochi_server.agents.registry import AgentLibrary
from mochi_server.agents.task import AgentTask
from mochi_server.chat.run import Run
from mochi_server.chat.run_registry import RunRegistry
from mochi_server.chat.turn import TurnRequest, TurnResult
from mochi_server.events import Publish
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.payloads import qualified
from mochi_server.ollama.types import ModelInfo
from mochi_server.openai.errors import invalid
from mochi_server.openai.request_mapping import Ask, turn_in, turn_of
from mochi_server.services.sessions import SessionService
from mochi_server.sessions.images import Image
from mochi_server.sessions.session import OWNER, ChatSession
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message, SessionCreationOptions, ToolExecutionPolicy, ToolSettings
from mochi_server.storage.memory import MemorySessionStore
from mochi_server.tools.registry import ToolLibrary
from mochi_server.util.clock import new_id

PREFIX = "agent:"
"""Of the names of models that mean agents. An agent answers a whole conversation, in a session of its own."""

_NO_MODEL = "Ollama has no chat model. `ollama pull qwen3` gets one."


class Passing:
    """Conversations of one request each, which are deleted when their turns end."""

    def __init__(self) -> None:
        self.sessions = MemorySessionStore()
        self.agent_chats = MemorySessionStore()
        """Conversations with agents, under the IDs of their sessions."""

    def turn_begins(self, _: str) -> None:
        """Do nothing."""

    def turn_ended(self, session_id: str) -> None:
        """Delete the conversation."""
        self.sessions.forget(session_id)
        self.agent_chats.forget(session_id)

    def session_goes(self, _: str) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Place:
    """The stores and services of stored or of unstored conversations."""

    store: SessionStore
    runs: RunRegistry
    agent_chats: SessionStore
    agents: AgentExecutionService


@dataclass(frozen=True)
class Completion:
    """A run that answers a client, and its registry."""

    runs: RunRegistry
    run: Run


@dataclass(eq=False)
class Completions:
    """Starts turns for clients of the OpenAI API."""

    client: AsyncOllamaClient
    sessions: SessionService
    tools: ToolLibrary
    agents: AgentLibrary
    stored: Place
    passing: Place
    ended: Callable[[str], None]
    """Receives the ID of an unstored conversation whose turn could not begin."""

    async def models(self) -> list[str]:
        """List the names of the models that can chat and of the valid agents."""
        agents = [f"{PREFIX}{name}" for name, agent in (await self.agents.agents()).items() if agent.valid]
        return [model.name for model in await self.client.list_models()] + agents

    async def check_model(self, name: str) -> None:
        """Raise ``ModelNotFound``, ``AgentNotFound`` or ``AgentInvalid`` unless a model or an agent has the name."""
        if await self._agent(name) is None:
            await self.client.find_model(name)

    async def start(self, ask: Ask) -> Completion:
        """Start the turn that answers a request. Errors are raised before it starts."""
        known = (await self.tools.catalogue()).tools if ask.tools else {}
        for name in ask.tools or ():
            if name not in known:
                raise errors.ToolNotFound(name)
        if (agent := await self._agent(ask.model)) is not None:
            return await self._with_agent(ask, agent)
        if ask.session_id is not None:
            return await self._in_session(ask, ask.session_id)
        model = await self.client.find_model(ask.model)
        _check_abilities(ask, model, ask.images)
        images = [image for of_message in ask.images.values() for image in of_message]
        policy = ask.policy or ToolExecutionPolicy.CONFIRM_DESTRUCTIVE
        settings = ToolSettings(tools=list(ask.tools or ()), execution_policy=policy)
        session = ChatSession.create(SessionCreationOptions(ask.model, tool_settings=settings))
        return await self._begin(session, turn_of(ask), ask.shown, images)

    async def _in_session(self, ask: Ask, session_id: str) -> Completion:
        if ask.policy is not None:
            raise invalid("X-Mochi-Tool-Policy", "the session has its own policy")
        session = await self.stored.store.load(session_id)
        run = await self.stored.runs.find(session_id)
        if run is not None and run.running:
            raise errors.SessionBusy(session_id, run.run_id)
        turn = turn_in(session, ask)
        with suppress(errors.OllamaUnreachable, errors.OllamaError):  # the message is stored nevertheless
            model = await self.client.find_model(ask.model)
            _check_abilities(ask, model, turn.images)
        if qualified(ask.model) != qualified(session.model):
            await self.sessions.patch(session_id, {"model": ask.model})
        return Completion(self.stored.runs, await self.stored.runs.start(session_id, turn))

    async def _with_agent(self, ask: Ask, agent: AgentDefinition) -> Completion:
        place = self.passing if ask.session_id is None else self.stored
        instruction, model = _instruction_of(ask), await self._stand_in(agent)
        session = ChatSession.create(SessionCreationOptions(model))
        if ask.session_id is None:
            await place.agent_chats.create(_conversation_with(agent, ask, session.session_id))
        else:
            if (await place.agent_chats.load(ask.session_id)).metadata.extra.get(OWNER) != agent.name:
                raise errors.SessionNotFound(ask.session_id)
            async with place.agent_chats.hold(ask.session_id, run_id=new_id()):
                pass  # raises errors.SessionBusy
        task = AgentTask(
            agent,
            instruction,
            model,
            session_id=ask.session_id or session.session_id,
            policy=ask.policy or ToolExecutionPolicy.CONFIRM_DESTRUCTIVE,
        )

        async def respond(publish: Publish) -> TurnResult:
            result = await place.agents.execute(task, publish)
            return TurnResult(stored=result.messages, failure=result.failure)

        turn = TurnRequest(interactive=False, continues=True, responder=respond)
        return await self._begin(session, turn)

    async def _begin(
        self, session: ChatSession, turn: TurnRequest, messages: Sequence[Message] = (), images: Sequence[Image] = ()
    ) -> Completion:
        """Start a turn in an unstored conversation."""
        place = self.passing
        created = await place.store.create(session)
        try:
            await place.store.append(created.session_id, messages, images=images)
            return Completion(place.runs, await place.runs.start(created.session_id, turn))
        except BaseException:
            self.ended(created.session_id)
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

    async def _stand_in(self, agent: AgentDefinition) -> str:
        """Return the first model that can call tools, for agents without an installed model."""
        models = await self.client.list_models()
        if not models:
            raise errors.ModelNotFound(agent.model) if agent.model else errors.OllamaError(_NO_MODEL)
        return next((model.name for model in models if model.can("tools")), models[0].name)


def _check_abilities(ask: Ask, model: ModelInfo, images: Collection[object]) -> None:
    """Refuse tools and images that the model cannot use."""
    if ask.may_call and (ask.client_tools or ask.tools) and not model.can("tools"):
        raise invalid("tools", f"model {model.name!r} cannot use tools")
    if images and not model.can("vision"):
        raise invalid("messages", f"model {model.name!r} cannot see images")


def _instruction_of(ask: Ask) -> str:
    """Return the last message as the instruction. Raises ``ValidationFailed`` for requests that no agent supports."""
    if ask.client_tools or ask.tools is not None:
        raise invalid("tools", "an agent has its own tools, and takes no others")
    if ask.images:
        raise invalid("messages", "an agent takes no images")
    last = ask.messages[-1]
    if last["role"] != "user" or not last["content"].strip():
        raise invalid("messages", "the last of them must be the user's and say what the agent is to do")
    return last["content"]


def _conversation_with(agent: AgentDefinition, ask: Ask, session_id: str) -> ChatSession:
    """Create a session of the agent with the messages before the instruction."""
    session = ChatSession.create(SessionCreationOptions(ask.model))
    session.metadata.session_id = session_id
    session.metadata.extra[OWNER] = agent.name
    session.messages = [message for message in ask.messages[:-1] if message["role"] != "system"]
    return session
