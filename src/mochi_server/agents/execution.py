"""Execution of agents: a planning phase without tools, then an execution phase with tools."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio.to_thread

from mochi_server.agents.agent_sessions import open_agent_session
from mochi_server.agents.event_mapping import AgentEventMapper
from mochi_server.agents.prompt_loader import PromptLoader
from mochi_server.agents.task import AgentResult, AgentTask, DenyAllApprover, make_result
from mochi_server.chat.flush_schedule import FlushSchedule
from mochi_server.chat.model_call import ModelCall
from mochi_server.chat.storage_retry import StorageRetry
from mochi_server.chat.tool_loop import ToolLoop, ToolLoopLimits
from mochi_server.chat.turn import GenerationOptions, TurnRequest
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.errors import MochiError, ModelNotFound, ToolNotFound
from mochi_server.events import ChatEvent, Publish, TurnWarning
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.context_window import WindowRegistry
from mochi_server.sessions.session import ChatSession, user_message
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.toolbox import ConfirmingToolbox, FunctionToolbox

logger = logging.getLogger(__name__)


@dataclass
class AgentExecutionService:
    """Service that runs agents. ``store`` contains the sessions of the agents."""

    client: AsyncOllamaClient
    store: SessionStore
    windows: WindowRegistry
    tools: ToolExecutionService = field(default_factory=ToolExecutionService)
    prompts: PromptLoader = field(default_factory=PromptLoader)
    limits: ToolLoopLimits = field(default_factory=ToolLoopLimits)
    on_tool_calls: Callable[[Sequence[Message]], None] = lambda _: None
    """Callback that receives the messages that an agent has stored, including tool results."""
    retry: StorageRetry = field(default_factory=StorageRetry)
    _schedule: FlushSchedule = field(default_factory=FlushSchedule)

    async def execute(self, task: AgentTask, publish: Publish = lambda _: None) -> AgentResult:
        """Run an agent, publish its events and return its result.

        If a ``MochiError`` ends the task, the result contains the error as ``failure``. If the task is cancelled, the
        service stores the messages that are complete.
        """
        mapper = AgentEventMapper(task.agent.name, task.instruction, task.call_id)
        messages: Sequence[Message] = ()
        failure: MochiError | None = None
        try:
            name, model = await self._find_model(task)
            async with open_agent_session(self.store, task.agent, name, task.session_id) as session:
                mapper = replace(mapper, session_id=session.session_id)
                publish([mapper.start()])
                request = TurnRequest(task.instruction)
                writer = TurnWriter(self.store, session, request, schedule=self._schedule, retry=self.retry)
                messages = writer.stored
                await self._run_phases(task, model, session, writer, _PhasePublishers(mapper, publish))
        except MochiError as error:
            failure = error
        self.on_tool_calls(messages)
        if mapper.session_id is None:
            publish([mapper.start()])
        result = make_result(task, mapper.session_id, messages, failure)
        publish([mapper.complete(result.output, result.error_code)])
        return result

    async def _run_phases(
        self, task: AgentTask, info: ModelInfo, session: ChatSession, writer: TurnWriter, events: "_PhasePublishers"
    ) -> None:
        functions = FunctionToolbox(task.agent.catalogue.tools, self.tools)
        approver = task.approver or DenyAllApprover(task.policy)
        toolbox = ConfirmingToolbox(functions, approver, publishes_approved=True)
        try:
            writer.begin()
            await writer.wait_until_stored()
            model = ModelCall(
                self.client,
                self.windows,
                self.store,
                events.planning,
                model=info,
                session=session,
                history=writer.history,
                generation=GenerationOptions(think=False, keep_alive=task.keep_alive),
                unstored_images=writer.unstored_images,
            )
            if warnings := [*_fallback(task, model.name), *_missing_tools(task), *model.warnings(toolbox.schemas())]:
                events.publish(warnings)
            planning = ToolLoop(model, writer, toolbox, self.limits, events.planning)
            await planning.answer(await _reminder(self.prompts.planning))
            execution = ToolLoop(model, writer, toolbox, self.limits, events.execution, may_announce=True)
            await execution.run(await _reminder(self.prompts.execution))
            await model.window.save(self.store)
        except BaseException:
            # Store the completed work, with a result for each tool call.
            await writer.interrupt()
            raise

    async def _find_model(self, task: AgentTask) -> tuple[str, ModelInfo]:
        """Return the name and details of the model to use for the task.

        If the agent has no model, or the agent's model is not installed, the model of ``task`` is used.
        """
        if task.agent.model is not None:
            try:
                return task.agent.model, await self.client.find_model(task.agent.model)
            except ModelNotFound:
                logger.info("Agent model not installed agent=%s model=%s", task.agent.name, task.agent.model)
        return task.model, await self.client.find_model(task.model)


class _PhasePublishers:
    """Functions that publish events: one for the agent as a whole and one for each of its two phases."""

    def __init__(self, mapper: AgentEventMapper, publish: Publish) -> None:
        self.publish = publish
        self.planning = mapper.wrap(publish, "planning")
        self.execution = mapper.wrap(publish, "execution")


async def _reminder(prompt: Callable[[], str]) -> list[Message]:
    return [user_message(await anyio.to_thread.run_sync(prompt))]


def _missing_tools(task: AgentTask) -> list[ChatEvent]:
    agent = task.agent
    problems = [problem for problem in agent.catalogue.problems if problem.name in agent.mcp_tools]
    return [TurnWarning(ToolNotFound.code, f"Agent {agent.name!r}: {problem.message}.") for problem in problems]


def _fallback(task: AgentTask, model: str) -> list[ChatEvent]:
    requested = task.agent.model
    if requested is None or requested == model:
        return []
    message = f"Agent {task.agent.name!r}: model {requested!r} is not installed; {model!r} is used instead."
    return [TurnWarning(ModelNotFound.code, message)]
