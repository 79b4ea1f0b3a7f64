"""Execution of agents: a planning phase without tools, then an execution phase with tools."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b

import anyio.to_thread
import orjson

from mochi_server import events
from mochi_server.agents.config import AgentDefinition
from mochi_server.agents.discovery import AgentRegistry
from mochi_server.agents.prompt_loader import PromptLoader
from mochi_server.chat.approvals import SessionApprover
from mochi_server.chat.conversation import Conversation
from mochi_server.chat.execution import execute_turn
from mochi_server.chat.preparation import TurnPreparation
from mochi_server.chat.run import Run
from mochi_server.chat.steps import Phase, TurnRules
from mochi_server.chat.stored_events import agent_event
from mochi_server.chat.turn import Phases, PreparedTurn
from mochi_server.chat.turn_control import TurnControl, TurnSuspended
from mochi_server.chat.turn_input import GenerationOptions, TurnInput
from mochi_server.chat.turn_messages import turn_messages
from mochi_server.chat.writer import TurnWriter
from mochi_server.constants import AGENT_TOOL
from mochi_server.errors import (
    AgentChatBusy,
    MochiError,
    ModelNotFound,
    SessionBusy,
    SessionNotFound,
    ToolExecutionFailed,
    ToolNotFound,
    restored_error,
)
from mochi_server.inference.gateway import ModelGateway
from mochi_server.ollama.types import ModelInfo
from mochi_server.sessions.change import Change
from mochi_server.sessions.history import first_answer_index
from mochi_server.sessions.session import (
    AGENT_NAME,
    ChatSession,
    user_message,
    with_system_prompt,
    without_system_prompt,
)
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.turn import AgentCall, Parent, StoredTurn
from mochi_server.sessions.types import (
    Message,
    SessionCreationOptions,
    ToolExecutionPolicy,
    tool_calls_of,
)
from mochi_server.storage.retry import StorageRetry
from mochi_server.tools.discovery import Tool
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.toolbox import Approver, FunctionToolbox, ToolInvocation, needs_approval
from mochi_server.util.clock import new_id

CurrentTools = Callable[[], Awaitable[Mapping[str, Tool]]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PolicyApprover(Approver):
    """Approver for agents without a user.

    Calls that need approval under ``policy`` are denied, because it is not ``interactive``.
    """

    policy: ToolExecutionPolicy

    async def requires_approval(self, tool: Tool, call: ToolInvocation) -> bool:
        del call
        return needs_approval(self.policy, tool)


@dataclass(frozen=True)
class AgentCaller:
    """Tool call that runs an agent.

    Without ``approver``, no turn makes the call, and no user can approve the calls of the agent.
    """

    approver: SessionApprover | None = None
    call: ToolInvocation = field(default_factory=lambda: ToolInvocation(0, "", AGENT_TOOL, {}))

    @property
    def turn(self) -> StoredTurn | None:
        """Turn that makes the call."""
        return None if self.approver is None else self.approver.writer.turn

    @property
    def parent(self) -> Parent | None:
        if self.approver is None:
            return None
        writer = self.approver.writer
        return Parent(writer.conversation.session_id, writer.turn.turn_id, self.call.id)

    @property
    def child_id(self) -> str | None:
        """ID for a new session of the agent, or None if no turn makes the call.

        It is computed from the call, so that a continued turn finds the session again. If the
        continued turn has stored the agent's call, this is the ID of the session in that record.
        """
        parent = self.parent
        if parent is None or self.turn is None:
            return None
        agent = self.turn.agent_call
        if agent is not None and agent.call_id == self.call.id:
            return agent.session_id
        text = f"{parent.session_id} {parent.turn_id} {parent.call_id}"
        return blake2b(text.encode(), digest_size=5).hexdigest()

    def has_started(self, turn: StoredTurn | None, session_id: str) -> bool:
        """Return whether this call has started the latest turn of an agent's session."""
        if self.parent is None or turn is None or turn.parent is None:
            return False
        if not turn.parent.call_id:  # from a file before format 1.4
            return session_id == self.child_id
        return turn.parent == self.parent


@dataclass(frozen=True, slots=True)
class AgentResult:
    """Result of an agent.

    ``output`` is text for the calling model. The text begins with the session ID, if any.
    """

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
        for call in tool_calls_of(message):
            function = call["function"]
            yield f"Calls {function['name']}({orjson.dumps(function['arguments']).decode()})"


