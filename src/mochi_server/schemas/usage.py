"""Schemas of the usage of API keys."""

from pydantic import Field

from mochi_server.schemas.common import Schema


class UsageLimits(Schema, from_attributes=True):
    """Limits of an API key. Null is no limit."""

    turns_at_a_time: int | None
    turns_per_minute: int | None
    tokens_per_day: int | None


class UsageEntry(Schema):
    """Usage of one API key and model on one day in UTC, as Ollama counts it."""

    day: str = Field(examples=["2027-01-31"])
    key: str = Field(description="Name of the API key.")
    model: str
    requests: int = Field(description="Number of complete answers and batches of embeddings.")
    prompt_tokens: int = Field(description="Tokens of prompts that were not in Ollama's cache.")
    answer_tokens: int


class UsageReport(Schema):
    """Usage of the API key of the request or, for the scope `all`, of all keys."""

    key: str | None = Field(description="Name of the API key of the request.")
    limits: UsageLimits = Field(description="Limits of this key.")
    tokens_today: int = Field(description="Tokens of this key since midnight UTC.")
    usage: list[UsageEntry] = Field(description="Usage by day, key and model, the newest first.")
