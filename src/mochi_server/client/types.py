"""Types of requests and responses, as in the OpenAPI document."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal

from typing_extensions import Required, TypedDict

Think = bool | Literal["low", "medium", "high", "max"]
Picture = bytes | str | PathLike[str]
"""An image: its bytes, its base64 text or data URL, or the path of its file."""


class SessionOptions(TypedDict, total=False):
    """Settings of a new session besides its model."""

    title: str
    system_prompt: str
    system_prompt_source_file: str
    tool_settings: dict[str, Any]
    agent_settings: dict[str, Any]
    options: dict[str, Any]
    keep_alive: str | float
    think: Think
    format: Literal["json"] | dict[str, Any]


class SessionChanges(TypedDict, total=False):
    """Changes of a session. The value None clears a setting. Only ``model`` cannot be None."""

    model: str
    title: str | None
    summary_model: str | None
    context_window: dict[str, Any] | None
    tool_settings: dict[str, Any] | None
    agent_settings: dict[str, Any] | None
    options: dict[str, Any] | None
    keep_alive: str | float | None
    think: Think | None
    format: Literal["json"] | dict[str, Any] | None


class Decision(TypedDict, total=False):
    """Decision about a tool call. ``approved`` is required. ``MochiClient.confirm`` describes the fields."""

    approved: Required[bool]
    arguments: dict[str, Any]
    reason: str
    remember: Literal["once", "session"]


class TurnOptions(TypedDict, total=False):
    """Options of a turn. The default of ``on_disconnect`` is ``continue``. ``images`` are sent with the message."""

    images: Sequence[Picture]
    think: Think
    options: dict[str, Any]
    format: Literal["json"] | dict[str, Any]
    keep_alive: str | float
    if_busy: Literal["reject", "wait"]
    on_disconnect: Literal["cancel", "continue"]


class Model(TypedDict):
    """A chat model of Ollama. ``size_mb`` is in units of 1024 * 1024 bytes. ``context_length`` is in tokens."""

    name: str
    size_mb: float
    format: str
    family: str
    parameter_size: str
    quantization_level: str
    capabilities: list[str]
    context_length: int | None


class Tools(TypedDict):
    """Tools and tool groups of the server, by name. ``problems`` lists tools and files that the server cannot use."""

    tools: dict[str, dict[str, Any]]
    groups: dict[str, list[str]]
    problems: list[dict[str, Any]]


class ComparedAnswer(TypedDict):
    """Answer of a model in a comparison. ``response`` is None if the model failed. Times are in milliseconds."""

    model: str
    response: str | None
    error: str | None
    input_tokens: int | None
    output_tokens: int | None
    first_token_ms: float | None
    total_ms: float | None
    tokens_per_second: float | None


class Session(TypedDict):
    """A session without its messages. Times are ISO 8601, in UTC."""

    session_id: str
    model: str
    created_at: str
    updated_at: str
    message_count: int
    title: str | None
    preview: str
    summary: dict[str, Any] | None
    summary_model: str | None
    format_version: str
    tool_settings: dict[str, Any]
    agent_settings: dict[str, Any]
    context_window_config: dict[str, Any]
    options: dict[str, Any] | None
    keep_alive: str | float | None
    think: bool | str | None
    format: str | dict[str, Any] | None


class ChangedSession(Session):
    """A new or changed session.

    ``warnings`` has an entry for each tool, tool group and agent that the session enables but that cannot be used.
    """

    warnings: list["ServerWarning"]


class SessionDetail(Session):
    """A session with its messages. The index of a message is its position in the list."""

    messages: list[dict[str, Any]]


class ToolCallExecuted(TypedDict):
    """A tool call of a turn with its outcome. ``execution_time`` is in seconds."""

    call_index: int
    tool_name: str
    arguments: dict[str, Any]
    success: bool
    result: str | None
    error_message: str | None
    error_code: str | None
    execution_time: float


class ContextWindow(TypedDict):
    """Context window of an answer: its size and its usage, both in tokens."""

    current_window: int | None
    usage_tokens: int | None
    reason: str | None


class ServerWarning(TypedDict):
    """A problem that did not prevent the request."""

    code: str
    message: str


class ChatAnswer(TypedDict):
    """A complete answer. ``message`` is None if the turn was stopped before the first token."""

    session_id: str
    state: Literal["completed", "stopped", "cancelled"]
    message: dict[str, Any] | None
    tool_calls_executed: list[ToolCallExecuted]
    context_window: ContextWindow
    warnings: list[ServerWarning]


class RunStatus(TypedDict):
    """The state of the running or latest turn of a session; ``idle`` if there was no recent turn."""

    run_id: str | None
    state: Literal["idle", "running", "completed", "failed", "stopped", "cancelled"]


class Confirmation(TypedDict):
    """A tool call that needs approval. ``agent_name`` is set if an agent made the call.

    If ``state`` is ``interrupted``, the server stopped while the call waited for a decision. The call can then no
    longer be approved or denied.
    """

    confirmation_id: str
    tool_name: str
    arguments: dict[str, Any]
    call_index: int
    agent_name: str | None
    state: Literal["waiting", "interrupted"]


class Decided(TypedDict):
    """A decision for a tool call, with the arguments of the call."""

    confirmation_id: str
    approved: bool
    tool_name: str
    arguments: dict[str, Any]