def _explain(agent: str, failure: MochiError) -> str:
    session_id = failure.details.get("session_id")
    if isinstance(failure, SessionNotFound):
        return (
            f"Agent {agent!r} has no session {session_id!r}. Omit session_id to start a new "
            "session."
        )
    if isinstance(failure, SessionBusy):
        return (
            f"Session {session_id!r} of agent {agent!r} is in use. Omit session_id to start a "
            "new session."
        )
    return f"The agent failed: {failure.message}"


@dataclass(frozen=True, slots=True)
class AgentEvents:
    """Events of one agent call. ``call_id`` is the ID of the tool call that started the agent."""

    agent_name: str
    instruction: str
    call_id: str
    session_id: str | None = None

    def start(self) -> events.AgentStart:
        return events.AgentStart(self.agent_name, self.instruction, self.session_id, self.call_id)

    def complete(self, result: AgentResult) -> events.AgentComplete:
        return events.AgentComplete(
            self.agent_name,
            self.session_id,
            result.output,
            success=result.error_code is None,
            error_code=result.error_code,
            agent_session_id=self.session_id,
            parent_call_id=self.call_id,
        )

    def result(self, messages: Sequence[Message], failure: MochiError | None) -> AgentResult:
        """Return the result of an agent that added ``messages`` to its session.

        ``failure`` is None on success.
        """
        parts: list[str] = []
        if self.session_id is not None:
            parts = [f"Session ID: {self.session_id}", *_texts(messages)]
        code = None
        if failure is not None:
            parts.append(_explain(self.agent_name, failure))
            code = failure.code
        output = "\n\n".join(filter(None, parts))
        return AgentResult(output, self.session_id, code, messages)

    def convert(self, event: events.ChatEvent, phase: Phase) -> events.ChatEvent | None:
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
            # A snapshot is for clients the text of the session's own turn.
            case events.ThinkingDelta() | events.Snapshot() | events.ToolContinuationStart():
                return None
        return event


@dataclass(frozen=True)
class AgentPhases(Phases):
    """Phases of an agent's turn. Clients receive its events as those of an agent."""

    prompts: PromptLoader
    agent: AgentEvents
    conversation: Conversation
    model: str | None
    """Model to store with the session, or None if the session has it."""

    async def begin(self, publish: events.Publish) -> None:
        del publish
        if self.model is not None:
            await self.conversation.patch({"model": self.model})

    async def reminders(self, phase: Phase) -> Sequence[Message]:
        prompt = self.prompts.planning if phase == "planning" else self.prompts.execution
        return [user_message(await anyio.to_thread.run_sync(prompt))]

    def publisher(self, phase: Phase, publish: events.Publish) -> events.Publish:
        agent = self.agent

        def publish_converted(batch: list[events.ChatEvent]) -> None:
            converted = [new for event in batch if (new := agent.convert(event, phase)) is not None]
            if converted:
                publish(converted)

        return publish_converted


@dataclass(frozen=True)
class AgentAnswerPhases(AgentPhases):
    """Phases of an agent that answers in place of a model."""

    async def begin(self, publish: events.Publish) -> None:
        publish([self.agent.start()])
        await super().begin(publish)

    def complete(
        self, publish: events.Publish, messages: Sequence[Message], failure: MochiError | None
    ) -> None:
        publish([self.agent.complete(self.agent.result(messages, failure))])


