"""What clients see of an agent at work: the events of its conversation, told as an agent's."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import orjson

from mochi_server.events import (
    AgentComplete,
    AgentExecution,
    AgentPlanning,
    AgentStart,
    AgentToolCalled,
    AgentToolResult,
    ChatEvent,
    ContentDelta,
    ThinkingDelta,
    ToolCalled,
    ToolConfirmationRequired,
    ToolContinuationStart,
    ToolResult,
    TurnWarning,
)
from mochi_server.sessions.types import Message

Phase = Literal["planning", "execution"]


@dataclass(frozen=True, slots=True)
class Narrator:
    """Tells of one call of one agent. ``call_id`` is the call of the model that asked for it."""

    agent_name: str
    instruction: str
    call_id: str
    session_id: str | None = None

    def start(self) -> AgentStart:
        """The agent begins."""
        return AgentStart(self.agent_name, self.instruction, self.session_id, self.call_id)

    def complete(self, output: str, error_code: str | None) -> AgentComplete:
        """The agent has ended; ``error_code`` is of what went wrong, if anything did."""
        return AgentComplete(
            self.agent_name, self.session_id, output, error_code is None, error_code, self.session_id, self.call_id
        )

    def tell(self, event: ChatEvent, phase: Phase) -> ChatEvent | None:
        """An event of the agent's conversation as clients get it; None for what concerns nobody else."""
        told: ChatEvent | None = event
        match event:
            case ContentDelta():
                told = self._said(event.content, phase)
            case ToolCalled():
                told = self._called(event)
            case ToolResult():
                told = self._result(event)
            case ToolConfirmationRequired():
                told = replace(event, agent_name=self.agent_name)
            case TurnWarning():
                told = replace(event, message=f"Agent {self.agent_name!r}: {event.message}")
            case ThinkingDelta() | ToolContinuationStart():
                told = None
        return told

    def _said(self, content: str, phase: Phase) -> AgentPlanning | AgentExecution:
        kind = AgentPlanning if phase == "planning" else AgentExecution
        return kind(content, self.agent_name, self.session_id or "", self.call_id)

    def _called(self, event: ToolCalled) -> AgentToolCalled:
        return AgentToolCalled(
            agent_name=self.agent_name,
            tool_name=event.tool_name,
            arguments=event.arguments,
            call_index=event.call_index,
            agent_session_id=self.session_id or "",
            parent_call_id=self.call_id,
        )

    def _result(self, event: ToolResult) -> AgentToolResult:
        return AgentToolResult(
            agent_name=self.agent_name,
            tool_name=event.tool_name,
            success=event.success,
            result=event.result,
            error_message=event.error_message,
            error_code=event.error_code,
            call_index=event.call_index,
            agent_session_id=self.session_id or "",
            parent_call_id=self.call_id,
        )


def output_text(session_id: str, messages: Sequence[Message]) -> str:
    """What an agent answers with: its session, and everything it said, called and was told since its instruction."""
    return "\n\n".join([f"Session ID: {session_id}", *(part for message in messages for part in _parts(message))])


def _parts(message: Message) -> list[str]:
    if message["role"] == "tool":
        return [f"Result of {message['tool_name']}: {message['content']}"]
    calls = [call["function"] for call in message.get("tool_calls", ())]
    called = [f"Calls {call['name']}({orjson.dumps(call['arguments']).decode()})" for call in calls]
    return [part for part in (message["content"].strip(), *called) if part]
