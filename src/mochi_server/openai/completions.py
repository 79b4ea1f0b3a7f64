"""Completions of OpenAI's API, executed as turns: in a session, by an agent, or in an unstored conversation."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from mochi_server import errors
from mochi_server.agents.config import AgentDefinition
from mochi_server.agents.execution import AgentExecutionService
from mochi_server.agents.registry import AgentRegistry
from mochi_server.agents.task import AgentTask
from mochi_server.chat.idempotency import keyed_indexes
from mochi_server.chat.run import Run
from mochi_server.chat.run_registry import RunObserver, RunRegistry
from mochi_server.chat.turn import TurnRequest, TurnResult
from mochi_server.errors import ValidationFailed
from mochi_server.events import Publish
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelInfo
from mochi_server.openai.request_mapping import (
    CompletionInput,
    contains_results,
    to_keyed_turn_request,
    to_session_turn_request,
    to_turn_request,
)
from mochi_server.openai.responses_state import check_previous_response
from mochi_server.services.sessions import SessionService
from mochi_server.sessions.images import Image
from mochi_server.sessions.session import OWNER, ChatSession
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message, SessionCreationOptions, ToolExecutionPolicy, ToolSettings
from mochi_server.storage.memory import MemorySessionStore
from mochi_server.tools.registry import ToolRegistry
from mochi_server.util.clock import new_id

PREFIX = "agent:"
"""Prefix of the model names that select an agent, such as `agent:researcher`."""

_DEFAULT_POLICY = ToolExecutionPolicy.CONFIRM_DESTRUCTIVE
_NO_MODEL = "Ollama has no chat model. Install one with `ollama pull qwen3`."


class EphemeralConversations:
    """Conversations in memory, each for one request. A conversation is deleted when its turn ends.

    ``observer`` is called when a turn starts, and when its conversation is deleted.
    """

    def __init__(self, observer: RunObserver) -> None:
        self._observer = observer
        self.sessions = MemorySessionStore()
        self.agent_chats = MemorySessionStore()
        """Sessions of agents. Each has the same ID as the conversation in ``sessions`` to which it belongs."""

    def turn_starting(self, session_id: str) -> None:
        self._observer.turn_starting(session_id)

    def turn_ended(self, session_id: str, _answer_id: str | None = None) -> None:
        self._observer.session_deleting(session_id)
        self.sessions.discard(session_id)
        self.agent_chats.discard(session_id)

    def session_deleting(self, _: str) -> None: ...


@dataclass(frozen=True)
class TurnBackend:
    """Stores and services for one kind of conversation: stored or unstored."""

    store: SessionStore
    runs: RunRegistry
    agent_chats: SessionStore
    agents: AgentExecutionService


@dataclass(eq=False)
class Completions:
    """Service that starts turns for completion requests of OpenAI's API."""

    client: AsyncOllamaClient
    sessions: SessionService
    tools: ToolRegistry
    agents: AgentRegistry
    stored: TurnBackend
    ephemeral: TurnBackend
    on_not_started: Callable[[str], None]
    """Function that receives the ID of an unstored conversation whose turn did not start."""

    async def models(self) -> dict[str, int]:
        """Return the time of the last change of each model and each valid agent, in seconds since 1970.

        Chat models come first, because some clients select the first model of the list. Agents come last.
        """
        found = await self.agents.directory_agents()
        agents = {f"{PREFIX}{name}": agent.modified for name, agent in found.items() if agent.valid}
        models = sorted(await self.client.list_installed(), key=lambda model: not model.can("completion"))
        return {model.name: model.modified for model in models} | agents

    async def modified(self, name: str) -> int:
        """Return the time of the last change of a model or an agent. Raises ``MochiError`` for an unknown name."""
        return (await self._agent(name) or await self.client.find_installed(name)).modified

    async def start(self, request: CompletionInput) -> Run:
        """Start the turn that answers a request. Raise ``MochiError`` if the turn cannot start."""
        known = (await self.tools.catalogue()).tools if request.tools else {}
        for name in request.tools or ():
            if name not in known:
                raise errors.ToolNotFound(name)
        if (agent := await self._agent(request.model)) is not None:
            return await self._with_agent(request, agent)
        if request.session_id is not None:
            return await self._in_session(request, request.session_id)
        model = await self.client.find_model(request.model)
        _check_capabilities(request, model, request.images)
        images = [image for of_message in request.images.values() for image in of_message]
        settings = ToolSettings(tools=list(request.tools or ()), execution_policy=request.policy or _DEFAULT_POLICY)
        session = ChatSession.create(SessionCreationOptions(request.model, tool_settings=settings))
        return await self._start_unstored(session, to_turn_request(request), request.messages_with_images, images)

    async def _in_session(self, request: CompletionInput, session_id: str) -> Run:
        if request.policy is not None:
            raise ValidationFailed.at("X-Mochi-Tool-Policy", "the session has its own policy; leave out this header")
        session = await self.stored.store.load(session_id)
        if request.key is not None and (repeated := self._repeated(session, request, request.key)) is not None:
            return repeated
        if not keyed_indexes(session, request.key):
            check_previous_response(session, request.previous_response)
        run = await self.stored.runs.find(session_id)
        if run is not None and run.running:
            raise errors.SessionBusy(session_id, run.run_id)
        turn = to_session_turn_request(session, request)
        with suppress(errors.OllamaUnreachable, errors.OllamaError):  # the turn still stores the message
            model = await self.client.find_model(request.model)
            _check_capabilities(request, model, turn.images)
        if qualified_name(request.model) != qualified_name(session.model):
            # The turn changes the model when it starts, so that a rejected request leaves the session unchanged.
            turn = replace(turn, store_model=partial(self.sessions.patch, session_id, {"model": request.model}))
        return await self.stored.runs.start(session_id, turn, key=request.key)

    def _repeated(self, session: ChatSession, request: CompletionInput, key: str) -> Run | None:
        """Return the run with the idempotency key ``key``, or None. A failed or cancelled run loses its key.

        Raise ``IdempotencyKeyReused`` if the earlier request differs from ``request``.
        """
        run = self.stored.runs.cache.with_key(session.session_id, key)
        if run is None or run.state in ("failed", "cancelled"):
            self.stored.runs.cache.release_key(session.session_id, key)
            return None
        is_same = run.request.is_same_request(to_keyed_turn_request(request))
        if not (is_same and contains_results(request, run.request.results)):
            raise errors.IdempotencyKeyReused(key, run.run_id)
        return run

    async def _with_agent(self, request: CompletionInput, agent: AgentDefinition) -> Run:
        backend = self.ephemeral if request.session_id is None else self.stored
        instruction, model = _instruction(request), await self._fallback_model(agent)
        session, position = ChatSession.create(SessionCreationOptions(model)), 0
        if request.session_id is None:
            await backend.agent_chats.create(_agent_session(agent, request, session.session_id))
        else:
            chat = await backend.agent_chats.load(request.session_id)
            if chat.metadata.extra.get(OWNER) != agent.name:
                raise errors.SessionNotFound(request.session_id)
            check_previous_response(chat, request.previous_response)
            position = len(chat.history)
            async with backend.agent_chats.hold(request.session_id, run_id=new_id()):
                pass  # raises errors.SessionBusy
        policy, session_id = request.policy or _DEFAULT_POLICY, request.session_id or session.session_id
        task = AgentTask(agent, instruction, model, session_id=session_id, policy=policy)

        async def respond(publish: Publish) -> TurnResult:
            result = await backend.agents.execute(task, publish)
            return TurnResult(stored=result.messages, failure=result.failure)

        turn = TurnRequest(interactive=False, continues=True, responder=respond)
        run = await self._start_unstored(session, turn)
        run.position = position  # in the agent's session, which stores the answer
        return run

    async def _start_unstored(
        self, session: ChatSession, turn: TurnRequest, messages: Sequence[Message] = (), images: Sequence[Image] = ()
    ) -> Run:
        backend = self.ephemeral
        created = await backend.store.create(session)
        try:
            await backend.store.append(created.session_id, messages, images=images)
            return await backend.runs.start(created.session_id, turn)
        except BaseException:
            self.on_not_started(created.session_id)
            raise

    async def _agent(self, name: str) -> AgentDefinition | None:
        """Return the agent that ``name`` selects, or None for a model. Raises ``AgentNotFound`` or ``AgentInvalid``."""
        if not name.startswith(PREFIX):
            return None
        agent = name.removeprefix(PREFIX)
        if agent in await self.agents.directory_agents():
            return await self.agents.current(await self.agents.get(agent))
        try:
            await self.client.find_model(name)
        except errors.ModelNotFound:
            raise errors.AgentNotFound(agent) from None
        return None

    async def _fallback_model(self, agent: AgentDefinition) -> str:
        """Return the model to use if the agent's own is missing: the first that can call tools, else the first."""
        models = await self.client.list_models()
        if not models:
            raise errors.ModelNotFound(agent.model) if agent.model else errors.OllamaError(_NO_MODEL)
        return next((model.name for model in models if model.can("tools")), models[0].name)


