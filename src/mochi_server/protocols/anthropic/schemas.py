"""Request and response schemas of Anthropic's Messages API."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field

from mochi_server.models.common import Body, Text, ToolParameters
from mochi_server.protocols import schemas
from mochi_server.sessions.generation_settings import FiniteObject
from mochi_server.util.validation import Items

CUSTOM = (None, "custom")
"""Types of the tools that the client defines. The server leaves out all other tools, because Anthropic defines them."""
_Item = TypeVar("_Item")
_Content = schemas.TextOr[Annotated[Items[_Item], Field(min_length=1)]]


class ImageSource(Body):
    """Data of an image: base64 in ``data``, or a data URL in ``url``."""

    type: Literal["base64", "url"]
    data: str = ""
    url: schemas.DataUrl | None = None


class ImageBlock(Body):
    """An image, for models with `vision`."""

    type: Literal["image"]
    source: ImageSource


class ToolResultBlock(Body):
    """The result of a tool call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: schemas.TextOr[Items[Annotated[schemas.TextPart | ImageBlock, Field(discriminator="type")]]] | None = None
    is_error: bool | None = None


class ToolUseBlock(Body):
    """A tool call of the model."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: FiniteObject


class ThinkingBlock(Body):
    """Reasoning of a model. Only reasoning in clear text has an effect."""

    type: Literal["thinking", "redacted_thinking"]
    thinking: Text = ""


class UserMessage(Body):
    """A message of the user, or results of tool calls."""

    role: Literal["user"]
    content: _Content[Annotated[schemas.TextPart | ImageBlock | ToolResultBlock, Field(discriminator="type")]]


class AssistantMessage(Body):
    """A message of the model."""

    role: Literal["assistant"]
    content: _Content[Annotated[schemas.TextPart | ToolUseBlock | ThinkingBlock, Field(discriminator="type")]]


class Tool(schemas.FunctionTool):
    """A tool that the client runs."""

    type: str | None = None
    parameters: ToolParameters | None = Field(None, alias="input_schema")


class ToolChoice(Body):
    """Whether the model may or must call a tool. `tool` requires a call of the tool ``name``."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Body):
    """Whether the model thinks. The server ignores `budget_tokens`."""

    type: Literal["enabled", "adaptive", "disabled"]


class OutputConfig(Body):
    """Options of the answer. ``effort`` is the level of thinking, if ``thinking`` is enabled."""

    effort: schemas.Effort | None = None
    format: schemas.SchemaText | None = None


class CountRequest(Body):
    """A conversation. A null field counts as absent. Unknown fields, such as `cache_control`, are ignored."""

    model: str = Field(min_length=1, description="Model of Ollama, or `agent:NAME`.")
    messages: Items[Annotated[UserMessage | AssistantMessage, Field(discriminator="role")]] = Field(
        min_length=1, description="The conversation; in a session, its new messages."
    )
    system: schemas.TextOr[Items[schemas.TextPart]] | None = Field(None, description="Instructions for the model.")
    tools: Items[Tool] | None = Field(None, description="Tools that the client runs.")
    tool_choice: ToolChoice | None = Field(None, description="It is enforced for the first answer of the turn.")
    thinking: Thinking | None = Field(None, description="Without this field, the session's default applies.")
    output_config: OutputConfig | None = Field(None, description="Level of thinking, and format of the answer.")


class MessageRequest(
    CountRequest,
    json_schema_extra={
        "examples": [{"model": "qwen3:14b", "max_tokens": 1024, "messages": [{"role": "user", "content": "Hello!"}]}]
    },
):
    """A conversation to answer. A null field counts as absent. Unknown fields are ignored."""

    max_tokens: schemas.TokenLimit = Field(description="Maximum tokens of the answer, with thinking. -1 sets no limit.")
    stream: bool | None = Field(None, description="Stream the answer.")
    temperature: float | None = Field(None, ge=0, le=1, description="Sampling temperature.")
    top_p: float | None = Field(None, ge=0, le=1, description="Nucleus sampling: cumulative probability of candidates.")
    top_k: int | None = Field(None, ge=0, description="Number of candidates for the next token.")
    stop_sequences: Items[str] | None = Field(None, description="Stop sequences. The answer ends before them.")


class MessageResponse(BaseModel):
    """An answer. ``content`` has blocks of the types `thinking`, `text` and `tool_use`."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: Literal["end_turn", "max_tokens", "tool_use"]
    stop_sequence: None
    usage: dict[str, int] = Field(description="Ollama's token counts, summed over all requests of the turn.")
    mochi: schemas.MochiExtension
