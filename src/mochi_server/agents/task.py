"""Callers of agents, and the events and results that they receive."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import orjson

from mochi_server import events
from mochi_server.errors import MochiError, SessionBusy, SessionNotFound
from mochi_server.sessions.types import Message, ToolExecutionPolicy
from mochi_server.tools.discovery import Tool
from mochi_server.tools.toolbox import Approver, BoundCall, CallProgress, needs_approval


@dataclass(frozen=True)
class DenyAllApprover:
    """Approver for agents without a user. It denies every call that needs approval under ``policy``."""

    policy: ToolExecutionPolicy
    interactive: bool = False

    async def decide(self, _: BoundCall, __: Callable[[str], None]) -> None:
        """Do nothing, because no client can decide."""

    async def requires_approval(self, tool: Tool) -> bool:
        return needs_approval(self.policy, tool)

    async def approve_for_session(self, _: Tool) -> None:
        """Do nothing, because no call is ever approved."""


@dataclass(frozen=True)
class AgentCaller:
    """Caller of an agent: a tool call of another turn, or a program without a user."""

    approver: Approver
    current_tools: Callable[[], Awaitable[Mapping[str, Tool]]] | None = None
    """Function that returns the tools that the agent has now, or None if its tools do not change while it runs."""
    call_id: str = ""
    """ID of the tool call that started the agent; the events of the agent contain it."""
    progress: CallProgress = field(default_factory=CallProgress)
    """Progress of that tool call. Its partial output names the session, so that the session can be continued."""

    @classmethod
    def without_user(cls, policy: ToolExecutionPolicy | None) -> "AgentCaller":
        """Return a caller that denies every call that needs approval. Without a policy, every call needs approval."""
        return cls(DenyAllApprover(policy or ToolExecutionPolicy.ALWAYS_CONFIRM))


@dataclass(frozen=True, slots=True)
class AgentResult:
    """Result of an agent. ``output`` is text for the calling model. The text begins with the session ID, if any."""

    output: str
    session_id: str | None = None
    error_code: str | None = None
    messages: Sequence[Message] = ()
    """The messages that the agent added to its session."""

    @classmethod
    def of(
        cls, agent: str, session_id: str | None, messages: Sequence[Message], failure: MochiError | None
    ) -> "AgentResult":
        """Return the result of an agent that added ``messages`` to its session. ``failure`` is None on success."""
        parts = [] if session_id is None else [session_line(session_id), *_texts(messages)]
        if failure is not None:
            parts.append(_explain(agent, failure))
        return cls("\n\n".join(filter(None, parts)), session_id, failure.code if failure else None, messages)


def session_line(session_id: str) -> str:
    """Return the first line of an agent's output."""
    return f"Session ID: {session_id}"


def _texts(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the texts of messages, tool calls and tool results."""
    for message in messages:
        if message["role"] == "tool":
            yield f"Result of {message['tool_name']}: {message['content']}"
            continue
        yield message["content"].strip()
        for call in message.get("tool_calls", ()):
            function = call["function"]
            yield f"Calls {function['name']}({orjson.dumps(function['arguments']).decode()})"


def _explain(agent: str, failure: MochiError) -> str:
    session_id = failure.details.get("session_id")
    if isinstance(failure, SessionNotFound):
        return f"Agent {agent!r} has no session {session_id!r}. Omit session_id to start a new session."
    if isinstance(failure, SessionBusy):
        return f"Session {session_id!r} of agent {agent!r} is in use. Omit session_id to start a new session."
    return f"The agent failed: {failure.message}"


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
