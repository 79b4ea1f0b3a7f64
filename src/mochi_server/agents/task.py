"""What an agent is asked to do, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from mochi_server.agents.config import AgentDefinition
from mochi_server.agents.event_mapping import output_text
from mochi_server.errors import MochiError, SessionBusy, SessionNotFound
from mochi_server.sessions.types import Message, ToolExecutionPolicy
from mochi_server.tools.discovery import Tool
from mochi_server.tools.toolbox import Approver, BoundCall, needs_approval


@dataclass(frozen=True)
class DenyAllApprover:
    """An approver without a user: it denies the calls that need approval by the policy."""

    policy: ToolExecutionPolicy

    def request(self, _: BoundCall) -> None:
        """Return None: no client can decide."""

    async def requires_approval(self, tool: Tool) -> bool:
        return needs_approval(self.policy, tool)

    async def approve_for_session(self, _: Tool) -> None:
        """Do nothing: no call is approved."""


@dataclass(frozen=True)
class AgentTask:
    """What an agent is to do. ``model`` answers for an agent that names none, or one that is gone."""

    agent: AgentDefinition
    instruction: str
    model: str
    session_id: str | None = None
    """Continues that conversation; None begins a new one."""
    policy: ToolExecutionPolicy = ToolExecutionPolicy.ALWAYS_CONFIRM
    """For a task without an approver."""
    approver: Approver | None = None
    keep_alive: str | float | None = None
    call_id: str = ""
    """The call that asked for it; its events carry it."""


@dataclass(frozen=True, slots=True)
class AgentResult:
    """What came of a task. ``output`` begins with the session's id where there is a session."""

    output: str
    session_id: str | None = None
    error_code: str | None = None
    failure: MochiError | None = None
    messages: Sequence[Message] = ()
    """What the agent has said and was told, as it is stored."""


def result_of(
    task: AgentTask, session_id: str | None, done: Sequence[Message], failure: MochiError | None
) -> AgentResult:
    """What came of a task that added these messages to its session, and perhaps failed."""
    told = _explain(task, failure) if failure is not None else None
    if session_id is None:
        return AgentResult(told or "", None, failure.code if failure else None, failure)
    output = "\n\n".join(filter(None, [output_text(session_id, done), told]))
    return AgentResult(output, session_id, failure.code if failure else None, failure, done)


def _explain(task: AgentTask, failure: MochiError) -> str:
    """What went wrong, in words for the model that called."""
    name, session_id = task.agent.name, task.session_id
    if isinstance(failure, SessionNotFound):
        return f"Agent {name!r} has no session {session_id!r}. Leave session_id out to begin a new one."
    if isinstance(failure, SessionBusy):
        return f"Session {session_id!r} of agent {name!r} is in use. Leave session_id out to begin a new one."
    return f"The agent could not go on: {failure.message}"