def _check_capabilities(request: CompletionInput, model: ModelInfo, images: Collection[object]) -> None:
    """Raise ``ValidationFailed`` if the request has tools or images that the model does not support."""
    if request.tool_choice.may_call and (request.client_tools or request.tools) and not model.can("tools"):
        problem = f"model {model.name!r} does not support tools; use another model"
        raise ValidationFailed.at(_tools_parameter(request), problem)
    if images and not model.can("vision"):
        raise ValidationFailed.at("messages", f"model {model.name!r} does not support images; use another model")


def _tools_parameter(request: CompletionInput) -> str:
    """Return the name of the field or the header that contains the tools of a request."""
    return "tools" if request.client_tools else "X-Mochi-Tools"


def _instruction(request: CompletionInput) -> str:
    """Return the text of the last message. Raise ``ValidationFailed`` for requests that agents do not support."""
    if request.client_tools or request.tools is not None:
        raise ValidationFailed.at(_tools_parameter(request), "agents use their own tools only; leave this out")
    if request.tool_choice.must_call:
        raise ValidationFailed.at("tool_choice", "agents use their own tools only; leave out this field")
    if request.generation.logprobs is not None:
        raise ValidationFailed.at("logprobs", "agents do not return log probabilities; leave out this field")
    if request.generation.format:
        raise ValidationFailed.at("response_format", "agents answer with plain text only; leave out this field")
    if request.images:
        raise ValidationFailed.at("messages", "agents do not support images; leave them out")
    last = request.messages[-1]
    if last["role"] != "user" or not last["content"].strip():
        raise ValidationFailed.at("messages", "the last message must be a user message with the task of the agent")
    return last["content"]


def _agent_session(agent: AgentDefinition, request: CompletionInput, session_id: str) -> ChatSession:
    """Create an agent's session. It contains the messages of the request except the last one, which is the task."""
    session = ChatSession.create(SessionCreationOptions(request.model))
    session.metadata.session_id = session_id
    session.metadata.extra[OWNER] = agent.name
    session.messages = [message for message in request.messages[:-1] if message["role"] != "system"]
    return session
