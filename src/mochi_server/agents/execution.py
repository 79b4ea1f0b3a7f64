"""Execution of agents: a planning phase without tools, then an execution phase with tools."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import anyio.to_thread
import orjson

from mochi_server import events
from mochi_server.agents.config import AgentDefinition
from mochi_server.agents.discovery import AgentRegistry
from mochi_server.agents.prompt_loader import PromptLoader
from mochi_server.chat.approvals import SessionApprover
from mochi_server.chat.conversation import Conversation, StorageRetry
from mochi_server.chat.model_call import ModelCall, save_window
from mochi_server.chat.parked_record import ParkedAgent, refuse_if_caller_waits
from mochi_server.chat.prompt import answer_index
from mochi_server.chat.run import TurnParked
from mochi_server.chat.tool_loop import ToolLoop, ToolLoopLimits
from mochi_server.chat.turn import Answerer
from mochi_server.chat.turn_input import GenerationOptions, TurnInput
from mochi_server.chat.turn_result import TurnResult, agent_event
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.errors import MochiError, ModelNotFound, SessionBusy, SessionNotFound, ToolNotFound
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.waiting import Ticket
from mochi_server.ollama.types import ModelInfo
from mochi_server.sessions.session import (
    OWNER,
    ChatSession,
    is_session_id,
    user_message,
    with_system_prompt,
    without_system_prompt,
)
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message, SessionCreationOptions, ToolExecutionPolicy
from mochi_server.tools.discovery import Tool
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.toolbox import (
    Approver,
    CallProgress,
    FunctionToolbox,
    ToolInvocation,
    ToolOutcome,
    needs_approval,
)
from mochi_server.util.clock import new_id

Phase = Literal["planning", "execution"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PolicyApprover(Approver):
    """Approver for agents without a user. It denies every call that needs approval under ``policy``."""

    policy: ToolExecutionPolicy

    async def requires_approval(self, tool: Tool, call: ToolInvocation) -> bool:
        del call
        return needs_approval(self.policy, tool)


@dataclass(frozen=True)
class AgentCaller:
    """Caller of an agent: a tool call of another turn, or a program without a user."""

    approver: Approver
    current_tools: Callable[[], Awaitable[Mapping[str, Tool]]] | None = None  # None if they do not change
    call_id: str = ""  # ID of the tool call that started the agent; the events of the agent contain it
    progress: CallProgress = field(default_factory=CallProgress)  # its partial output names the session
    is_resumed: bool = False  # whether the agent continues its task, because the calling turn was parked
    known_outcome: Callable[[ToolInvocation], ToolOutcome | None] = lambda _: None  # of calls that must not run again
    ticket: Ticket = field(default_factory=Ticket)  # of a turn that the agent answers

    @classmethod
    def without_user(cls, policy: ToolExecutionPolicy | None) -> "AgentCaller":
        """Return a caller that denies every call that needs approval. Without a policy, every call needs approval."""
        return cls(PolicyApprover(policy or ToolExecutionPolicy.ALWAYS_CONFIRM))


@dataclass(frozen=True, slots=True)
class AgentResult:
    """Result of an agent. ``output`` is text for the calling model. The text begins with the session ID, if any."""

    output: str
    session_id: str | None = None
    error_code: str | None = None
    messages: Sequence[Message] = ()  # the messages that the agent added to its session


def _texts(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        if message["role"] == "tool":
            yield f"Result of {message['tool_name']}: {message['content']}"
        else:
            yield message["content"].strip()
        for function in (call["function"] for call in message.get("tool_calls", ())):
            yield f"Calls {function['name']}({orjson.dumps(function['arguments']).decode()})"


def _explain(agent: str, failure: MochiError) -> str:
    session_id = failure.details.get("session_id")
    if isinstance(failure, SessionNotFound):
        return f"Agent {agent!r} has no session {session_id!r}. Omit session_id to start a new session."
    if isinstance(failure, SessionBusy):
        return f"Session {session_id!r} of agent {agent!r} is in use. Omit session_id to start a new session."
    return f"The agent failed: {failure.message}"


@dataclass(frozen=True, slots=True)
class AgentPublisher:
    """Publisher of the events of one agent call. ``call_id`` is the ID of the tool call that started the agent."""

    publish: events.Publish
    agent_name: str
    instruction: str
    call_id: str
    session_id: str | None = None

    def start(self) -> None:
        self.publish([events.AgentStart(self.agent_name, self.instruction, self.session_id, self.call_id)])

    def complete(self, output: str, code: str | None, messages: Sequence[Message] = ()) -> AgentResult:
        """Publish the end of the agent and return its result. ``code`` is the code of the error, or None."""
        name, session_id = self.agent_name, self.session_id
        self.publish([events.AgentComplete(name, session_id, output, code is None, code, session_id, self.call_id)])
        return AgentResult(output, session_id, code, messages)

    def complete_with(self, messages: Sequence[Message], failure: MochiError | None) -> AgentResult:
        """Complete an agent that added ``messages`` to its session. ``failure`` is None on success."""
        parts = [] if self.session_id is None else [f"Session ID: {self.session_id}", *_texts(messages)]
        if failure is not None:
            parts.append(_explain(self.agent_name, failure))
        return self.complete("\n\n".join(filter(None, parts)), failure.code if failure else None, messages)

    def of_phase(self, phase: Phase) -> events.Publish:
        """Return a function that converts the events of ``phase`` and publishes the results."""

        def publish_mapped(batch: list[events.ChatEvent]) -> None:
            if mapped := [new for event in batch if (new := self._map(event, phase)) is not None]:
                self.publish(mapped)

        return publish_mapped

    def _map(self, event: events.ChatEvent, phase: Phase) -> events.ChatEvent | None:
        """Convert an event of the agent's turn. Return None if clients do not receive the event."""
        name, session_id, call_id = self.agent_name, self.session_id or "", self.call_id
        match event:
            case events.ContentDelta():
                kind = events.AgentPlanning if phase == "planning" else events.AgentExecution
                return kind(event.content, name, session_id, call_id)
            case events.ToolCalled() | events.ToolResult():
                return agent_event(event, name, session_id, call_id)
            case events.ToolConfirmationRequired():
                return replace(event, agent_name=name)
            case events.TurnWarning():
                return replace(event, message=f"Agent {name!r}: {event.message}")
        return None if isinstance(event, events.ThinkingDelta | events.ToolContinuationStart) else event


