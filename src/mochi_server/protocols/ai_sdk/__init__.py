"""UI message stream of the AI SDK: routes under `/chat`, their requests, and the conversion of
requests to turns.
"""

from collections.abc import Iterator
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field

from mochi_server import errors
from mochi_server.chat.turn_input import TurnInput
from mochi_server.constants import API_PREFIX
from mochi_server.dependencies import ServicesDep
from mochi_server.errors import ValidationFailed
from mochi_server.protocols import frontends
from mochi_server.protocols.ai_sdk.encoder import AiSdkEncoder, encode_error
from mochi_server.protocols.conversation import (
    Action,
    SentMessages,
    check_text,
    decode_images,
    new_message,
)
from mochi_server.protocols.schemas import FrontendOptions
from mochi_server.schemas.common import Body
from mochi_server.sessions.images import Location
from mochi_server.sessions.turn import Decision
from mochi_server.util.validation import Items
from mochi_server.web.requests import Protocol, until_disconnect
from mochi_server.web.routes import BodyReleasingRoute


class UiMessage(Body):
    """A message of the AI SDK.

    The server uses parts of the types `text` and `file`, and responses to approvals.
    """

    id: str = Field("", description="ID of the message in the client.")
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
    """Return the responses to approval requests by confirmation ID, if the last message contains
    any.

    Raises ``ValidationFailed`` if there are none and the last message is not from the user.
    """
    position, last = len(request.messages) - 1, request.messages[-1]
    decisions = _decisions(last, position) if last.role == "assistant" else {}
    if last.role != "user" and not (decisions and request.trigger == "submit-message"):
        problem = (
            "must be a user message, or an assistant message with a response to an approval request"
        )
        raise ValidationFailed.at(("messages", position), f"the last message {problem}")
    return decisions


async def parse(request: AiSdkRequest) -> tuple[TurnInput, SentMessages]:
    """Return the options of a request whose last message is from the user, and its messages.

    A request to edit or regenerate must also contain all earlier user messages of the session. Only
    a request to answer the session's last user message again may omit the earlier messages.
    """
    last, message = len(request.messages) - 1, request.messages[-1]
    check_text(_text(message, last), last)
    images = await decode_images(_image_urls(message, last), ("messages", last))
    sent = [(n, m) for n, m in enumerate(request.messages) if m.role != "assistant"]
    action: Action = "edit" if request.message_id and request.message_id == message.id else "add"
    if request.trigger == "regenerate-message":
        action = "regenerate"
    turn = TurnInput(generation=request.generation, on_disconnect=request.on_disconnect)
    messages = [new_message(m.role, _text(m, n)) for n, m in sent]
    return turn, SentMessages(messages, {len(sent) - 1: images}, action, [n for n, _ in sent])


def _text(message: UiMessage, position: int) -> str:
    texts = []
    for number, part in _parts(message, "text"):
        if not isinstance(part.get("text"), str):
            raise ValidationFailed.at(
                ("messages", position, "parts", number, "text"), "must be a string"
            )
        texts.append(part["text"])
    return "\n".join(texts)


def _image_urls(message: UiMessage, position: int) -> dict[Location, str]:
    """Return the data URLs of the images by their paths in the request."""
    urls: dict[Location, str] = {}
    for number, part in _parts(message, "file"):
        url, location = part.get("url"), ("messages", position, "parts", number, "url")
        if not isinstance(url, str) or not url.startswith("data:image/"):
            raise ValidationFailed.at(
                location, "must be a data URL of an image; this server accepts no other files"
            )
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
                found[confirmation_id] = Decision(
                    approved, None, reason if isinstance(reason, str) else None
                )
            case _:
                problem = "must have the fields `id` (string) and `approved` (boolean)"
                raise ValidationFailed.at(
                    ("messages", position, "parts", number, "approval"), problem
                )
    return found


def _parts(message: UiMessage, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
    return ((number, part) for number, part in enumerate(message.parts) if part.get("type") == kind)


router = APIRouter(
    prefix="/chat/{session_id}/ai-sdk", tags=["frontends"], route_class=BodyReleasingRoute
)
_ABOUT = "Chat with the client libraries of the AI SDK (`useChat`) and of AG-UI."
PROTOCOL = Protocol(API_PREFIX, router, encode_error, description=_ABOUT)
_STREAM = "The UI message stream of the AI SDK."
_RESUMED = {204: {"description": "No turn is running."}} | frontends.stream(
    _STREAM, errors.SessionNotFound, errors.ServerLost
)


@router.post("", response_class=Response, responses=frontends.stream(_STREAM))
async def chat_with_ai_sdk(
    session_id: str, request: Request, services: ServicesDep, body: AiSdkRequest
) -> Response:
    """Answer a request of the AI SDK's `useChat`, which contains a message or responses to approval
    requests.
    """
    if decisions := parse_decisions(body):
        starting = frontends.decide(services, session_id, decisions)
    else:
        starting = frontends.start(services, session_id, *await parse(body), withdraws=True)
    encoder = AiSdkEncoder(await until_disconnect(request, starting))
    return frontends.InteractiveResponse(encoder, services.ping_seconds)


@router.get("/{chat_id}/stream", response_class=Response, responses=_RESUMED)
async def resume_ai_sdk(session_id: str, chat_id: str, services: ServicesDep) -> Response:  # noqa: ARG001 - in the path
    """Resume the stream of the running turn from its beginning.

    The server ignores `chat_id`, the AI SDK's chat ID.
    """
    run = await frontends.running(services, session_id)
    if run is None:
        return Response(status_code=204)
    return frontends.InteractiveResponse(AiSdkEncoder(run), services.ping_seconds)
