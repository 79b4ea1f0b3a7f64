"""Completions as turns of the engine: in a session, in an agent's conversation, or in one that nobody stores."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mochi_server.agents.config import AgentDefinition
from mochi_server.agents.execution import AgentExecutionService
from mochi_server.agents.library import AgentLibrary
from mochi_server.agents.task import AgentTask
from mochi_server.chat.run import Run
from mochi_server.chat.runs import RunRegistry
from mochi_server.chat.turn import TurnRequest
from mochi_server.errors import AgentNotFound, ModelNotFound, OllamaError, OllamaUnreachable, SessionBusy, ToolNotFound
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.requests import qualified
from mochi_server.ollama.types import ModelInfo
from mochi_server.openai.agents import PREFIX, check_conversation, conversation_with, instruction_of, responder_of
from mochi_server.openai.asking import Ask, session_of, turn_in, turn_of
from mochi_server.openai.errors import invalid
from mochi_server.services.sessions import SessionService
from mochi_server.sessions.images import Image
from mochi_server.sessions.memory import MemorySessionStore
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message, SessionCreationOptions, ToolExecutionPolicy
from mochi_server.tools.library import ToolLibrary

_NO_MODEL = "Ollama has no chat model. `ollama pull qwen3` gets one."


class Passing:
    """Conversations of one request each. They are gone when their turns have ended."""

    def __init__(self) -> None:
        self.sessions = MemorySessionStore()
        self.agent_chats = MemorySessionStore()
        """Those of agents, under the ids of the sessions that they stand for."""

    def turn_begins(self, _: str) -> None:
        """There is nothing to be kept from."""

    def turn_ended(self, session_id: str) -> None:
        """Nobody can come back to it."""
        self.sessions.forget(session_id)
        self.agent_chats.forget(session_id)

    def session_goes(self, _: str) -> None:
        """There is nothing to be told: they all go."""


@dataclass(frozen=True)
class Place:
    """Where turns of a kind run."""

    store: SessionStore
    runs: RunRegistry
    agent_chats: SessionStore
    agents: AgentExecutionService


@dataclass(frozen=True)
class Completion:
    """A run that answers a client, and the registry it is listened to in."""

    runs: RunRegistry
    run: Run


class Completions:
    """Begins turns for clients of OpenAI's API."""

    def __init__(
        self,
        client: AsyncOllamaClient,
        sessions: SessionService,
        tools: ToolLibrary,
        agents: AgentLibrary,
        *,
        stored: Place,
        passing: Place,
        ended: Callable[[str], None],
    ) -> None:
        """``ended`` is told the id of a passing conversation whose turn could not begin."""
        self._client = client
        self._sessions = sessions
        self._tools = tools
        self._agents = agents
        self._stored = stored
        self._passing = passing
        self._ended = ended

    async def models(self) -> list[str]:
        """Names that can be asked for: models that can chat, and agents that can be used."""
        agents = [f"{PREFIX}{name}" for name, agent in (await self._agents.agents()).items() if agent.valid]
        return [model.name for model in await self._client.list_models()] + agents

    async def check_model(self, name: str) -> None:
        """Raises ``ModelNotFound`` or ``AgentNotFound`` for what cannot be asked for; ``AgentInvalid``."""
        if await self._agent(name) is None:
            await self._client.find_model(name)

    async def start(self, ask: Ask) -> Completion:
        """Begin the turn that answers a request. Raises what the client should get as an HTTP status."""
        await self._check_names(ask.tools or ())
        if (agent := await self._agent(ask.model)) is not None:
            return await self._with_agent(ask, agent)
        if ask.session_id is not None:
            return await self._in_session(ask, ask.session_id)
        model = await self._client.find_model(ask.model)
        _check_tools(ask, model)
        if ask.images:
            _check_sight(model)
        images = [image for of_message in ask.images.values() for image in of_message]
        return await self._begin(session_of(ask), turn_of(ask), ask.shown, images)

    async def _in_session(self, ask: Ask, session_id: str) -> Completion:
        if ask.policy is not None:
            raise invalid("X-Mochi-Tool-Policy", "the session has its own policy")
        session = await self._stored.store.load(session_id)
        run = await self._stored.runs.find(session_id)
        if run is not None and run.running:
            raise SessionBusy(session_id, run.run_id)
        turn = turn_in(session, ask)
        with suppress(OllamaUnreachable, OllamaError):  # what the user says is stored all the same
            model = await self._client.find_model(ask.model)
            _check_tools(ask, model)
            if turn.images:
                _check_sight(model)
        if qualified(ask.model) != qualified(session.model):
            await self._sessions.patch(session_id, {"model": ask.model})
        return Completion(self._stored.runs, await self._stored.runs.start(session_id, turn))

    async def _with_agent(self, ask: Ask, agent: AgentDefinition) -> Completion:
        place = self._passing if ask.session_id is None else self._stored
        instruction, model = instruction_of(ask), await self._stand_in(agent)
        session = ChatSession.create(SessionCreationOptions(model))
        if ask.session_id is None:
            await place.agent_chats.create(conversation_with(agent, ask, session.session_id))
        else:
            await check_conversation(place.agent_chats, agent, ask.session_id)
        task = AgentTask(
            agent,
            instruction,
            model,
            session_id=ask.session_id or session.session_id,
            policy=ask.policy or ToolExecutionPolicy.CONFIRM_DESTRUCTIVE,
        )
        turn = TurnRequest(interactive=False, continues=True, responder=responder_of(place.agents, task))
        return await self._begin(session, turn)

    async def _begin(
        self, session: ChatSession, turn: TurnRequest, messages: Sequence[Message] = (), images: Sequence[Image] = ()
    ) -> Completion:
        """A turn in a conversation that passes with it."""
        place = self._passing
        created = await place.store.create(session)
        try:
            await place.store.append(created.session_id, messages, images=images)
            return Completion(place.runs, await place.runs.start(created.session_id, turn))
        except BaseException:
            self._ended(created.session_id)
            raise

    async def _agent(self, name: str) -> AgentDefinition | None:
        """The agent that a model's name means, as it is now; None where it means a model.

        Raises ``AgentNotFound`` where it means neither, and ``AgentInvalid``.
        """
        if not name.startswith(PREFIX):
            return None
        agent = name.removeprefix(PREFIX)
        if agent in await self._agents.agents():
            return await self._agents.current(await self._agents.get(agent))
        try:
            await self._client.find_model(name)
        except ModelNotFound:
            raise AgentNotFound(agent) from None
        return None

    async def _stand_in(self, agent: AgentDefinition) -> str:
        """The model for an agent that names none, or one that is gone: the first that can call tools."""
        models = await self._client.list_models()
        if not models:
            raise ModelNotFound(agent.model) if agent.model else OllamaError(_NO_MODEL)
        return next((model.name for model in models if model.can("tools")), models[0].name)

    async def _check_names(self, names: Sequence[str]) -> None:
        if names:
            known = (await self._tools.catalogue()).tools
            for name in names:
                if name not in known:
                    raise ToolNotFound(name)


def _check_tools(ask: Ask, model: ModelInfo) -> None:
    """Refuse tools that were asked for and would be left out, for the model knows none."""
    if ask.may_call and (ask.client_tools or ask.tools) and not model.can("tools"):
        raise invalid("tools", f"model {model.name!r} cannot use tools")


def _check_sight(model: ModelInfo) -> None:
    """Refuse images for a model that sees none."""
    if not model.can("vision"):
        raise invalid("messages", f"model {model.name!r} cannot see images")