@dataclass
class AgentExecutionService:
    """Service that runs agents. ``store`` contains the sessions of the agents."""

    gateway: ModelGateway
    store: SessionStore
    tools: ToolExecutionService = field(default_factory=ToolExecutionService)
    prompts: PromptLoader = field(default_factory=PromptLoader)
    limits: ToolLoopLimits = field(default_factory=ToolLoopLimits)
    on_tool_calls: Callable[[Sequence[Message]], None] = lambda _: None  # receives stored messages
    retry: StorageRetry = field(default_factory=StorageRetry)
    callers: SessionStore | None = None  # store of the sessions whose turns call agents

    async def execute(
        self,
        agent: AgentDefinition,
        turn_input: TurnInput,
        *,
        session_id: str | None = None,
        caller: AgentCaller | None = None,
        publish: events.Publish = lambda _: None,
    ) -> AgentResult:
        """Run an agent in its own session, publish its events and return its result.

        ``turn_input.text`` is the task. ``turn_input.model`` answers if the agent has no model, or its model is not
        installed. ``session_id`` is the session to continue, or None for a new session. Without a ``caller``, calls
        that need approval under ``turn_input.policy`` are denied. If a ``MochiError`` ends the agent, the result
        contains its code.
        """
        caller = caller or AgentCaller.without_user(turn_input.policy)
        publisher = AgentPublisher(publish, agent.name, turn_input.text or "", caller.call_id)
        messages: Sequence[Message] = ()
        failure: MochiError | None = None
        try:
            name, model = await self.find_model(agent, turn_input.model or "")
            async with self._open_session(agent, session_id, name, model, is_resumed=caller.is_resumed) as session:
                publisher = replace(publisher, session_id=session.session_id)
                if not caller.is_resumed:
                    publisher.start()
                caller.progress.partial_output = f"Session ID: {session.session_id}"
                conversation = Conversation(session.session_id, self.store, "agent_chat", self.retry)
                if caller.is_resumed:
                    turn_input = replace(turn_input, text=None, change="continue")
                writer = TurnWriter(conversation, session, turn_input)
                if caller.is_resumed:
                    writer.resume(session.history[answer_index(session.history, "none") :])
                messages = writer.stored
                caller.progress.agent_result = TurnResult(messages, (), writer.first_chunks, writer.outcomes)
                writer.begin()
                caller = self._parkable(caller, agent, session.session_id)
                try:
                    if not writer.is_complete:
                        await self.run_phases(
                            agent, turn_input, model, session=session, writer=writer, publisher=publisher, caller=caller
                        )
                except MochiError as error:
                    failure = error.with_traceback(None)  # the traceback refers to this frame
                await self._unmark(session.session_id)
        except MochiError as error:
            failure = error.with_traceback(None)  # the traceback refers to this frame
        self.on_tool_calls(messages)
        if publisher.session_id is None:
            publisher.start()
        return publisher.complete_with(messages, failure)

    def _parkable(self, caller: AgentCaller, agent: AgentDefinition, session_id: str) -> AgentCaller:
        """Return a caller whose approval requests name the agent's session, so that the agent can continue later."""
        if not isinstance(caller.approver, SessionApprover):
            return caller

        caller_id = caller.approver.records.conversation.session_id

        async def mark() -> None:  # keeps the open calls of the session after a crash
            await self.store.patch(session_id, {"pending_approval": {"due": None, "session_id": caller_id}})

        parked = ParkedAgent(agent.name, session_id, caller.call_id)
        return replace(caller, approver=replace(caller.approver, agent=parked, on_request=mark))

    async def _unmark(self, session_id: str) -> None:
        if (await self.store.load(session_id)).metadata.pending_approval is not None:
            await self.store.patch(session_id, {"pending_approval": None})

    @asynccontextmanager
    async def _open_session(
        self, agent: AgentDefinition, session_id: str | None, model: str, info: ModelInfo, *, is_resumed: bool
    ) -> AsyncIterator[ChatSession]:
        if session_id is None:
            window, prompt = self.gateway.windows.initial_config(info), agent.system_prompt or None
            options = SessionCreationOptions(model, system_prompt=prompt, context_window_config=window)
            created = ChatSession.create(options)
            created.metadata.extra[OWNER] = agent.name
            session_id = (await self.store.create(created)).session_id
        elif not is_session_id(session_id):
            raise SessionNotFound(session_id)
        async with self.store.hold(session_id, run_id=new_id()):
            if not is_resumed:
                if self.callers is not None:
                    await refuse_if_caller_waits(self.callers, await self.store.load(session_id))
                await self._unmark(session_id)  # so that crash recovery closes its calls
            session = await self.store.load(session_id)
            check_owner(session, agent)
            if session.model != model:
                session = await self.store.patch(session_id, {"model": model})
            yield await with_agent_prompt(self.store, session, agent)

    async def run_phases(
        self,
        agent: AgentDefinition,
        turn_input: TurnInput,
        info: ModelInfo,
        *,
        session: ChatSession,
        writer: TurnWriter,
        publisher: AgentPublisher,
        caller: AgentCaller,
    ) -> None:
        """Run both phases of an agent. If it fails or is cancelled, store the partial answer and the open results."""
        publish_planning, publish_execution = publisher.of_phase("planning"), publisher.of_phase("execution")
        toolbox = FunctionToolbox(
            agent.catalogue.tools, self.tools, caller.approver, caller.current_tools, publishes_approved=True
        )
        try:
            await writer.wait_until_stored()
            generation = GenerationOptions(think=False, keep_alive=turn_input.generation.keep_alive)
            model_call = ModelCall(self.gateway, writer, publish_planning, info, session, generation, caller.ticket)
            if not caller.is_resumed:
                if warnings := [*_warnings(agent, model_call.name), *model_call.warnings(toolbox.schemas())]:
                    publisher.publish(warnings)
                planning = ToolLoop(model_call, writer, toolbox, self.limits, publish_planning)
                await planning.answer_without_tools(await _reminder(self.prompts.planning))
            execution = ToolLoop(model_call, writer, toolbox, self.limits, publish_execution, may_announce=True)
            execution.resumed_calls, execution.known_outcome = writer.open_calls, caller.known_outcome
            await execution.run(await _reminder(self.prompts.execution))
            await save_window(model_call.allocation, session, writer.conversation.store)
        except TurnParked:
            raise
        except BaseException:
            await writer.interrupt()
            raise

    async def find_model(self, agent: AgentDefinition, fallback: str) -> tuple[str, ModelInfo]:
        """Return the name and details of an agent's model. If it is missing, use the model ``fallback`` instead."""
        if agent.model is not None:
            try:
                return agent.model, await self.gateway.find_model(agent.model)
            except ModelNotFound:
                logger.info("Agent model not installed agent=%s model=%s", agent.name, agent.model)
        return fallback, await self.gateway.find_model(fallback)


