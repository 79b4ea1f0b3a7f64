"""Request schema of the AI SDK's `useChat`."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from pydantic import ConfigDict, Field

from mochi_server.chat.images import Location
from mochi_server.chat.turn import TurnRequest
from mochi_server.errors import ValidationFailed
from mochi_server.frontends.runs import FrontendRequest, TurnPlan
from mochi_server.models.common import Body, decode_images
from mochi_server.models.frontends import FrontendOptions, check_text
from mochi_server.sessions.images import images_of
from mochi_server.sessions.session import ChatSession
from mochi_server.tools.toolbox import Decision
from mochi_server.util.first_error import Items

_LAST = "the last message must be a user message, or an assistant message with a response to an approval request"


class UiMessage(Body):
    """A message of the AI SDK. The server uses parts of the types `text` and `file`, and responses to approvals."""

    id: str = Field("", description="ID of the message in the client.")
    role: Literal["system", "user", "assistant"]
    parts: Items[dict[str, Any]]

    def text(self, position: int) -> str:
        texts = []
        for number, part in self._parts("text"):
            if not isinstance(part.get("text"), str):
                raise ValidationFailed.at(("messages", position, "parts", number, "text"), "must be a string")
            texts.append(part["text"])
        return "\n".join(texts)

    def image_urls(self, position: int) -> dict[Location, str]:
        """Return the data URLs of the images by their paths in the request."""
        urls: dict[Location, str] = {}
        for number, part in self._parts("file"):
            url, location = part.get("url"), ("messages", position, "parts", number, "url")
            if not isinstance(url, str) or not url.startswith("data:image/"):
                problem = "must be a data URL of an image; this server accepts no other files"
                raise ValidationFailed.at(location, problem)
            urls[location] = url
        return urls

    def decisions(self, position: int) -> dict[str, Decision]:
        """Return the responses to approval requests."""
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
                    raise ValidationFailed.at(("messages", position, "parts", number, "approval"), problem)
        return found

    def _parts(self, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
        return ((number, part) for number, part in enumerate(self.parts) if part.get("type") == kind)


class AiSdkRequest(FrontendOptions):
    """Request that `useChat` sends. Only the last message is new. The session already has the earlier messages. To set
    options of the turn, such as `think`, use the `body` option of the AI SDK. Unknown fields are ignored.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"messages": [{"role": "user", "parts": [{"type": "text", "text": "Hello!"}]}]}]
        }
    )

    messages: Items[UiMessage] = Field(min_length=1, description="Messages of the chat, oldest first.")
    trigger: Literal["submit-message", "regenerate-message"] = Field(
        "submit-message", description="Whether to answer a new message or the last user message again."
    )
    message_id: str | None = Field(
        None, alias="messageId", description="Message to replace, if it is the last user message."
    )

    async def to_request(self) -> FrontendRequest:
        """Convert the request to decisions for tool calls, or to a turn. Raises ``ValidationFailed``."""
        position, last = len(self.messages) - 1, self.messages[-1]
        decisions = last.decisions(position) if last.role == "assistant" else {}
        if last.role != "user" and not (decisions and self.trigger == "submit-message"):
            raise ValidationFailed.at(("messages", position), _LAST)
        if decisions:
            return FrontendRequest(decisions=decisions)
        system = (message.text(number) for number, message in enumerate(self.messages) if message.role == "system")
        turn = TurnRequest(
            message=check_text(last.text(position), position),
            images=await decode_images(last.image_urls(position), ("messages", position)),
            generation=self.generation,
            on_disconnect=self.on_disconnect,
            instructions="\n\n".join(filter(None, system)) or None,
        )
        texts = {number: m.text(number) for number, m in enumerate(self.messages) if m.role == "user"}
        return FrontendRequest(partial(self._plan, turn, texts), withdraws=True)

    def _plan(self, turn: TurnRequest, texts: dict[int, str], session: ChatSession) -> TurnPlan:
        """Return the turn that answers the last message. ``texts`` maps positions of user messages to their texts.

        A request to edit or regenerate must also contain all earlier user messages of the session. Only a request to
        answer the session's last user message again may omit the earlier messages.
        """
        last, regenerates = len(self.messages) - 1, self.trigger == "regenerate-message"
        if not regenerates and not (self.message_id and self.message_id == self.messages[last].id):
            return TurnPlan(turn)
        again = replace(turn, message=None, images=())
        stored = [(index, m) for index, m in enumerate(session.history) if m["role"] == "user"]
        is_latest = bool(stored) and len(texts) in (1, len(stored)) and stored[-1][1]["content"] == texts[last]
        if regenerates and is_latest:
            return TurnPlan(again)
        for number, (position, text) in enumerate(texts.items()):
            is_edited = position == last and not regenerates
            if number >= len(stored) or not (is_edited or stored[number][1]["content"] == text):
                problem = "the session does not have this user message at this position"
                raise ValidationFailed.at(("messages", position), problem)
        index, message = stored[len(texts) - 1]
        if turn.images and [image.sha256 for image in turn.images] != images_of(message):
            raise ValidationFailed.at(("messages", last), "the images of a stored message cannot be changed")
        return TurnPlan(again, (index, texts[last]))
