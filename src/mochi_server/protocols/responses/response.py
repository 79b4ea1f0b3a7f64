"""Responses of the Responses API."""

from typing import Any, Literal

from pydantic import BaseModel

from mochi_server.protocols.schemas import MochiExtension


class InputTokensDetails(BaseModel):
    """Cached tokens in the input.

    ``cached_tokens`` is 0 if Ollama reports none; ``cache_write_tokens`` is always 0.
    """

    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(BaseModel):
    """Number of reasoning tokens in the output.

    It is always 0, because Ollama does not count them separately.
    """

    reasoning_tokens: int


class ResponseUsage(BaseModel):
    """Ollama's token counts, summed over all requests of the turn."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ModelResponse(BaseModel):
    """A response.

    ``output`` has `reasoning`, `message` and `function_call`. Fields of the request are repeated.
    """

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
    error: dict[str, Any] | None
    incomplete_details: dict[str, Any] | None
    model: str
    output: list[dict[str, Any]]
    usage: ResponseUsage | None
    store: bool
    mochi: MochiExtension | None = None
