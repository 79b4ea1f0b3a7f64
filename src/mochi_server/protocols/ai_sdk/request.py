"""Requests of the AI SDK's `useChat`, and their conversion to turns."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from mochi_server.chat.turn_input import TurnInput
from mochi_server.errors import ValidationFailed
from mochi_server.protocols.frontends import FrontendOptions
from mochi_server.protocols.sent_messages import (
    Action,
    SentMessages,
    check_text,
    decode_images,
    new_message,
)
from mochi_server.schemas.common import Body
from mochi_server.services.attachments import DEFAULT_NAME, EncodedFile, read_attachments
from mochi_server.sessions.images import Location
from mochi_server.sessions.turn import Decision
from mochi_server.util.validation import Items


class UiMessage(Body):
    """A message of the AI SDK.

    The server uses parts of the types `text` and `file`, and responses to approvals.
    """

    id: str = Field(
        "", description="ID of the message in the client. The same message is answered once."
    )
    role: Literal["system", "user", "assistant"]
    parts: Items[dict[str, Any]]


_EXAMPLE = {"messages": [{"role": "user", "parts": [{"type": "text", "text": "Hello!"}]}]}


class AiSdkRequest(FrontendOptions, json_schema_extra={"examples": [_EXAMPLE]}):
    """Request that `useChat` sends.

    Only the last message is new. The session already has the earlier messages. To set
    options of the turn, such as `think`, use the `body` option of the AI SDK. Unknown fields are
    ignored.
    """

    messages: Items[UiMessage] = Field(
        min_length=1, description="Messages of the chat, oldest first."
    )
    trigger: Literal["submit-message", "regenerate-message"] = Field(
        "submit-message", description="Kind of request."
    )
    message_id: str | None = Field(
        None, alias="messageId", description="The last user message, to replace it."
    )


def parse_decisions(request: AiSdkRequest) -> dict[str, Decision]:
    """Return the responses to approval requests in the last message, by confirmation ID.

    They are empty if the last message is from the user. Otherwise it must be an assistant message
    with responses. Raises ``ValidationFailed`` if it is not, for malformed responses, and for
    responses in a request to regenerate.
    """
    position = len(request.messages) - 1
    last = request.messages[position]
    if last.role == "user":
        return {}
    decisions = _decisions(last, position) if last.role == "assistant" else {}
    if not decisions or request.trigger != "submit-message":
        problem = (
            "must be a user message, or an assistant message with a response to an approval request"
        )
        raise ValidationFailed.at(("messages", position), f"the last message {problem}")
    return decisions


async def parse(request: AiSdkRequest) -> tuple[TurnInput, SentMessages]:
    """Return the options of a request, and its messages other than answers.

    The last message is from the user, as an empty result of ``parse_decisions`` ensures. Its text
    and files are in the messages only, which ``frontends.start`` compares with the session. Raises
    ``ValidationFailed`` for invalid texts and files.
    """
    last = len(request.messages) - 1
    message = request.messages[last]
    check_text(_text(message, last), last)
    urls, files = _files(message, last)
    images = await decode_images(urls, ("messages", last))
    attachments = await read_attachments(files)
    messages = []
    positions = []
    for position, each in enumerate(request.messages):
        if each.role != "assistant":
            messages.append(new_message(each.role, _text(each, position)))
            positions.append(position)
    action = _action(request)
    turn = TurnInput(
        generation=request.generation,
        on_disconnect=request.on_disconnect or "cancel",
        # The space keeps it apart from the keys of the native API.
        key=f"ai-sdk {message.id}" if message.id and action == "add" else None,
    )
    sent = SentMessages(
        messages,
        {len(messages) - 1: images},
        action,
        positions,
        attachments={len(messages) - 1: attachments},
    )
    return turn, sent


def _action(request: AiSdkRequest) -> Action:
    """Return the action. A ``messageId`` counts only if it is that of the last message."""
    if request.trigger == "regenerate-message":
        return "regenerate"
    if request.message_id and request.message_id == request.messages[-1].id:
        return "edit"
    return "add"


def _text(message: UiMessage, position: int) -> str:
    texts = []
    for number, part in _parts_of_type(message, "text"):
        text = part.get("text")
        if not isinstance(text, str):
            location: Location = ("messages", position, "parts", number, "text")
            raise ValidationFailed.at(location, "must be a string")
        texts.append(text)
    return "\n".join(texts)


def _files(
    message: UiMessage, position: int
) -> tuple[dict[Location, str], dict[Location, EncodedFile]]:
    """Return the data URLs of the images, and the other files, by their paths in the request."""
    images: dict[Location, str] = {}
    files: dict[Location, EncodedFile] = {}
    for number, part in _parts_of_type(message, "file"):
        location: Location = ("messages", position, "parts", number, "url")
        url = part.get("url")
        if not isinstance(url, str) or not url.startswith("data:"):
            raise ValidationFailed.at(
                location, "must be a data URL; this server does not download files"
            )
        if url.startswith("data:image/"):
            images[location] = url
            continue
        name = part.get("filename")
        files[location] = EncodedFile(name if isinstance(name, str) else DEFAULT_NAME, url)
    return images, files


def _decisions(message: UiMessage, position: int) -> dict[str, Decision]:
    decisions = {}
    for number, part in enumerate(message.parts):
        if part.get("state") != "approval-responded":
            continue
        match part.get("approval"):
            case {"id": str(confirmation_id), "approved": bool(approved), **rest}:
                reason = rest.get("reason")
                if not isinstance(reason, str):
                    reason = None
                decisions[confirmation_id] = Decision(approved, reason=reason)
            case _:
                problem = "must have the fields `id` (string) and `approved` (boolean)"
                location: Location = ("messages", position, "parts", number, "approval")
                raise ValidationFailed.at(location, problem)
    return decisions


def _parts_of_type(message: UiMessage, part_type: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, part in enumerate(message.parts):
        if part.get("type") == part_type:
            yield number, part
