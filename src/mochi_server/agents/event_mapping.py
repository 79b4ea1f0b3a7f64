"""Conversion of the events of an agent's turn to the events that clients receive."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import orjson

from mochi_server import events
from mochi_server.sessions.types import Message

Phase = Literal["planning", "execution"]


@dataclass(frozen=True, slots=True)
class AgentEventMapper:
    """Mapper for the events of one agent call. ``call_id`` is the ID of the tool call that started the agent."""

    agent_name: str
    instruction: str
    call_id: str
    session_id: str | None = None

    def start(self) -> events.AgentStart:
        return events.AgentStart(self.agent_name, self.instruction, self.session_id, self.call_id)

    def complete(self, output: str, error_code: str | None) -> events.AgentComplete:
        """Return the event for the end of the agent. ``error_code`` is None on success."""
        return events.AgentComplete(
            self.agent_name, self.session_id, output, error_code is None, error_code, self.session_id, self.call_id
        )

    def wrap(self, publish: events.Publish, phase: Phase) -> events.Publish:
        """Return a function that converts the events of ``phase`` and passes the results to ``publish``."""

        def publish_mapped(events: list[events.ChatEvent]) -> None:
            if mapped := [new for event in events if (new := self._map(event, phase)) is not None]:
                publish(mapped)

        return publish_mapped

    def _map(self, event: events.ChatEvent, phase: Phase) -> events.ChatEvent | None:
        """Convert an event of the agent's turn. Return None if clients do not receive the event."""
        match event:
            case events.ContentDelta():
                return self._delta(event.content, phase)
            case events.ToolCalled():
                return events.AgentToolCalled(**asdict(event), **self._ids)
            case events.ToolResult():
                return events.AgentToolResult(**asdict(event), **self._ids)
            case events.ToolConfirmationRequired():
                return replace(event, agent_name=self.agent_name)
            case events.TurnWarning():
                return replace(event, message=f"Agent {self.agent_name!r}: {event.message}")
        return None if isinstance(event, events.ThinkingDelta | events.ToolContinuationStart) else event

    def _delta(self, content: str, phase: Phase) -> events.AgentPlanning | events.AgentExecution:
        kind = events.AgentPlanning if phase == "planning" else events.AgentExecution
        return kind(content, self.agent_name, self.session_id or "", self.call_id)

    @property
    def _ids(self) -> dict[str, Any]:
        session_id = self.session_id or ""
        return {"agent_name": self.agent_name, "agent_session_id": session_id, "parent_call_id": self.call_id}


def output_text(session_id: str, messages: Sequence[Message]) -> str:
    """Return the output of an agent as text: its session ID, messages, tool calls and tool results."""
    return "\n\n".join([f"Session ID: {session_id}", *(part for message in messages for part in _parts(message))])


def _parts(message: Message) -> list[str]:
    if message["role"] == "tool":
        return [f"Result of {message['tool_name']}: {message['content']}"]
    calls = [call["function"] for call in message.get("tool_calls", ())]
    called = [f"Calls {call['name']}({orjson.dumps(call['arguments']).decode()})" for call in calls]
    return [part for part in (message["content"].strip(), *called) if part]
