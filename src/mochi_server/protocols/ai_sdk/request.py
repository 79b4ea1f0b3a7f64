"""Requests of the AI SDK, and their conversion to the input of a turn or to decisions for tool calls."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from mochi_server.chat.turn_input import Location, TurnInput
from mochi_server.errors import ValidationFailed
from mochi_server.models.common import Body
from mochi_server.protocols.conversation import Action, SentMessages, check_text, decode_images, new_message
from mochi_server.protocols.schemas import FrontendOptions
from mochi_server.tools.toolbox import Decision
from mochi_server.util.validation import Items


class UiMessage(Body):
    """A message of the AI SDK. The server uses parts of the types `text` and `file`, and responses to approvals."""

    id: str = Field("", description="ID of the message in the client.")
    role: Literal["system", "user", "assistant"]
    parts: Items[dict[str, Any]]


_EXAMPLE = {"messages": [{"role": "user", "parts": [{"type": "text", "text": "Hello!"}]}]}


class AiSdkRequest(FrontendOptions, json_schema_extra={"examples": [_EXAMPLE]}):
    """Request that `useChat` sends. Only the last message is new. The session already has the earlier messages. To set
    options of the turn, such as `think`, use the `body` option of the AI SDK. Unknown fields are ignored.
    """

    messages: Items[UiMessage] = Field(min_length=1, description="Messages of the chat, oldest first.")
    trigger: Literal["submit-message", "regenerate-message"] = Field("submit-message", description="Kind of request.")
    message_id: str | None = Field(None, alias="messageId", description="The last user message, to replace it.")


_LAST = "the last message must be a user message, or an assistant message with a response to an approval request"


def parse_decisions(request: AiSdkRequest) -> dict[str, Decision]:
    """Return the responses to approval requests by confirmation ID, if the last message contains any.

    Raises ``ValidationFailed`` if there are none and the last message is not from the user.
    """
    position, last = len(request.messages) - 1, request.messages[-1]
    decisions = _decisions(last, position) if last.role == "assistant" else {}
    if last.role != "user" and not (decisions and request.trigger == "submit-message"):
        raise ValidationFailed.at(("messages", position), _LAST)
    return decisions


async def parse(request: AiSdkRequest) -> tuple[TurnInput, SentMessages]:
    """Return the options of a request whose last message is from the user, and its messages.

    A request to edit or regenerate must also contain all earlier user messages of the session. Only a request to
    answer the session's last user message again may omit the earlier messages.
    """
    last, message = len(request.messages) - 1, request.messages[-1]
    check_text(_text(message, last), last)
    images = await decode_images(_image_urls(message, last), ("messages", last))
    sent = [(n, m) for n, m in enumerate(request.messages) if m.role != "assistant"]
    turn = TurnInput(generation=request.generation, on_disconnect=request.on_disconnect)
    return turn, SentMessages(
        [new_message(m.role, _text(m, n)) for n, m in sent],
        {len(sent) - 1: images},
        _action(request),
        [n for n, _ in sent],
    )


def _action(request: AiSdkRequest) -> Action:
    if request.trigger == "regenerate-message":
        return "regenerate"
    return "edit" if request.message_id and request.message_id == request.messages[-1].id else "add"


def _text(message: UiMessage, position: int) -> str:
    texts = []
    for number, part in _parts(message, "text"):
        if not isinstance(part.get("text"), str):
            raise ValidationFailed.at(("messages", position, "parts", number, "text"), "must be a string")
        texts.append(part["text"])
    return "\n".join(texts)


def _image_urls(message: UiMessage, position: int) -> dict[Location, str]:
    """Return the data URLs of the images by their paths in the request."""
    urls: dict[Location, str] = {}
    for number, part in _parts(message, "file"):
        url, location = part.get("url"), ("messages", position, "parts", number, "url")
        if not isinstance(url, str) or not url.startswith("data:image/"):
            raise ValidationFailed.at(location, "must be a data URL of an image; this server accepts no other files")
        urls[location] = url
    return urls


def _decisions(message: UiMessage, position: int) -> dict[str, Decision]:
    found = {}
    for number, part in enumerate(message.parts):
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


def _parts(message: UiMessage, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
    return ((number, part) for number, part in enumerate(message.parts) if part.get("type") == kind)
