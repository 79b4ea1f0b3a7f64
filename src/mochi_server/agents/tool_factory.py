"""The tool ``agent``. A model calls it to run an agent that is enabled in the session."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from mochi_server.agents.config import AgentDefinition
from mochi_server.agents.discovery import AgentRegistry
from mochi_server.agents.execution import (
    AgentCaller,
    AgentEvents,
    AgentExecutionService,
    AgentResult,
)
from mochi_server.chat.approvals import SessionApprover
from mochi_server.chat.preparation import AgentSource
from mochi_server.chat.turn_input import GenerationOptions, TurnInput
from mochi_server.constants import AGENT_TOOL
from mochi_server.errors import AgentInvalid, AgentNotFound, OllamaUnreachable, ToolExecutionFailed
from mochi_server.events import Publish
from mochi_server.sessions.session import ChatSession
from mochi_server.tools.discovery import Tool
from mochi_server.tools.execution import shorten
from mochi_server.tools.schema import InvalidArguments, ToolSchema, make_schema
from mochi_server.tools.toolbox import ToolInvocation, ToolOutcome


def agent_schema(agents: Mapping[str, AgentDefinition]) -> ToolSchema:
    """Return the schema of the tool ``agent``. The description of the tool lists ``agents``."""

    def agent(agent: str, instruction: str, session_id: str | None = None) -> str:
        raise NotImplementedError

    listed = "\n".join(
        f"  - {name}: {definition.description}" for name, definition in agents.items()
    )
    agent.__doc__ = f"""Delegate a task to a specialised agent.

Available agents:
{listed or "  none"}

Args:
    agent (str): The name of the agent to invoke.
    instruction (str): A clear, detailed instruction. The agent sees nothing else of this
        conversation.
    session_id (str): Optional session ID to continue a previous agent conversation.

Returns:
    str: The agent's response including its Session ID.
"""
    return make_schema(agent, AGENT_TOOL)


@dataclass
class AgentToolbox:
    """Toolbox that runs agents for one turn.

    Agents need no approval, but the tools that they call may need it.
    """

    service: AgentExecutionService
    registry: AgentRegistry
    agents: Mapping[str, AgentDefinition]
    approver: SessionApprover

    @cached_property
    def _schema(self) -> ToolSchema:
        return agent_schema(self.agents)

    def schemas(self) -> list[dict[str, Any]]:
        return [self._schema.definition()]

    async def run(self, call: ToolInvocation, publish: Publish) -> ToolOutcome:
        started = time.monotonic()
        call.progress.running = call
        result = await self._invoke(call, publish)
        return ToolOutcome(
            call,
            shorten(
                result.output, self.service.tools.output_limit, "MOCHI_TOOL_OUTPUT_LIMIT_CHARS"
            ),
            success=result.error_code is None,
            error_code=result.error_code,
            execution_time=round(time.monotonic() - started, 6),
            has_own_events=True,
        )

    async def _invoke(self, call: ToolInvocation, publish: Publish) -> AgentResult:
        conversation = self.approver.writer.conversation
        try:
            bound = await call.bind(self._schema, self.service.tools)
        except InvalidArguments as error:
            return _rejected(call, publish, str(error))
        arguments = bound.arguments
        name, instruction = str(arguments["agent"]), str(arguments["instruction"])
        metadata = (await conversation.load()).metadata  # not those of the start of the turn
        enabled = metadata.agent_settings.enabled_agents
        available = [agent for agent in self.agents if agent in enabled]
        if name not in available and not self._has_waited(name, call):
            text = (
                f"There is no agent named {name!r}. Available agents: "
                f"{', '.join(available) or 'none'}."
            )
            return _rejected(call, publish, text, AgentNotFound.code)
        if not instruction.strip():
            return _rejected(
                call, publish, "The instruction is empty. Describe the task of the agent."
            )
        caller = AgentCaller(self.approver, call)
        try:
            definition = self.agents.get(name)
            if definition is None:
                definition = await self.registry.get(name)
            agent = await self.registry.current(definition)
            service = await self.service.pinned(metadata.ollama_host)
        except (AgentNotFound, AgentInvalid, OllamaUnreachable) as error:
            reported = AgentEvents(name, instruction, call.id)
            return await self.service.refuse(
                reported,
                error,
                caller=caller,
                publish=publish,
            )
        generation = GenerationOptions(keep_alive=metadata.keep_alive)
        return await service.execute(
            agent,
            TurnInput(instruction, model=metadata.model, generation=generation),
            session_id=(arguments["session_id"] or "").strip() or None,
            caller=caller,
            current_tools=partial(self.registry.current_tools, agent),
            publish=publish,
        )

    def _has_waited(self, name: str, call: ToolInvocation) -> bool:
        """Return whether this call of the agent has waited for an approval.

        Such a call continues even if the agent was disabled meanwhile.
        """
        waiting = self.approver.writer.turn.agent_call
        if waiting is None:
            return False
        if waiting.call_id != call.id:
            return False
        return waiting.name == name


@dataclass(frozen=True)
class AgentTools(AgentSource):
    """The tool ``agent`` for the turns of sessions, and the tools of the agents themselves."""

    service: AgentExecutionService
    registry: AgentRegistry

    async def toolbox(self, session: ChatSession, approver: SessionApprover) -> AgentToolbox | None:
        """Return the toolbox of a session, or None if the session enables no valid agent and no
        call of an agent has waited.

        It contains the agent whose call has waited, which a client may have disabled.
        """
        settings = session.metadata.agent_settings
        names = [*settings.enabled_agents]
        waiting = approver.writer.turn.agent_call
        if waiting is not None:
            names.append(waiting.name)
        agents = await self.registry.enabled(names)
        if not agents and waiting is None:
            return None
        return AgentToolbox(self.service, self.registry, agents, approver)

    async def tools_of(self, name: str) -> Mapping[str, Tool] | None:
        """Return the tools of an agent by name, or None if the agent does not exist."""
        return await self.registry.tools_of(name)


def _rejected(
    call: ToolInvocation, publish: Publish, reason: str, code: str = ToolExecutionFailed.code
) -> AgentResult:
    name = str(call.arguments.get("agent") or "")
    instruction = str(call.arguments.get("instruction") or "")
    reported = AgentEvents(name, instruction, call.id)
    result = AgentResult(reason, error_code=code)
    start = reported.start()
    complete = reported.complete(result)
    publish([start, complete])
    return result
