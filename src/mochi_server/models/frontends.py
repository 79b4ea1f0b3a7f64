"""Parts of requests that the AI SDK and AG-UI share."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from mochi_server.chat.images import read_images
from mochi_server.chat.turn import GenerationOptions
from mochi_server.constants import MAX_IMAGES, MAX_MESSAGE_CHARS
from mochi_server.errors import ValidationFailed
from mochi_server.frontends.history import position_error
from mochi_server.models.common import Body, Format, KeepAlive, Options, ThinkLevel
from mochi_server.sessions.images import Image


class FrontendOptions(Body):
    """Options of a turn. Unknown fields are ignored."""

    think: ThinkLevel | None = Field(
        default=None, description="Reasoning of models that can think: on, off or a level."
    )
    options: Options | None = Field(default=None, description="Ollama's options. They override the session's options.")
    format: Format | None = Field(default=None, description="Format of the answer: `json` or a JSON schema.")
    keep_alive: KeepAlive | None = Field(default=None, description="How long Ollama keeps the model loaded.")
    on_disconnect: Literal["cancel", "continue"] = Field(
        default="cancel", description="`cancel` ends the turn when its last client disconnects. `continue` does not."
    )

    @property
    def generation(self) -> GenerationOptions:
        return GenerationOptions(self.think, self.options, self.format, self.keep_alive)


def check_text(text: str, position: int) -> str:
    """Return the text of the user message to answer. Raise ``ValidationFailed`` if it is blank or too long."""
    if not text.strip():
        raise position_error(position, "the user message has no text")
    if len(text) > MAX_MESSAGE_CHARS:
        raise position_error(position, f"the text has more than {MAX_MESSAGE_CHARS} characters")
    return text


async def images_at(position: int, urls: Sequence[str]) -> tuple[Image, ...]:
    """Decode the images of a message. Raise ``ValidationFailed`` with the position of the message."""
    if len(urls) > MAX_IMAGES:
        raise position_error(position, f"the message has {len(urls)} images, and the limit is {MAX_IMAGES}")
    try:
        return await read_images(urls)
    except ValidationFailed as error:
        raise position_error(position, error.message) from error