@dataclass
class AgentExecutionService:
    """Service that runs agents. ``store`` contains the sessions of the agents."""

    gateway: ModelGateway
    store: SessionStore
    tools: ToolExecutionService = field(default_factory=ToolExecutionService)
    prompts: PromptLoader = field(default_factory=PromptLoader)
    rules: TurnRules = field(default_factory=TurnRules)
    on_tool_calls: Callable[[Sequence[Message]], None] = lambda _: None  # receives stored messages
    retry: StorageRetry = field(default_factory=StorageRetry)
    callers: SessionStore | None = None  # store of the sessions whose turns call agents

    async def pinned(self, host: str | None) -> "AgentExecutionService":
        """Return the service that runs agents on the host of this name, or this one for None.

        Raises ``OllamaUnreachable``.
        """
        if host is None:
            return self
        return replace(self, gateway=await self.gateway.pinned(host))

    async def execute(
        self,
        agent: AgentDefinition,
        turn_input: TurnInput,
        *,
        session_id: str | None = None,
        caller: AgentCaller | None = None,
        current_tools: CurrentTools | None = None,
        publish: events.Publish = lambda _: None,
    ) -> AgentResult:
        """Run an agent in its own session, publish its events and return its result.

        ``turn_input.text`` is the task. ``turn_input.model`` answers if the agent has no model, or
        its model is not installed. ``session_id`` is the session to continue, or None for a new
        session. Without a ``caller``, calls that need approval under ``turn_input.policy`` are
        denied. If a turn continues after a wait or a crash, the agent of its ``caller`` continues,
        too. If a ``MochiError`` ends the agent, the result contains its code. Raises
        ``TurnSuspended`` if the turn of the ``caller`` is suspended.
        """
        caller = caller or AgentCaller()
        reported = AgentEvents(agent.name, turn_input.text or "", caller.call.id)
        messages: Sequence[Message] = ()
        failure: MochiError | None = None
        progress = caller.call.progress
        progress.agent_name = agent.name
        try:
            name, model = await self.find_model(agent, turn_input.model or "")
            run_id = new_id()
            locked_session = self._open_session(
                agent, session_id, name, model, caller=caller, run_id=run_id
            )
            async with locked_session as (session, continued):
                reported = replace(reported, session_id=session.session_id)
                if continued is None:
                    publish([reported.start()])
                turn = self.prepared(
                    agent,
                    Conversation(session.session_id, self.store, "agent_chat", self.retry),
                    session,
                    turn_input,
                    run_id=run_id,
                    name=name,
                    model=model,
                    reported=reported,
                    caller=caller,
                    continued=continued,
                    current_tools=current_tools,
                )
                messages = turn.writer.added
                caller.call.begin_agent(agent.name, session.session_id)
                progress.agent_result = turn.writer.result()
                if continued is not None and continued.has_ended:
                    failure = _stored_failure(continued)
                else:
                    await turn.writer.begin()
                    failure = await _play(turn, publish)
        except MochiError as error:
            failure = error.with_traceback(None)  # the traceback refers to this frame
            if reported.session_id is None:  # the agent has not started or continued
                return await self.refuse(reported, failure, caller=caller, publish=publish)
        self.on_tool_calls(messages)
        result = reported.result(messages, failure)
        publish([reported.complete(result)])
        return result

    async def refuse(
        self,
        reported: AgentEvents,
        failure: MochiError,
        *,
        caller: AgentCaller,
        publish: events.Publish,
    ) -> AgentResult:
        """Publish and return the result of a call whose agent cannot start or continue.

        The turn that the call had started before a wait or a crash ends. The result contains what
        the agent has done in it.
        """
        session_id = await self._child_session(caller)
        messages: Sequence[Message] = ()
        if session_id is None:
            publish([reported.start()])
        else:
            messages = await self._end_turn_of(caller, session_id)
            caller.call.begin_agent(reported.agent_name, session_id)
            reported = replace(reported, session_id=session_id)
        result = reported.result(messages, failure)
        publish([reported.complete(result)])
        return result

    def prepared(
        self,
        agent: AgentDefinition,
        conversation: Conversation,
        session: ChatSession,
        turn_input: TurnInput,
        *,
        run_id: str,
        name: str,
        model: ModelInfo | MochiError,
        reported: AgentEvents,
        phases: type[AgentPhases] = AgentPhases,
        caller: AgentCaller,
        continued: StoredTurn | None = None,
        current_tools: CurrentTools | None = None,
    ) -> PreparedTurn:
        """Return the turn of an agent, which the model ``name`` answers.

        Calls that need approval are denied if no user can approve them.
        """
        changed_model = None if name == session.model else name
        metadata = replace(session.metadata, model=name)
        session = ChatSession(metadata, session.history, session.extra)
        prompt_change = None if continued else _prompt_change(session, agent)
        if prompt_change is not None:
            session = session.changed(prompt_change)
        writer = TurnWriter(
            conversation,
            session,
            turn_input,
            run_id,
            opening=prompt_change,
            survives=caller.turn is not None and caller.turn.survives,
            parent=caller.parent,
            continued=continued and continued.continued(run_id, is_new_start=False),
        )
        agent_call = AgentCall(agent.name, session.session_id, caller.call.id)
        approver = caller.approver and caller.approver.for_agent(agent_call, writer)
        policy = turn_input.policy or ToolExecutionPolicy.ALWAYS_CONFIRM
        toolbox = FunctionToolbox(
            agent.catalogue.tools,
            self.tools,
            approver or PolicyApprover(policy),
            current_tools,
            publishes_approved=True,
        )
        generation = GenerationOptions(think=False, keep_alive=turn_input.generation.keep_alive)
        return PreparedTurn(
            replace(turn_input, generation=generation),
            session,
            writer,
            toolbox,
            model,
            self.gateway,
            replace(self.rules, plans=True),
            phases=phases(self.prompts, reported, conversation, changed_model),
            warnings=[*_warnings(agent, name)],
            approver=approver,
        )

    @asynccontextmanager
    async def _open_session(
        self,
        agent: AgentDefinition,
        session_id: str | None,
        model: str,
        info: ModelInfo,
        *,
        caller: AgentCaller,
        run_id: str,
    ) -> AsyncIterator[tuple[ChatSession, StoredTurn | None]]:
        """Lock the session of an agent, or a new session.

        Provide the session, and the turn in it that ``caller`` has started and now continues, or
        None. An interrupted turn of another call is ended. Raises ``SessionNotFound`` and
        ``SessionBusy``.
        """
        child_id = await self._child_session(caller)
        session_id = session_id or child_id
        if session_id is None:
            created = await self.store.create(self._new_session(agent, model, info, caller))
            session_id = created.session_id
        # A message that is about to be refused may have locked the session of a continued turn.
        waits = session_id == child_id
        async with self.store.hold(session_id, run_id=run_id, wait=waits):
            session = await self.store.load(session_id)
            check_owner(session, agent)
            continued = session.metadata.turn
            if not caller.has_started(continued, session_id):
                continued = None
                session = await self.end_interrupted_turn(session)
            if continued is not None and not continued.first:  # from a file before format 1.4
                continued = replace(continued, first=first_answer_index(session.history))
            yield session, continued

    def _new_session(
        self, agent: AgentDefinition, model: str, info: ModelInfo, caller: AgentCaller
    ) -> ChatSession:
        window, prompt = self.gateway.windows.initial_config(info), agent.system_prompt or None
        options = SessionCreationOptions(model, system_prompt=prompt, context_window_config=window)
        created = ChatSession.create(options)
        created.metadata.extra[AGENT_NAME] = agent.name
        # If the ID is in use, `SessionStore.create` assigns another one.
        created.metadata.session_id = caller.child_id or created.session_id
        return created

    async def _child_session(self, caller: AgentCaller) -> str | None:
        """Return the ID of the session in which the call had started a turn before a wait or a
        crash, or None.
        """
        child_id = caller.child_id
        is_continued = caller.turn is not None and len(caller.turn.run_ids) > 1
        if child_id is None or not is_continued:
            return None
        with suppress(SessionNotFound):
            session = await self.store.load(child_id)
            if caller.has_started(session.metadata.turn, child_id):
                return child_id
        return None

    async def _end_turn_of(self, caller: AgentCaller, session_id: str) -> Sequence[Message]:
        """Store that the turn of an agent that this call has started failed, if it goes on.

        Return the messages of the turn.
        """
        async with self.store.hold(session_id, wait=True):
            session = await self.store.load(session_id)
            turn = session.metadata.turn
            if turn is None or not caller.has_started(turn, session_id):
                return ()
            if not turn.has_ended:
                # The store completes its messages.
                await self.store.write(session_id, Change(turn=turn.ended("failed")))
                session = await self.store.load(session_id)
            return turn_messages(session, turn)

    async def end_interrupted_turn(self, session: ChatSession) -> ChatSession:
        """Store that the latest turn of a locked session failed, if it was interrupted with the
        turn that called the agent.

        Return the session as it is then. Raises ``SessionBusy`` if the calling turn goes on.
        """
        turn = session.metadata.turn
        if turn is None or turn.has_ended or turn.parent is None:
            return session
        if self.callers is not None:
            with suppress(SessionNotFound):
                calling_session = await self.callers.load(turn.parent.session_id)
                latest = calling_session.metadata.turn
                goes_on = latest is not None and latest.survives
                if latest and goes_on and turn.parent.turn_id in ("", *latest.run_ids):
                    raise AgentChatBusy.called_by(
                        session.session_id, latest.run_id, turn.parent.session_id
                    )
        # The store completes its messages.
        await self.store.write(session.session_id, Change(turn=turn.ended("failed")))
        return await self.store.load(session.session_id)

    async def find_model(self, agent: AgentDefinition, fallback: str) -> tuple[str, ModelInfo]:
        """Return the name and details of an agent's model.

        If it is missing, use the model ``fallback`` instead. Raises ``ModelNotFound`` if both are
        missing, and the errors of Ollama.
        """
        if agent.model is not None:
            try:
                return agent.model, await self.gateway.find_model(agent.model)
            except ModelNotFound:
                logger.info("Agent model not installed agent=%s model=%s", agent.name, agent.model)
        return fallback, await self.gateway.find_model(fallback)


