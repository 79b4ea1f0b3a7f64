"""Schemas of system prompt files."""

from pydantic import Field

from mochi_server.constants import MAX_PROMPT_CHARS
from mochi_server.schemas.common import Schema, StrictBody
from mochi_server.services.system_prompts import PromptEntry
from mochi_server.util.validation import NOT_BLANK


class PromptContent(StrictBody):
    """New text of a prompt file.

    It must not be blank and must have fewer than 10,000 characters.
    """

    content: str = Field(
        description="Text of the prompt.",
        json_schema_extra={**NOT_BLANK, "maxLength": MAX_PROMPT_CHARS - 1},
    )


class PromptFile(PromptContent):
    """A prompt file: its name and its text."""

    filename: str = Field(
        json_schema_extra={"pattern": r"\.(md|txt)$", "maxLength": 200},
        examples=["helpful.md"],
        description="File name without a directory. It ends in `.md` or `.txt`.",
    )


class PromptList(Schema):
    """All prompt files, sorted by name."""

    prompts: list[PromptEntry]
