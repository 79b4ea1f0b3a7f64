"""What requests take and answers hold, as the API's document says."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal

from typing_extensions import TypedDict

Think = bool | Literal["low", "medium", "high", "max"]
Picture = bytes | str | PathLike[str]
"""An image: its bytes, its base64 (a data URL, perhaps), or the file it is in."""


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


class TurnOptions(TypedDict, total=False):
    """How to answer. ``on_disconnect`` is ``continue`` unless it is given; ``images`` belong to the message."""

    images: Sequence[Picture]
    think: Think
    options: dict[str, Any]
    format: Literal["json"] | dict[str, Any]
    keep_alive: str | float
    if_busy: Literal["reject", "wait"]
    on_disconnect: Literal["cancel", "continue"]


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


class SessionDetail(Session):
    """A session with its messages; the position in the list is a message's index."""

    messages: list[dict[str, Any]]


class ToolCallExecuted(TypedDict):
    """A tool call of a turn and how it ended. ``execution_time`` is in seconds."""

    call_index: int
    tool_name: str
    arguments: dict[str, Any]
    success: bool
    result: str | None
    error_message: str | None
    error_code: str | None
    execution_time: float


class ContextWindow(TypedDict):
    """The window the answer was given in, in tokens."""

    current_window: int | None
    usage_tokens: int | None
    reason: str | None


class ChatAnswer(TypedDict):
    """A whole answer. ``message`` is None when the turn was stopped before the model spoke."""

    session_id: str
    message: dict[str, Any] | None
    tool_calls_executed: list[ToolCallExecuted]
    context_window: ContextWindow


class RunStatus(TypedDict):
    """The running or latest turn of a session; ``idle`` when there was none lately."""

    run_id: str | None
    state: Literal["idle", "running", "completed", "failed", "stopped", "cancelled"]


class Confirmation(TypedDict):
    """A call that waits for approval; ``agent_name`` is set for calls of an agent."""

    confirmation_id: str
    tool_name: str
    arguments: dict[str, Any]
    call_index: int
    agent_name: str | None


class Decided(TypedDict):
    """What was decided, and the arguments that the tool is called with."""

    confirmation_id: str
    approved: bool
    tool_name: str
    arguments: dict[str, Any]
