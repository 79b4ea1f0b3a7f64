"""The schema of stored messages. It is shown and not enforced: whatever a file holds is handed out as it is."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from mochi_server.sessions.types import Role


class StoredFunction(BaseModel):
    """What is called, with what. ``index`` is the position among the calls of its message."""

    model_config = ConfigDict(extra="allow")

    index: int | None = None
    name: str
    arguments: dict[str, Any]


class StoredCall(BaseModel):
    """A tool call as Ollama writes it."""

    model_config = ConfigDict(extra="allow")

    id: str
    function: StoredFunction


class StoredImage(BaseModel):
    """An image of a message; its bytes are at ``blobs/{sha256}``."""

    sha256: str
    media_type: str


class StoredMessage(BaseModel):
    """A message as it is stored. Its role decides which fields it has besides the first four; there may be others."""

    model_config = ConfigDict(extra="allow")

    role: Role
    content: str
    message_id: str
    timestamp: str
    source_file: str | None = Field(None, description="system: the prompt file that it came from.")
    images: list[StoredImage] | None = Field(None, description="user: what was shown to the model with it.")
    model: str | None = Field(None, description="assistant: who answered.")
    thinking: str | None = Field(None, description="assistant: what the model thought.")
    tool_calls: list[StoredCall] | None = Field(None, description="assistant: what the model called.")
    handed_back: list[str] | None = Field(None, description="assistant: ids of the calls that the client runs.")
    eval_count: int | None = Field(None, description="assistant: tokens of the answer.")
    prompt_eval_count: int | None = Field(None, description="assistant: tokens of the prompt.")
    total_duration: int | None = Field(
        None, description="assistant: nanoseconds of the whole request, as Ollama tells them."
    )
    load_duration: int | None = Field(None, description="assistant: nanoseconds that loading the model took.")
    prompt_eval_duration: int | None = Field(None, description="assistant: nanoseconds that reading the prompt took.")
    eval_duration: int | None = Field(None, description="assistant: nanoseconds that the answer took.")
    done_reason: str | None = Field(None, description="assistant: why it ended, such as `stop` or `length`.")
    interrupted: bool | None = Field(None, description="assistant and tool: whether it was cut off.")
    tool_name: str | None = Field(None, description="tool: whose result it is.")
    tool_call_id: str | None = Field(None, description="tool: of which call it is the result.")
    success: bool | None = Field(None, description="tool: whether it ran to its end.")
    error_code: str | None = Field(None, description="tool: why not.")
    decided_by: Literal["policy", "user", "timeout"] | None = Field(
        None, description="tool: who let it run, or did not."
    )
    arguments: dict[str, Any] | None = Field(
        None, description="tool: what it was called with, where that was changed by who approved."
    )


SHOWN = {"title": StoredMessage.__name__}
"""Stands for the schema until the document is whole: what is handed out as it is has none of its own."""

MessageOut = Annotated[dict[str, Any], WithJsonSchema(SHOWN)]
