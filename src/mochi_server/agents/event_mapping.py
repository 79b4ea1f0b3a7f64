"""Conversion of the events of an agent's turn to the events that clients receive."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from mochi_server import events

Phase = Literal["planning", "execution"]


@dataclass(frozen=True, slots=True)
class AgentEvents:
    """Publisher of the events of one agent call. ``call_id`` is the ID of the tool call that started the agent."""

    publish: events.Publish
    agent_name: str
    instruction: str
    call_id: str
    session_id: str | None = None

    def start(self) -> None:
        self.publish([events.AgentStart(self.agent_name, self.instruction, self.session_id, self.call_id)])

    def complete(self, output: str, error_code: str | None) -> None:
        """Publish the end of the agent. ``error_code`` is None on success."""
        name, session_id, success = self.agent_name, self.session_id, error_code is None
        complete = events.AgentComplete(name, session_id, output, success, error_code, session_id, self.call_id)
        self.publish([complete])

    def publisher(self, phase: Phase) -> events.Publish:
        """Return a function that converts the events of ``phase`` and publishes the results."""

        def publish_mapped(events: list[events.ChatEvent]) -> None:
            if mapped := [new for event in events if (new := self._map(event, phase)) is not None]:
                self.publish(mapped)

        return publish_mapped

    def _map(self, event: events.ChatEvent, phase: Phase) -> events.ChatEvent | None:
        """Convert an event of the agent's turn. Return None if clients do not receive the event."""
        match event:
            case events.ContentDelta():
                kind = events.AgentPlanning if phase == "planning" else events.AgentExecution
                return kind(event.content, self.agent_name, self.session_id or "", self.call_id)
            case events.ToolCalled():
                return events.AgentToolCalled(**asdict(event), **self._ids)
            case events.ToolResult():
                return events.AgentToolResult(**asdict(event), **self._ids)
            case events.ToolConfirmationRequired():
                return replace(event, agent_name=self.agent_name)
            case events.TurnWarning():
                return replace(event, message=f"Agent {self.agent_name!r}: {event.message}")
        return None if isinstance(event, events.ThinkingDelta | events.ToolContinuationStart) else event

    @property
    def _ids(self) -> dict[str, Any]:
        session_id = self.session_id or ""
        return {"agent_name": self.agent_name, "agent_session_id": session_id, "parent_call_id": self.call_id}
