"""Request schema of the AI SDK's `useChat`."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

from pydantic import ConfigDict, Field

from mochi_server.chat.turn import TurnRequest
from mochi_server.frontends.history import UserMessages, position_error
from mochi_server.frontends.runs import FrontendRequest
from mochi_server.models.common import Body
from mochi_server.models.frontends import FrontendOptions, check_text, images_at
from mochi_server.tools.toolbox import Decision

_LAST = "the last message must be a user message, or an assistant message with a response to an approval request"


class UiMessage(Body):
    """A message of the AI SDK. The server uses parts of the types `text` and `file`, and responses to approvals."""

    id: str = Field(default="", description="ID of the message in the client.")
    role: Literal["system", "user", "assistant"]
    parts: list[dict[str, Any]]

    def text(self, position: int) -> str:
        """Return the text of the message. Raise ``ValidationFailed`` for a part without text."""
        texts = []
        for number, part in self._parts("text"):
            if not isinstance(part.get("text"), str):
                raise position_error(position, "must be a string", "parts", number, "text")
            texts.append(part["text"])
        return "\n".join(texts)

    def image_urls(self, position: int) -> list[str]:
        """Return the data URLs of the images. Raise ``ValidationFailed`` for other files."""
        urls = []
        for number, part in self._parts("file"):
            url = part.get("url")
            if not isinstance(url, str) or not url.startswith("data:image/"):
                problem = "must be a data URL of an image; this server accepts no other files"
                raise position_error(position, problem, "parts", number, "url")
            urls.append(url)
        return urls

    def decisions(self, position: int) -> dict[str, Decision]:
        """Return the responses to approval requests. Raise ``ValidationFailed`` for an invalid response."""
        found = {}
        for number, part in enumerate(self.parts):
            if part.get("state") != "approval-responded":
                continue
            match part.get("approval"):
                case {"id": str(confirmation_id), "approved": bool(approved), **rest}:
                    reason = rest.get("reason")
                    found[confirmation_id] = Decision(approved, None, reason if isinstance(reason, str) else None)
                case _:
                    problem = "must have the fields `id` (string) and `approved` (boolean)"
                    raise position_error(position, problem, "parts", number, "approval")
        return found

    def _parts(self, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
        return ((number, part) for number, part in enumerate(self.parts) if part.get("type") == kind)


class AiSdkRequest(FrontendOptions):
    """What `useChat` sends. Only the last message is new; the session has the earlier ones. The other fields are set
    with `body`. Unknown fields are ignored.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"messages": [{"role": "user", "parts": [{"type": "text", "text": "Hello!"}]}]}]
        }
    )

    messages: list[UiMessage] = Field(min_length=1, description="Messages of the chat, oldest first.")
    trigger: Literal["submit-message", "regenerate-message"] = Field(
        default="submit-message", description="Whether to answer a new message or the last user message again."
    )
    message_id: str | None = Field(
        default=None, alias="messageId", description="Message to replace, if it is the last user message."
    )

    async def to_request(self) -> FrontendRequest:
        """Return the decisions or the turn. Raise ``ValidationFailed`` with the position of an invalid message."""
        position, last = len(self.messages) - 1, self.messages[-1]
        decisions = last.decisions(position) if last.role == "assistant" else {}
        if last.role != "user" and not (decisions and self.trigger == "submit-message"):
            raise position_error(position, _LAST)
        if decisions:
            return FrontendRequest(decisions=decisions)
        users = [(number, message) for number, message in enumerate(self.messages) if message.role == "user"]
        turn = TurnRequest(
            message=check_text(last.text(position), position),
            images=await images_at(position, last.image_urls(position)),
            generation=self.generation,
            on_disconnect=self.on_disconnect,
            instructions=self._instructions(),
        )
        texts = UserMessages([m.text(n) for n, m in users], [n for n, _ in users], self._intent(last))
        return FrontendRequest(partial(texts.plan, turn), withdraws=True)

    def _intent(self, last: UiMessage) -> Literal["add", "edit", "regenerate"]:
        if self.trigger == "regenerate-message":
            return "regenerate"
        return "edit" if self.message_id and self.message_id == last.id else "add"

    def _instructions(self) -> str | None:
        system = (message.text(number) for number, message in enumerate(self.messages) if message.role == "system")
        return "\n\n".join(filter(None, system)) or None
