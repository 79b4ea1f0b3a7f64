"""Schemas of system prompt files."""

from pydantic import BaseModel, Field

from mochi_server.constants import MAX_PROMPT_CHARS
from mochi_server.models.common import SAYS_SOMETHING, StrictBody


class PromptContent(StrictBody):
    """A new text for a prompt file; not blank, under 10,000 characters."""

    content: str = Field(
        description="The text.", json_schema_extra={**SAYS_SOMETHING, "maxLength": MAX_PROMPT_CHARS - 1}
    )


class PromptFile(PromptContent):
    """A prompt file: a plain name that ends in ``.md`` or ``.txt``, and its text."""

    filename: str = Field(
        json_schema_extra={"pattern": r"\.(md|txt)$", "maxLength": 200},
        examples=["helpful.md"],
        description="A plain name that ends in `.md` or `.txt`.",
    )


class PromptEntry(BaseModel):
    """A prompt file as the list shows it."""

    filename: str
    preview: str
    word_count: int


class PromptList(BaseModel):
    """All prompt files by name."""

    prompts: list[PromptEntry]
