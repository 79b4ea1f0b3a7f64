"""What is stored with a session, as plain types: settings, messages, list entries, options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

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


def default_window_config() -> dict[str, Any]:
    """Return the state of a context window for which nothing was decided yet."""
    return {
        "dynamic_enabled": True,
        "current_window": None,
        "last_adjustment": None,
        "adjustment_history": [],
        "manual_override": False,
    }


def _window_config(stored: object) -> dict[str, Any]:
    config = default_window_config() | (stored if isinstance(stored, dict) else {})
    if not isinstance(config["current_window"], int):
        config["current_window"] = None
    if not isinstance(config["adjustment_history"], list):
        config["adjustment_history"] = []
    return config


def _reader(kind: type[BaseModel]) -> Callable[[object], BaseModel]:
    """Read settings of a file: nulls become defaults, and so do settings that are not valid."""

    def read(stored: object) -> BaseModel:
        if not isinstance(stored, Mapping):
            return kind()
        try:
            return kind.model_validate({k: v for k, v in stored.items() if v is not None or k not in kind.model_fields})
        except ValidationError:
            return kind()

    return read


def optional(*kinds: type, always_written: bool = False) -> dict[str, Any]:
    """Return the properties of a field that is None unless its value in the file is of one of these types.

    The file has the field only if it is set, or if it is ``always_written``.
    """

    def read(stored: object) -> object:
        return stored if isinstance(stored, kinds) else None

    return {"read": read, "only_if_set": not always_written}


@dataclass(kw_only=True)
class SessionSettings:
    """What clients choose for a session.

    A new setting is one line here and one in each schema of ``models/sessions.py``. Reading, writing, listing, forking,
    patching and creating a session follow. Durations are as Ollama takes them ("5m", or seconds).
    """

    tool_settings: ToolSettings = field(default_factory=ToolSettings, metadata={"read": _reader(ToolSettings)})
    agent_settings: AgentSettings = field(default_factory=AgentSettings, metadata={"read": _reader(AgentSettings)})
    context_window_config: dict[str, Any] = field(
        default_factory=default_window_config, metadata={"read": _window_config}
    )
    title: str | None = field(default=None, metadata=optional(str))
    options: dict[str, Any] | None = field(default=None, metadata=optional(dict))
    keep_alive: str | float | None = field(default=None, metadata=optional(str, int, float))
    think: bool | str | None = field(default=None, metadata=optional(bool, str))
    format: str | dict[str, Any] | None = field(default=None, metadata=optional(str, dict))


@dataclass
class SessionCreationOptions(SessionSettings):
    """The model, system prompt and settings of a new session."""

    model: str
    system_prompt: str | None = None
    system_prompt_source_file: str | None = None


@dataclass(frozen=True)
class SessionQuery:
    """Which part of the list is wanted: newest first, ``limit`` entries after ``offset``.

    With ``text``, of the list of those sessions in which every word of it occurs (see ``sessions.search``).
    """

    limit: int | None = None
    offset: int = 0
    text: str | None = None
