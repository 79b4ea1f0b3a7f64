"""What is stored with a session, as plain types: settings, messages, list entries, options."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator


class ToolExecutionPolicy(str, Enum):
    """When a tool call needs a human's approval."""

    ALWAYS_CONFIRM = "always_confirm"
    NEVER_CONFIRM = "never_confirm"
    CONFIRM_DESTRUCTIVE = "confirm_destructive"


APPROVED = "approved_tools"
"""Where a session's settings have it, the key of the tools whose calls were approved of for the session."""

Names = Annotated[list[str], Field(max_length=1000, fail_fast=True)]
"""Checking stops at the first that is none: nobody reads a million complaints."""


class ToolSettings(BaseModel):
    """Which tools a session may use; ``tools`` and ``tool_group`` together mean the union."""

    model_config = ConfigDict(extra="allow", frozen=True)

    tools: Names = Field(default_factory=list)
    tool_group: str | None = None
    execution_policy: ToolExecutionPolicy = ToolExecutionPolicy.ALWAYS_CONFIRM

    @property
    def approved(self) -> list[str]:
        """Names of the tools whose calls were approved of for the session."""
        return (self.model_extra or {}).get(APPROVED) or []

    @model_validator(mode="after")
    def _approves_of_names(self) -> "ToolSettings":
        if not isinstance(self.approved, list) or not all(isinstance(name, str) for name in self.approved):
            raise ValueError(f"{APPROVED} must be a list of names")
        return self


class AgentSettings(BaseModel):
    """Which agents a session may call."""

    model_config = ConfigDict(extra="allow", frozen=True)

    enabled_agents: Names = Field(default_factory=list)
    selection_metadata: dict[str, Any] | None = None


def read_tool_settings(stored: object) -> ToolSettings:
    """Settings as found in a file; nulls are defaults, what makes no sense is the safest setting."""
    return _read(ToolSettings, stored)


def read_agent_settings(stored: object) -> AgentSettings:
    """Settings as found in a file; nulls are defaults, what makes no sense enables no agent."""
    return _read(AgentSettings, stored)


Role = Literal["system", "user", "assistant", "tool"]
Think = bool | Literal["low", "medium", "high", "max"]


class ToolCallFunction(TypedDict):
    index: int
    name: str
    arguments: dict[str, Any]


class ToolCall(TypedDict):
    """A call as Ollama writes it."""

    id: str
    function: ToolCallFunction


class ImageReference(TypedDict):
    """How a message names an image, whose bytes are kept beside the sessions."""

    sha256: str
    """of its bytes, in hex"""
    media_type: str


class Message(TypedDict, total=False):
    """One stored message. ``role``, ``content``, ``message_id`` and ``timestamp`` are always there.

    Unknown keys of files are kept, which is why this is a dictionary and not a class.
    """

    role: Role
    content: str
    message_id: str
    timestamp: str
    source_file: str | None
    """system: the prompt file it came from"""
    images: list[ImageReference]
    """user: what was shown to the model with it"""
    key_digest: str
    """user: of the session's id and the idempotency key that it came with, in hex"""
    model: str
    """assistant: who answered; what follows is of the answer, too"""
    eval_count: int
    prompt_eval_count: int
    thinking: str
    tool_calls: list[ToolCall]
    handed_back: list[str]
    """ids of the calls that the client runs; their results come in a later request"""
    done_reason: str
    total_duration: int
    load_duration: int
    prompt_eval_duration: int
    eval_duration: int
    interrupted: bool
    """the answer, or the call, was cut off, by the client, by Ollama or by a crash"""
    tool_name: str
    """tool: whose result it is"""
    tool_call_id: str
    success: bool
    error_code: str
    decided_by: Literal["policy", "user", "timeout"]
    """tool: who let it run, or did not"""
    arguments: dict[str, Any]
    """tool: what it was called with, where the user changed that"""


@dataclass(frozen=True)
class SessionCreationOptions:
    """What a new session is made of; durations as Ollama takes them ("5m", seconds)."""

    model: str
    system_prompt: str | None = None
    system_prompt_source_file: str | None = None
    tool_settings: ToolSettings = field(default_factory=ToolSettings)
    agent_settings: AgentSettings = field(default_factory=AgentSettings)
    title: str | None = None
    options: dict[str, Any] | None = None
    keep_alive: str | float | None = None
    think: Think | None = None
    format: Literal["json"] | dict[str, Any] | None = None
    context_window_config: dict[str, Any] | None = None


@dataclass(frozen=True)
class SessionQuery:
    """Which part of the list is wanted: newest first, ``limit`` entries after ``offset``.

    With ``text``, of the list of those sessions in which every word of it occurs (see ``sessions.search``).
    """

    limit: int | None = None
    offset: int = 0
    text: str | None = None


_Settings = TypeVar("_Settings", bound=BaseModel)


def _read(kind: type[_Settings], stored: object) -> _Settings:
    if not isinstance(stored, Mapping):
        return kind()
    try:
        return kind.model_validate(
            {key: value for key, value in stored.items() if value is not None or key not in kind.model_fields}
        )
    except ValidationError:
        return kind()
