"""Execution of agents: a planning phase without tools, then an execution phase with tools."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import anyio.to_thread

from mochi_server.agents.event_mapping import AgentEvents
from mochi_server.agents.prompt_loader import PromptLoader
from mochi_server.agents.task import AgentResult, AgentTask, DenyAllApprover, make_result, session_line
from mochi_server.chat.flusher import Flusher
from mochi_server.chat.model_call import ModelCall
from mochi_server.chat.storage_retry import StorageRetry
from mochi_server.chat.tool_loop import ToolLoop, ToolLoopLimits
from mochi_server.chat.turn import GenerationOptions, TurnRequest
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.errors import MochiError, ModelNotFound, SessionNotFound, ToolNotFound
from mochi_server.events import Publish, TurnWarning
from mochi_server.inference.gateway import ModelGateway
from mochi_server.ollama.types import ModelInfo
from mochi_server.sessions.history_edits import with_system_prompt, without_system_prompt
from mochi_server.sessions.session import OWNER, ChatSession, is_session_id, user_message
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message, SessionCreationOptions
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.toolbox import ConfirmingToolbox, FunctionToolbox
from mochi_server.util.clock import new_id

logger = logging.getLogger(__name__)


@dataclass
class AgentExecutionService:
    """Service that runs agents. ``store`` contains the sessions of the agents."""

    gateway: ModelGateway
    store: SessionStore
    tools: ToolExecutionService = field(default_factory=ToolExecutionService)
    prompts: PromptLoader = field(default_factory=PromptLoader)
    limits: ToolLoopLimits = field(default_factory=ToolLoopLimits)
    on_tool_calls: Callable[[Sequence[Message]], None] = lambda _: None
    """Callback that receives the messages that an agent has stored, including tool results."""
    retry: StorageRetry = field(default_factory=StorageRetry)
    _flusher: Flusher = field(init=False)

    def __post_init__(self) -> None:
        self._flusher = Flusher(self.store)

    async def execute(self, task: AgentTask, publish: Publish = lambda _: None) -> AgentResult:
        """Run an agent, publish its events and return its result.

        If a ``MochiError`` ends the task, the result contains the error as ``failure``. If the task is cancelled, the
        service stores its complete messages, its partial answer and a result for each open tool call.
        """
        events = AgentEvents(publish, task.agent.name, task.instruction, task.call_id)
        messages: Sequence[Message] = ()
        failure: MochiError | None = None
        try:
            name, model = await self._find_model(task)
            async with self._open_session(task, name, model) as session:
                events = replace(events, session_id=session.session_id)
                events.start()
                task.progress.partial_output = session_line(session.session_id)
                request = TurnRequest(task.instruction)
                writer = TurnWriter(self.store, session, request, flusher=self._flusher, retry=self.retry)
                messages = writer.stored
                await self._run_phases(task, model, session, writer, events)
        except MochiError as error:
            failure = error
        self.on_tool_calls(messages)
        if events.session_id is None:
            events.start()
        result = make_result(task, events.session_id, messages, failure)
        events.complete(result.output, result.error_code)
        return result

    @asynccontextmanager
    async def _open_session(self, task: AgentTask, model: str, info: ModelInfo) -> AsyncIterator[ChatSession]:
        """Lock the session of a task, update its model and system prompt, and yield it."""
        agent, prompt, session_id = task.agent, task.agent.system_prompt, task.session_id
        if session_id is None:
            window = self.gateway.windows.initial_config(info)
            options = SessionCreationOptions(model, system_prompt=prompt or None, context_window_config=window)
            created = ChatSession.create(options)
            created.metadata.extra[OWNER] = agent.name
            session_id = (await self.store.create(created)).session_id
        elif not is_session_id(session_id):
            raise SessionNotFound(session_id)
        async with self.store.hold(session_id, run_id=new_id()):
            session = await self.store.load(session_id)
            if session.metadata.extra.get(OWNER) != agent.name:
                raise SessionNotFound(session_id)
            if session.model != model:
                session = await self.store.patch(session_id, {"model": model})
            if (session.system_prompt["content"] if session.system_prompt else "") != prompt:
                start, messages = with_system_prompt(session, prompt) if prompt else without_system_prompt(session)
                session = await self.store.replace_tail(session_id, start, messages)
            yield session

    async def _run_phases(
        self, task: AgentTask, info: ModelInfo, session: ChatSession, writer: TurnWriter, events: AgentEvents
    ) -> None:
        publish_planning = events.publisher("planning")
        functions = FunctionToolbox(task.agent.catalogue.tools, self.tools)
        approver = task.approver or DenyAllApprover(task.policy)
        toolbox = ConfirmingToolbox(functions, approver, publishes_approved=True)
        try:
            writer.begin()
            await writer.wait_until_stored()
            generation = GenerationOptions(think=False, keep_alive=task.keep_alive)
            model = ModelCall(self.gateway, writer, publish_planning, info, session, generation)
            if warnings := [*_warnings(task, model.name), *model.warnings(toolbox.schemas())]:
                events.publish(warnings)
            planning = ToolLoop(model, writer, toolbox, self.limits, publish_planning)
            await planning.answer(await _reminder(self.prompts.planning))
            execution = ToolLoop(model, writer, toolbox, self.limits, events.publisher("execution"), may_announce=True)
            await execution.run(await _reminder(self.prompts.execution))
            await model.save_window(self.store)
        except BaseException:
            await writer.interrupt()  # stores the partial answer, and a result for each open tool call
            raise

    async def _find_model(self, task: AgentTask) -> tuple[str, ModelInfo]:
        """Return the name and details of the agent's model. If it is missing, use the model of ``task`` instead."""
        if task.agent.model is not None:
            try:
                return task.agent.model, await self.gateway.find_model(task.agent.model)
            except ModelNotFound:
                logger.info("Agent model not installed agent=%s model=%s", task.agent.name, task.agent.model)
        return task.model, await self.gateway.find_model(task.model)


async def _reminder(prompt: Callable[[], str]) -> list[Message]:
    return [user_message(await anyio.to_thread.run_sync(prompt))]


def _warnings(task: AgentTask, model: str) -> Iterator[TurnWarning]:
    agent = task.agent
    if agent.model not in (None, model):
        message = f"Agent {agent.name!r}: model {agent.model!r} is not installed; {model!r} is used instead."
        yield TurnWarning(ModelNotFound.code, message)
    for problem in agent.catalogue.problems:
        if problem.name in agent.mcp_tools:
            yield TurnWarning(ToolNotFound.code, f"Agent {agent.name!r}: {problem.message}.")
