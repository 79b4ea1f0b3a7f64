"""Responses of Anthropic's Messages API."""

from typing import Any, Literal

from pydantic import Field

from mochi_server.protocols.schemas import MochiExtension
from mochi_server.schemas.common import Schema


class MessageResponse(Schema):
    """An answer. ``content`` has blocks of the types `thinking`, `text` and `tool_use`."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: Literal["end_turn", "max_tokens", "tool_use"]
    stop_sequence: None
    usage: dict[str, int | None] = Field(
        description="Ollama's token counts, summed over all requests of the turn. "
        "`cache_read_input_tokens` is null if Ollama does not report cached tokens."
    )
    mochi: MochiExtension
