"""Types of the options of requests, as in the OpenAPI document. Responses are dictionaries with the fields there."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal

from typing_extensions import Required, TypedDict

Json = dict[str, Any]
Picture = bytes | str | PathLike[str]
"""An image: its bytes, its base64 text or data URL, or the path of its file."""


class GenerationOptions(TypedDict, total=False):
    """Options of answers. None means the default."""

    options: Json | None
    keep_alive: str | float | None
    think: bool | Literal["low", "medium", "high", "max"] | None
    format: Literal["json"] | Json | None


class TurnOptions(GenerationOptions, total=False):
    """Options of a turn. The default of ``on_disconnect`` is ``continue``. ``images`` are sent with the message.

    With ``background``, ``chat`` returns the state of the run at once. Streams do not accept it.
    """

    images: Sequence[Picture]
    if_busy: Literal["reject", "wait"]
    if_waiting: Literal["reject", "deny"]
    on_disconnect: Literal["cancel", "continue"]
    background: bool


class SessionDefaults(GenerationOptions, total=False):
    """Settings that new sessions and changes of sessions share."""

    title: str | None
    tool_settings: Json | None
    agent_settings: Json | None


class SessionOptions(SessionDefaults, total=False):
    """Settings of a new session besides its model."""

    system_prompt: str | None
    system_prompt_source_file: str | None


class SessionChanges(SessionDefaults, total=False):
    """Changes of a session. The value None clears a setting. Only ``model`` cannot be None."""

    model: str
    summary_model: str | None
    context_window: Json | None


class Decision(TypedDict, total=False):
    """Decision about a tool call. ``approved`` is required. ``MochiClient.confirm`` describes the fields."""

    approved: Required[bool]
    arguments: Json
    reason: str
    remember: Literal["once", "session"]
