"""Parts of requests that the AI SDK and AG-UI share."""

from pydantic import Field

from mochi_server.chat.turn import GenerationOptions
from mochi_server.constants import MAX_MESSAGE_CHARS
from mochi_server.errors import ValidationFailed
from mochi_server.models.common import Body, OnDisconnect, Options
from mochi_server.sessions.generation_settings import Format, KeepAlive, Think


class FrontendOptions(Body):
    """Options of a turn. Unknown fields are ignored."""

    think: Think = None
    options: Options | None = Field(default=None, description="Ollama's options. They override the session's options.")
    format: Format | None = Field(default=None, description="Format of the answer: `json` or a JSON schema.")
    keep_alive: KeepAlive = Field(default=None, description="How long Ollama keeps the model loaded.")
    on_disconnect: OnDisconnect = "cancel"

    @property
    def generation(self) -> GenerationOptions:
        return GenerationOptions(self.think, self.options, self.format, self.keep_alive)


def check_text(text: str, position: int) -> str:
    """Return ``text``, the text of the user message at index ``position``.

    Raise ``ValidationFailed`` if the text is blank or too long.
    """
    if not text.strip():
        raise ValidationFailed.at(("messages", position), "the user message has no text")
    if len(text) > MAX_MESSAGE_CHARS:
        raise ValidationFailed.at(("messages", position), f"the text has more than {MAX_MESSAGE_CHARS} characters")
    return text