def check_owner(session: ChatSession, agent: AgentDefinition) -> None:
    if session.metadata.extra.get(OWNER) != agent.name:
        raise SessionNotFound(session.session_id)


async def with_agent_prompt(store: SessionStore, session: ChatSession, agent: AgentDefinition) -> ChatSession:
    """Change the system prompt of an agent's session to the agent's present one. Return the changed session."""
    prompt = agent.system_prompt
    if (session.system_prompt["content"] if session.system_prompt else "") == prompt:
        return session
    change = with_system_prompt(session, prompt) if prompt else without_system_prompt(session)
    await store.write(session.session_id, change)
    return await store.load(session.session_id)


async def _reminder(prompt: Callable[[], str]) -> list[Message]:
    return [user_message(await anyio.to_thread.run_sync(prompt))]


def _warnings(agent: AgentDefinition, model: str) -> Iterator[events.TurnWarning]:
    if agent.model not in (None, model):
        message = f"Agent {agent.name!r}: model {agent.model!r} is not installed; {model!r} is used instead."
        yield events.TurnWarning(ModelNotFound.code, message)
    for problem in agent.catalogue.problems:
        if problem.name in agent.mcp_tools:
            yield events.TurnWarning(ToolNotFound.code, f"Agent {agent.name!r}: {problem.message}.")


