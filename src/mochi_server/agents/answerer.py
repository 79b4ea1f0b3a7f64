"""Answers by agents, for turns in an agent's own session."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from mochi_server.agents.config import AgentDefinition
from mochi_server.agents.event_mapping import AgentEvents
from mochi_server.agents.execution import AgentExecutionService, check_owner, with_agent_prompt, with_model
from mochi_server.agents.registry import AgentRegistry
from mochi_server.agents.task import AgentCaller, AgentResult
from mochi_server.chat.answerer import Answerer
from mochi_server.chat.conversation import Conversation
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.errors import MochiError
from mochi_server.events import Publish
from mochi_server.inference.windows import WindowDecision
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message


@dataclass(frozen=True)
class AgentAnswers:
    """Factory of the answers of agents."""

    registry: AgentRegistry
    service: AgentExecutionService

    async def prepare(self, conversation: Conversation, session: ChatSession, turn_input: TurnInput) -> "AgentAnswerer":
        """Find the agent of a turn and return its answerer.

        Raises:
            AgentNotFound, AgentInvalid: The agent does not exist, or its files are invalid.
            SessionNotFound: The session belongs to another agent.
        """
        agent = await self.registry.current(await self.registry.get(turn_input.agent or ""))
        check_owner(session, agent)
        return AgentAnswerer(self.registry, self.service, agent, conversation, turn_input)


@dataclass(eq=False)
class AgentAnswerer(Answerer):
    """Answerer that runs the two phases of an agent."""

    registry: AgentRegistry
    service: AgentExecutionService
    agent: AgentDefinition
    conversation: Conversation
    input: TurnInput
    repeated: Sequence[Message] = ()
    window: WindowDecision | None = None
    _session: ChatSession | None = None

    async def begin(self, session: ChatSession) -> ChatSession:
        self._session = await with_agent_prompt(self.conversation.store, session, self.agent)
        return self._session

    async def answer(self, writer: TurnWriter, publish: Publish) -> None:
        assert self._session is not None  # noqa: S101 - the engine calls `begin` first
        service, agent, failure = self.service, self.agent, None
        current_tools = partial(self.registry.current_tools, agent)
        caller = replace(AgentCaller.without_user(self.input.policy), current_tools=current_tools)
        events = AgentEvents(publish, agent.name, self.input.text or "", "", self._session.session_id)
        events.start()
        try:
            name, model = await service.find_model(agent, self.input.model or "")
            session = await with_model(self.conversation.store, self._session, name)
            await service.run_phases(
                agent, self.input, model, session=session, writer=writer, events=events, caller=caller
            )
        except MochiError as error:
            failure = error
        result = AgentResult.of(agent.name, self._session.session_id, writer.stored, failure)
        events.complete(result.output, result.error_code)
        if failure is not None:
            raise failure