def check_owner(session: ChatSession, agent: AgentDefinition) -> None:
    """Raise ``SessionNotFound`` if a session is not one of this agent."""
    if session.metadata.extra.get(AGENT_NAME) != agent.name:
        raise SessionNotFound(session.session_id)


def _prompt_change(session: ChatSession, agent: AgentDefinition) -> Change | None:
    """Return the change to the agent's present system prompt, or None if the session has it."""
    prompt = agent.system_prompt
    if (session.system_prompt["content"] if session.system_prompt else "") == prompt:
        return None
    return with_system_prompt(session, prompt) if prompt else without_system_prompt(session)


def _stored_failure(turn: StoredTurn) -> MochiError | None:
    """Return the error that ended the turn of an agent, or None if it is complete."""
    if turn.state == "completed":
        return None
    if turn.error is None:
        return ToolExecutionFailed("Its turn was interrupted.")
    return restored_error(turn.error["code"], turn.error["message"])


async def _play(turn: PreparedTurn, publish: events.Publish) -> MochiError | None:
    """Execute the turn of an agent that a call has started. Return the error that ended it.

    It is suspended and cancelled with the turn of its call.
    """
    control = TurnControl() if turn.approver is None else turn.approver.control
    result = await execute_turn(turn, publish, control)
    if result.is_suspended:
        raise TurnSuspended
    if result.cancelled or control.task_was_cancelled:
        raise asyncio.CancelledError
    return result.failure


