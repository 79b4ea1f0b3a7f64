"""Schema of stored messages, only for documentation. Responses contain stored messages without validation."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, WithJsonSchema

from mochi_server.sessions.types import Role


class StoredFunction(BaseModel, extra="allow"):
    """Function of a tool call. ``index`` is the position of the call among the tool calls of the message."""

    index: int | None = None
    name: str
    arguments: dict[str, Any]


class StoredCall(BaseModel, extra="allow"):
    """A tool call in Ollama's format."""

    id: str
    function: StoredFunction


class StoredImage(BaseModel):
    """An image of a message. Its bytes are at ``blobs/{sha256}``."""

    sha256: str
    media_type: str


class StoredMessage(BaseModel, extra="allow"):
    """A stored message. Messages of all roles have the first four fields. The other fields depend on the role."""

    role: Role
    content: str
    message_id: str
    timestamp: str
    source_file: str | None = Field(None, description="system: prompt file of the message.")
    images: list[StoredImage] | None = Field(None, description="user and tool: images of the message.")
    model: str | None = Field(None, description="assistant: model that answered.")
    thinking: str | None = Field(None, description="assistant: reasoning of the model.")
    tool_calls: list[StoredCall] | None = Field(None, description="assistant: tool calls of the model.")
    handed_back: list[str] | None = Field(None, description="assistant: IDs of the tool calls that the client runs.")
    eval_count: int | None = Field(None, description="assistant: number of tokens of the answer.")
    prompt_eval_count: int | None = Field(None, description="assistant: number of tokens of the prompt.")
    total_duration: int | None = Field(None, description="assistant: time of the whole request, in nanoseconds.")
    load_duration: int | None = Field(None, description="assistant: time to load the model, in nanoseconds.")
    prompt_eval_duration: int | None = Field(None, description="assistant: time to read the prompt, in nanoseconds.")
    eval_duration: int | None = Field(None, description="assistant: time to generate the answer, in nanoseconds.")
    done_reason: str | None = Field(None, description="assistant: reason of the end, such as `stop` or `length`.")
    interrupted: bool | None = Field(None, description="assistant and tool: `true` if it was interrupted.")
    tool_name: str | None = Field(None, description="tool: name of the tool.")
    tool_call_id: str | None = Field(None, description="tool: ID of the tool call.")
    success: bool | None = Field(None, description="tool: whether the call succeeded.")
    error_code: str | None = Field(None, description="tool: code of the error.")
    decided_by: Literal["policy", "user", "timeout"] | None = Field(
        None, description="tool: what approved or denied the call."
    )
    arguments: dict[str, Any] | None = Field(
        None, description="tool: arguments of the call if the approval replaced those of the model."
    )


MESSAGE_PLACEHOLDER = {"title": StoredMessage.__name__}
"""Placeholder for the schema of a message. In the OpenAPI document, a reference to ``StoredMessage`` replaces it.

Responses contain stored messages without validation, so the response models do not use ``StoredMessage`` itself.
"""

MessageOut = Annotated[dict[str, Any], WithJsonSchema(MESSAGE_PLACEHOLDER)]
