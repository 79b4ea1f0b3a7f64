"""Types of the data that is stored with a session: settings, messages and options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from typing_extensions import NotRequired, TypedDict  # pydantic needs these before Python 3.12

from mochi_server.sessions.generation_settings import Format, KeepAlive, StoredOptions, Think


class ToolExecutionPolicy(str, Enum):
    """Policy that determines which tool calls need approval."""

    ALWAYS_CONFIRM = "always_confirm"
    NEVER_CONFIRM = "never_confirm"
    CONFIRM_DESTRUCTIVE = "confirm_destructive"


APPROVED = "approved_tools"
"""Key of the approved tools in the tool settings of a session."""

Names = Annotated[list[str], Field(max_length=1000, fail_fast=True)]
"""List of names. Validation stops at the first invalid item, to limit the size of the error."""


class ToolSettings(BaseModel):
    """Tools that a session may use: the union of ``tools`` and the tools of ``tool_group``.

    ``tool_group`` is a group of ``GET /tools``: a group of the tools directory, or else the tools of an MCP server.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    tools: Names = Field(default_factory=list)
    tool_group: str | None = None
    execution_policy: ToolExecutionPolicy = ToolExecutionPolicy.ALWAYS_CONFIRM

    @property
    def approved(self) -> list[str]:
        """Names of the tools that are approved for the whole session."""
        return (self.model_extra or {}).get(APPROVED) or []

    @model_validator(mode="after")
    def _validate_approved(self) -> "ToolSettings":
        if not isinstance(self.approved, list) or not all(isinstance(name, str) for name in self.approved):
            raise ValueError(f"{APPROVED} must be a list of names")
        return self


class AgentSettings(BaseModel):
    """Agents that a session may call."""

    model_config = ConfigDict(extra="allow", frozen=True)

    enabled_agents: Names = Field(default_factory=list)
    selection_metadata: dict[str, Any] | None = None


Role = Literal["system", "user", "assistant", "tool"]


class ToolCallFunction(TypedDict):
    """Function of a tool call. ``index`` is the position of the call among the tool calls of the message."""

    index: NotRequired[int]
    name: str
    arguments: dict[str, Any]


class ToolCall(TypedDict):
    """A tool call in Ollama's format."""

    id: str
    function: ToolCallFunction


class ImageReference(TypedDict):
    """An image of a message. ``sha256`` is the hash of its bytes, in hex. Its bytes are at ``blobs/{sha256}``."""

    sha256: str
    media_type: str


class Message(TypedDict, total=False):
    """A stored message. Messages of all roles have the first four fields. The other fields depend on the role.

    Messages are dictionaries, so that unknown keys of session files are preserved.
    """

    role: Role
    content: str
    message_id: str
    timestamp: str
    source_file: Annotated[str | None, Field(description="system: prompt file of the message.")]
    images: Annotated[list[ImageReference], Field(description="user and tool: images of the message.")]
    key_digest: str  # message of a client: hash of the session id and the idempotency key of the request, in hex
    model: Annotated[str, Field(description="assistant: model that answered.")]
    thinking: Annotated[str, Field(description="assistant: reasoning of the model.")]
    tool_calls: Annotated[list[ToolCall], Field(description="assistant: tool calls of the model.")]
    client_tool_calls: Annotated[list[str], Field(description="assistant: IDs of the tool calls that the client runs.")]
    eval_count: Annotated[int, Field(description="assistant: number of tokens of the answer.")]
    prompt_eval_count: Annotated[int, Field(description="assistant: number of tokens of the prompt.")]
    prompt_eval_cached_count: Annotated[int, Field(description="assistant: prompt tokens that were in the cache.")]
    total_duration: Annotated[int, Field(description="assistant: time of the whole request, in nanoseconds.")]
    load_duration: Annotated[int, Field(description="assistant: time to load the model, in nanoseconds.")]
    prompt_eval_duration: Annotated[int, Field(description="assistant: time to read the prompt, in nanoseconds.")]
    eval_duration: Annotated[int, Field(description="assistant: time to generate the answer, in nanoseconds.")]
    done_reason: Annotated[str, Field(description="assistant: reason of the end, such as `stop` or `length`.")]
    interrupted: Annotated[bool, Field(description="assistant and tool: `true` if it was interrupted.")]
    tool_name: Annotated[str, Field(description="tool: name of the tool.")]
    tool_call_id: Annotated[str, Field(description="tool: ID of the tool call.")]
    success: Annotated[bool, Field(description="tool: whether the call succeeded.")]
    error_code: Annotated[str, Field(description="tool: code of the error.")]
    decided_by: Annotated[
        Literal["policy", "user", "timeout"], Field(description="tool: what approved or denied the call.")
    ]
    arguments: Annotated[
        dict[str, Any],
        Field(description="tool: arguments of the call if the approval replaced those of the model."),
    ]