def _warnings(agent: AgentDefinition, model: str) -> Iterator[events.TurnWarning]:
    if agent.model not in (None, model):
        message = (
            f"Agent {agent.name!r}: model {agent.model!r} is not installed; {model!r} is used "
            "instead."
        )
        yield events.TurnWarning(ModelNotFound.code, message)
    for problem in agent.catalogue.problems:
        if problem.name in agent.mcp_tools:
            yield events.TurnWarning(ToolNotFound.code, f"Agent {agent.name!r}: {problem.message}.")


@dataclass(frozen=True)
class AgentTurns(TurnPreparation):
    """Preparation of turns that an agent answers in place of a model."""

    registry: AgentRegistry
    service: AgentExecutionService

    async def prepare(self, run: Run, session: ChatSession, turn_input: TurnInput) -> PreparedTurn:
        """Prepare the turn of an agent.

        If the model is unavailable, the turn contains the error. Raises ``OllamaBusy``,
        ``AgentNotFound``, ``AgentInvalid``, ``SessionNotFound`` or ``SessionBusy``.
        """
        ticket = self.service.gateway.admit()  # counts only while it is referenced
        agent = await self.registry.current(await self.registry.get(turn_input.agent or ""))
        check_owner(session, agent)
        if run.conversation.kind == "agent_chat":
            session = await self.service.end_interrupted_turn(session)
        name = session.model
        model: ModelInfo | MochiError
        try:
            name, model = await self.service.find_model(agent, turn_input.model or "")
        except MochiError as error:
            model = error.with_traceback(None)
        turn = self.service.prepared(
            agent,
            run.conversation,
            session,
            turn_input,
            run_id=run.run_id,
            name=name,
            model=model,
            reported=AgentEvents(agent.name, turn_input.text or "", "", session.session_id),
            phases=AgentAnswerPhases,
            caller=AgentCaller(),
            current_tools=partial(self.registry.current_tools, agent),
        )
        return replace(turn, ticket=ticket)
