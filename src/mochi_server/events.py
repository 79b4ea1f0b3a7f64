"""Every event of a chat stream, once. ``type`` is the SSE event name, the fields are its payload.

Events that come with every token are neither frozen nor slotted, because that makes them three times as fast.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mochi_server.errors import MochiError


@dataclass
class ContentDelta:
    """A piece of the answer, as Ollama sent it."""

    content: str
    role: str = "assistant"
    type: ClassVar[str] = "content_delta"


@dataclass
class ThinkingDelta:
    """A piece of the model's reasoning, for models that think and turns that ask for it."""

    content: str
    type: ClassVar[str] = "thinking_delta"


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """A tool runs now; nobody needs to approve of it."""

    tool_name: str
    arguments: dict[str, Any]
    call_index: int
    type: ClassVar[str] = "tool_call"


@dataclass(frozen=True, slots=True)
class ToolConfirmationRequired:
    """A call waits for approval; ``confirm-tool`` decides. ``agent_name`` is set for calls of an agent."""

    tool_name: str
    arguments: dict[str, Any]
    call_index: int
    confirmation_id: str
    agent_name: str | None = None
    type: ClassVar[str] = "tool_call_confirmation_required"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a call of a tool ended."""

    tool_name: str
    success: bool
    result: str | None
    error_message: str | None
    error_code: str | None
    call_index: int
    type: ClassVar[str] = "tool_result"


@dataclass(frozen=True, slots=True)
class ToolContinuationStart:
    """The results of the tools go to the model now."""

    message: str = "Processing tool results..."
    type: ClassVar[str] = "tool_continuation_start"


@dataclass(frozen=True, slots=True)
class AgentStart:
    """The model has called an agent. ``agent_session_id`` is null where the call names no session it may have."""

    agent_name: str
    instruction: str
    agent_session_id: str | None
    parent_call_id: str
    type: ClassVar[str] = "agent_start"


@dataclass(frozen=True, slots=True)
class AgentPlanning:
    """A piece of the agent's plan."""

    content: str
    agent_name: str
    agent_session_id: str
    parent_call_id: str
    type: ClassVar[str] = "agent_planning"


@dataclass(frozen=True, slots=True)
class AgentExecution(AgentPlanning):
    """A piece of what the agent says while it carries out its plan.

    An empty one ends what it says before it acts: another answer follows.
    """

    type: ClassVar[str] = "agent_execution"


@dataclass(frozen=True, slots=True)
class AgentToolCalled:
    """The agent runs one of its tools now; ``call_index`` counts the calls of this run of the agent."""

    agent_name: str
    tool_name: str
    arguments: dict[str, Any]
    call_index: int
    agent_session_id: str
    parent_call_id: str
    type: ClassVar[str] = "agent_tool_call"


@dataclass(frozen=True, slots=True)
class AgentToolResult:
    """How a call of one of the agent's tools ended."""

    agent_name: str
    tool_name: str
    success: bool
    result: str | None
    error_message: str | None
    error_code: str | None
    call_index: int
    agent_session_id: str
    parent_call_id: str
    type: ClassVar[str] = "agent_tool_result"


@dataclass(frozen=True, slots=True)
class AgentComplete:
    """The agent has ended. ``output`` is whole here; the model that called gets it cut to the limit of tools."""

    agent_name: str
    session_id: str | None
    output: str
    success: bool
    error_code: str | None
    agent_session_id: str | None
    parent_call_id: str
    type: ClassVar[str] = "agent_complete"


@dataclass(frozen=True, slots=True)
class MessageComplete:
    """The answer is whole and stored. Counts are tokens, as Ollama counted them."""

    message_id: str
    model: str
    eval_count: int | None
    prompt_eval_count: int | None
    context_window: dict[str, Any]
    done_reason: str | None = None
    type: ClassVar[str] = "message_complete"


@dataclass(frozen=True, slots=True)
class Status:
    """What a turn waits for before its next words. ``elapsed`` is in seconds, since the turn began.

    ``queued``: Ollama answers others first; ``loading_model``; ``processing_prompt``; ``compacting``: the model sums
    up the oldest turns.
    """

    state: str
    elapsed: float
    type: ClassVar[str] = "status"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """In place of events that are no longer kept: all text and thinking of the turn up to this event."""

    content: str
    thinking: str
    type: ClassVar[str] = "snapshot"


@dataclass(frozen=True, slots=True)
class ContextCompacted:
    """The model is not sent the whole history: what is left out of it. What is stored stays whole."""

    dropped_messages: int
    trimmed_tool_results: int
    summary_used: bool
    type: ClassVar[str] = "context_compacted"


@dataclass(frozen=True, slots=True)
class TurnWarning:
    """Something the user should know that does not end the turn.

    ``THINKING_NOT_SUPPORTED``, ``TOOLS_NOT_SUPPORTED``, ``IMAGES_NOT_SUPPORTED``: the model cannot, and answers
    without. ``IMAGE_NOT_FOUND``: images of the history are not stored any more, and are left out.
    ``TOOL_LIMIT_REACHED``: the model called tools for too long, and answers without them now.
    ``TOOL_CALLS_LEFT_OUT``: the model made more calls in one answer than the limit; the last ones are left out.
    ``ANSWER_CUT``: the answer has reached the end of the context window. ``PROMPT_TRUNCATED``: Ollama has cut the
    prompt. ``MODEL_NOT_FOUND``: the model of an agent is not there; the session's own answers.
    """

    code: str
    message: str
    type: ClassVar[str] = "warning"


@dataclass(frozen=True, slots=True)
class TurnError:
    """The turn failed; what was said until then is stored. ``done`` still follows."""

    code: str
    message: str
    details: dict[str, Any] = field(default_factory=dict)
    type: ClassVar[str] = "error"

    @classmethod
    def of(cls, error: MochiError) -> "TurnError":
        """The error that ended a turn."""
        return cls(error.code, error.message, error.details)


@dataclass(frozen=True, slots=True)
class Done:
    """The stream is complete; nothing follows."""

    session_id: str
    type: ClassVar[str] = "done"


_TextEvent = ContentDelta | ThinkingDelta
_ToolEvent = ToolCalled | ToolConfirmationRequired | ToolResult | ToolContinuationStart
_AgentEvent = AgentStart | AgentPlanning | AgentExecution | AgentToolCalled | AgentToolResult | AgentComplete
_TurnEvent = MessageComplete | Status | Snapshot | ContextCompacted | TurnWarning | TurnError | Done
ChatEvent = _TextEvent | _ToolEvent | _AgentEvent | _TurnEvent

Publish = Callable[[list[ChatEvent]], None]
"""Receives a batch of events. It returns at once and never waits for a client."""