@dataclass(frozen=True)
class AgentAnswererFactory:
    registry: AgentRegistry
    service: AgentExecutionService

    async def prepare(self, conversation: Conversation, session: ChatSession, turn_input: TurnInput) -> "AgentAnswerer":
        """Find the agent of a turn. Raises ``AgentNotFound``, ``AgentInvalid`` or ``SessionNotFound``."""
        ticket = self.service.gateway.admit()
        agent = await self.registry.current(await self.registry.get(turn_input.agent or ""))
        check_owner(session, agent)
        caller = AgentCaller.without_user(turn_input.policy)
        caller = replace(caller, current_tools=partial(self.registry.current_tools, agent), ticket=ticket)
        return AgentAnswerer(self.service, agent, conversation, turn_input, caller)


@dataclass(eq=False)
class AgentAnswerer(Answerer):
    service: AgentExecutionService
    agent: AgentDefinition
    conversation: Conversation
    input: TurnInput
    caller: AgentCaller

    async def begin(self, session: ChatSession) -> ChatSession:
        return await with_agent_prompt(self.conversation.store, session, self.agent)

    async def answer(self, session: ChatSession, writer: TurnWriter, publish: events.Publish) -> None:
        service, agent, failure = self.service, self.agent, None
        publisher = AgentPublisher(publish, agent.name, self.input.text or "", "", session.session_id)
        publisher.start()
        try:
            name, model = await service.find_model(agent, self.input.model or "")
            if session.model != name:
                session = await self.conversation.store.patch(session.session_id, {"model": name})
            await service.run_phases(
                agent, self.input, model, session=session, writer=writer, publisher=publisher, caller=self.caller
            )
        except MochiError as error:
            failure = error.with_traceback(None)  # the traceback refers to this frame
        publisher.complete_with(writer.stored, failure)
        if failure is not None:
            raise failure
