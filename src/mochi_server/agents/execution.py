"""An agent at work: it plans without tools, then acts with them. Both phases are conversations like any other."""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

import anyio.to_thread

from mochi_server.agents.chats import AgentChats
from mochi_server.agents.narration import Narrator, Phase
from mochi_server.agents.prompt_loader import PromptLoader
from mochi_server.agents.task import AgentResult, AgentTask, Nobody, result_of
from mochi_server.chat.loop import Conversation, Limits
from mochi_server.chat.model import ChatModel, Wishes
from mochi_server.chat.transcript import Checkpoints, Transcript
from mochi_server.chat.turn import Turn, TurnRequest
from mochi_server.chat.write_retry import WriteRetry
from mochi_server.errors import MochiError, ModelNotFound
from mochi_server.events import ChatEvent, TurnWarning
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.context_window import WindowDecision, WindowRegistry
from mochi_server.sessions.session import ChatSession, now, user_message
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.toolbox import ConfirmingToolbox, FunctionToolbox

logger = logging.getLogger(__name__)


class AgentExecutionService:
    """Runs agents. Their sessions are kept in ``store``."""

    def __init__(
        self,
        client: AsyncOllamaClient,
        store: SessionStore,
        windows: WindowRegistry,
        *,
        tools: ToolExecutionService | None = None,
        prompts: PromptLoader | None = None,
        limits: Limits | None = None,
        called: Callable[[Sequence[Message]], None] = lambda _: None,
        retry: WriteRetry | None = None,
    ) -> None:
        """``called`` is told the messages that an agent has stored, results of tools among them."""
        self._client = client
        self._chats = AgentChats(store)
        self._checkpoints = Checkpoints()
        self._retry = retry or WriteRetry()
        self._windows = windows
        self._tools = tools or ToolExecutionService()
        self._prompts = prompts or PromptLoader()
        self._limits = limits or Limits()
        self._called = called

    async def execute(self, task: AgentTask) -> AgentResult:
        """Run an agent to its end. What goes wrong is in the result."""
        async with aclosing(self.run(task)) as steps:
            return [step async for step in steps if isinstance(step, AgentResult)][-1]

    async def run(self, task: AgentTask) -> AsyncGenerator[ChatEvent | AgentResult, None]:
        """The events of an agent at work, and last its result.

        Never raises for what Ollama, a model, a person or a tool does wrong. When it is closed or cancelled, what
        the agent has done is stored first.
        """
        narrator = Narrator(task.agent.name, task.instruction, task.call_id)
        done: list[Message] = []
        failure: MochiError | None = None
        try:
            name, info = await self._find_model(task)
            async with self._chats.opened(task.agent, name, task.session_id) as session:
                narrator = replace(narrator, session_id=session.session_id)
                yield narrator.start()
                async with aclosing(self._work(task, info, session, narrator, done)) as events:
                    async for event in events:
                        yield event
        except MochiError as error:
            failure = error
        self._called(done)
        if narrator.session_id is None:
            yield narrator.start()
        result = result_of(task, narrator.session_id, done, failure)
        yield narrator.complete(result.output, result.error_code)
        yield result

    async def _work(
        self, task: AgentTask, info: ModelInfo, session: ChatSession, narrator: Narrator, done: list[Message]
    ) -> AsyncGenerator[ChatEvent, None]:
        functions = FunctionToolbox(task.agent.catalogue.tools, self._tools)
        toolbox = ConfirmingToolbox(functions, task.approver or Nobody(task.policy))
        turn = Turn(session, TurnRequest(task.instruction), toolbox, info, stored=done)
        transcript = Transcript(self._chats.store, turn, self._checkpoints, self._retry)
        try:
            transcript.begin()
            await transcript.begun()
            model = self._chat_model(task, info, turn.session)
            for warning in [*_fallback(task, model.name), *model.warnings(toolbox.schemas())]:
                yield warning
            planning = await self._conversation(model, transcript, toolbox, "planning")
            async with aclosing(_told(planning.answer(), narrator, "planning")) as events:
                async for event in events:
                    yield event
            acting = await self._conversation(model, transcript, toolbox, "execution")
            async with aclosing(_told(acting.events(), narrator, "execution")) as events:
                async for event in events:
                    yield event
            await self._remember_window(turn.session, model.window)
        except BaseException:
            # However it ends early, what the agent has done stays, with a result for each of its calls.
            await _interrupt(transcript)
            raise

    async def _conversation(
        self, model: ChatModel, transcript: Transcript, toolbox: ConfirmingToolbox, phase: Phase
    ) -> Conversation:
        text = self._prompts.planning if phase == "planning" else self._prompts.execution
        reminder = user_message(await anyio.to_thread.run_sync(text))
        return Conversation(model, transcript, toolbox, self._limits, reminders=[reminder], may_announce=True)

    def _chat_model(self, task: AgentTask, info: ModelInfo, session: ChatSession) -> ChatModel:
        wishes = Wishes(think=False, keep_alive=task.keep_alive)
        return ChatModel(self._client, self._windows, self._chats.store, info=info, session=session, wishes=wishes)

    async def _remember_window(self, session: ChatSession, decision: WindowDecision | None) -> None:
        if decision is not None:
            config = self._windows.adjusted(session.metadata.context_window_config, decision, now())
            await self._chats.store.patch(session.session_id, {"context_window_config": config})

    async def _find_model(self, task: AgentTask) -> tuple[str, ModelInfo]:
        """The agent's model by its name as written, or the one that stands in for it."""
        if task.agent.model is not None:
            try:
                return task.agent.model, await self._client.find_model(task.agent.model)
            except ModelNotFound:
                logger.info("Agent %s wants a model that is not there: %s", task.agent.name, task.agent.model)
        return task.model, await self._client.find_model(task.model)


async def _told(
    batches: AsyncGenerator[list[ChatEvent], None], narrator: Narrator, phase: Phase
) -> AsyncGenerator[ChatEvent, None]:
    async with aclosing(batches):
        async for batch in batches:
            for event in batch:
                if (told := narrator.tell(event, phase)) is not None:
                    yield told


async def _interrupt(transcript: Transcript) -> None:
    try:
        await transcript.interrupt()
    except MochiError as error:
        logger.error("What an agent had done could not be stored: %s", error.message)


def _fallback(task: AgentTask, model: str) -> list[ChatEvent]:
    wanted = task.agent.model
    if wanted is None or wanted == model:
        return []
    message = f"Agent {task.agent.name!r}: its model {wanted!r} is not there; {model!r} answers."
    return [TurnWarning(ModelNotFound.code, message)]
