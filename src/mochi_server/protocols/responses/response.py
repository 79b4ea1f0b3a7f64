"""Responses of the Responses API."""

from collections.abc import Sequence
from typing import Any, Literal

from mochi_server.errors import ValidationFailed
from mochi_server.protocols.schemas import MochiExtension
from mochi_server.schemas.common import Schema


class InputTokensDetails(Schema):
    """Cached tokens in the input.

    ``cached_tokens`` is 0 if Ollama reports none; ``cache_write_tokens`` is always 0.
    """

    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(Schema):
    """Number of reasoning tokens in the output.

    It is always 0, because Ollama does not count them separately.
    """

    reasoning_tokens: int


class ResponseUsage(Schema):
    """Ollama's token counts, summed over all requests of the turn."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class InputTokens(Schema):
    """Estimated number of tokens of a request."""

    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: int


class InputItemList(Schema):
    """Items before the output of a response. `has_more` states whether other pages follow."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool

    @classmethod
    def page(
        cls, items: Sequence[dict[str, Any]], after: str | None, limit: int
    ) -> "InputItemList":
        """Return the page of at most ``limit`` items that follows the item with the ID ``after``.

        Raises ``ValidationFailed`` if no item has this ID.
        """
        ids = [item["id"] for item in items]
        if after is not None and after not in ids:
            raise ValidationFailed.at("after", f"the response has no input item {after!r}")
        start = 0 if after is None else ids.index(after) + 1
        data = list(items[start : start + limit])
        return cls(
            data=data,
            first_id=data[0]["id"] if data else None,
            last_id=data[-1]["id"] if data else None,
            has_more=start + limit < len(items),
        )


class ModelResponse(Schema):
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