UserMessage = Message
SystemMessage = Message
AssistantMessage = Message
ToolMessage = Message
"""Names of ``Message`` by role, for the documented library API."""


def default_window_config() -> dict[str, Any]:
    """Return the initial context window configuration of a session."""
    return {
        "dynamic_enabled": True,
        "current_window": None,
        "last_adjustment": None,
        "adjustment_history": [],
        "manual_override": False,
    }


_WINDOW_TYPES = {"dynamic_enabled": bool, "last_adjustment": str, "adjustment_history": list, "manual_override": bool}


def window_config(stored: object) -> dict[str, Any]:
    """Return a stored context window configuration. Missing and invalid values become defaults."""
    defaults = default_window_config()
    config = defaults | (stored if isinstance(stored, dict) else {})
    wrong = [name for name, kind in _WINDOW_TYPES.items() if not isinstance(config[name], kind)]
    window = config["current_window"]
    if type(window) is not int or window < 1:  # a bool is an int, too
        wrong.append("current_window")
    return config | {name: defaults[name] for name in wrong}


def _reader(kind: type[BaseModel]) -> Callable[[object], BaseModel]:
    """Return a function that converts stored settings to ``kind``. Nulls and invalid settings become defaults."""

    def read(stored: object) -> BaseModel:
        if not isinstance(stored, Mapping):
            return kind()
        try:
            return kind.model_validate({k: v for k, v in stored.items() if v is not None or k not in kind.model_fields})
        except ValidationError:
            return kind()

    return read


def optional(kind: Any, *, always_written: bool = False) -> dict[str, Any]:
    """Return field metadata for an optional setting: its type, and whether the session file can contain null.

    Stored values of other types become None.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(kind, config=ConfigDict(strict=True))

    def read(stored: object) -> object:
        if stored is not None:
            try:
                adapter.validate_python(stored)
            except ValidationError:
                return None
        return stored

    return {"read": read, "only_if_set": not always_written}


def pending_approval(stored: object) -> dict[str, Any] | None:
    """Return a stored approval request, or None if its fields are missing or have wrong types."""
    fields = {"confirmation_id": str, "tool_name": str, "arguments": dict, "call_index": int}
    if isinstance(stored, dict) and all(isinstance(stored.get(name), kind) for name, kind in fields.items()):
        return stored
    return None


@dataclass(kw_only=True)
class SessionSettings:
    """Settings of a session that clients choose.

    A new setting needs one line here and one in each schema of ``models/sessions.py``. Durations use Ollama's format:
    a string such as "5m" or a number of seconds.
    """

    tool_settings: ToolSettings = field(default_factory=ToolSettings, metadata={"read": _reader(ToolSettings)})
    agent_settings: AgentSettings = field(default_factory=AgentSettings, metadata={"read": _reader(AgentSettings)})
    context_window_config: dict[str, Any] = field(
        default_factory=default_window_config, metadata={"read": window_config}
    )
    title: str | None = field(default=None, metadata=optional(str))
    options: dict[str, Any] | None = field(default=None, metadata=optional(StoredOptions))
    keep_alive: str | float | None = field(default=None, metadata=optional(KeepAlive))
    think: bool | str | None = field(default=None, metadata=optional(Think))
    format: str | dict[str, Any] | None = field(default=None, metadata=optional(Format))


@dataclass
class SessionCreationOptions(SessionSettings):
    """Model, system prompt and settings of a new session."""

    model: str
    system_prompt: str | None = None
    system_prompt_source_file: str | None = None


@dataclass(frozen=True)
class SessionQuery:
    """Query for one page of the session list: ``limit`` sessions after the first ``offset`` sessions.

    If ``text`` is set, the list has only sessions that contain every word of ``text`` (see ``sessions.search``).
    """

    limit: int | None = None
    offset: int = 0
    text: str | None = None
