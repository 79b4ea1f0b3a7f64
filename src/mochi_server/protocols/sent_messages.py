"""Messages that a client sent, in the format of stored messages."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import orjson

from mochi_server.constants import MAX_ARGUMENT_LEVELS, MAX_IMAGES, MAX_MESSAGE_CHARS
from mochi_server.errors import ValidationFailed
from mochi_server.protocols.parts import Notice
from mochi_server.sessions.attachments import Attachment
from mochi_server.sessions.images import Location, read_images
from mochi_server.sessions.serialization import is_nested_deeper
from mochi_server.sessions.session import ChatSession, user_message
from mochi_server.sessions.types import (
    AssistantMessage,
    Blob,
    FiniteObject,
    Image,
    Message,
    Role,
    ToolCall,
    ToolMessage,
    tool_calls_of,
)
from mochi_server.util.clock import new_id, now

Action = Literal["add", "regenerate", "edit", "compare", "compare_all"]
"""What the client asks for.

``compare`` and ``compare_all``: the server works it out from the messages.
"""


SentArguments = str | FiniteObject | list[Any] | None
"""Arguments of a tool call as clients send them: an object, its JSON text, or neither of them."""
_INVALID_ARGUMENTS = f"are not a JSON object, or nested deeper than {MAX_ARGUMENT_LEVELS} levels"


@dataclass(frozen=True, slots=True)
class SentMessages:
    """Messages of a request in the stored format, oldest first. There is at least one."""

    messages: Sequence[Message]
    images: Mapping[int, tuple[Image, ...]] = field(default_factory=dict)
    """Images of each message that has any, by its index."""
    action: Action = "compare"
    positions: Sequence[int] | None = None
    """Position in the request of each message, for errors.

    If it is None, errors contain only the field's name.
    """
    check: Callable[[ChatSession], None] = lambda _: None
    """Function that raises ``ValidationFailed`` if a new request does not fit the session."""
    attachments: Mapping[int, tuple[Attachment, ...]] = field(default_factory=dict)
    """Files of each message that has any, by its index."""
    notices: Sequence[Notice] = ()
    """Notices about contents of the request that the model does not receive as they were sent."""

    @property
    def with_references(self) -> list[Message]:
        """Messages of the request, with references to their images and files.

        System messages get no images, and only user messages get files.
        """
        messages = list(self.messages)
        for index, images in self.images.items():
            message = messages[index].copy()
            if images and message["role"] != "system":
                message["images"] = [image.reference for image in images]
                messages[index] = message
        for index, attachments in self.attachments.items():
            asked = messages[index]
            if attachments and asked["role"] == "user":
                files = [attachment.reference for attachment in attachments]
                messages[index] = {**asked, "attachments": files}
        return messages

    @property
    def last_index(self) -> int:
        """Index of the last message, except system messages at the end, or 0.

        A client may send instructions there.
        """
        for index in range(len(self.messages) - 1, 0, -1):
            if self.messages[index]["role"] != "system":
                return index
        return 0

    @property
    def last_user_index(self) -> int | None:
        """Index of the last user message, or None if there is none or an assistant message follows
        it.
        """
        for index in range(len(self.messages) - 1, -1, -1):
            match self.messages[index]["role"]:
                case "user":
                    return index
                case "assistant":
                    return None
        return None

    @property
    def new_images(self) -> tuple[Image, ...]:
        """Images of the new user message, if there is one."""
        index = self.last_user_index
        return () if index is None else self.images.get(index, ())

    @property
    def blobs(self) -> list[Blob]:
        """Images and files of all messages."""
        blobs: list[Blob] = [*chain.from_iterable(self.images.values())]
        for attachment in chain.from_iterable(self.attachments.values()):
            blobs.extend(attachment.blobs)
        return blobs

    def error(self, problem: str, index: int = -1) -> ValidationFailed:
        """Return the error for the message at ``index``, which is the last one by default."""
        if self.positions is None:
            return ValidationFailed.at("messages", problem)
        return ValidationFailed.at(("messages", self.positions[index]), problem)


def new_message(role: Role, content: str) -> Message:
    match role:
        case "system":
            return {
                "role": "system",
                "content": content,
                "message_id": new_id(),
                "timestamp": now(),
            }
        case "user":
            return user_message(content)
        case "assistant":
            return new_answer(content)
        case "tool":
            return new_result(content)


def new_answer(content: str) -> AssistantMessage:
    return {"role": "assistant", "content": content, "message_id": new_id(), "timestamp": now()}


def new_result(content: str) -> ToolMessage:
    return {"role": "tool", "content": content, "message_id": new_id(), "timestamp": now()}


@dataclass(frozen=True, slots=True)
class CallReader:
    """Converter of the tool calls of a conversation.

    A model can write arguments that are not valid, and its client repeats them with each request.
    Such arguments become an empty object.
    """

    invalid: list[str] = field(default_factory=list)
    """IDs of the calls with invalid arguments."""

    def tool_call(self, index: int, call_id: str, name: str, arguments: SentArguments) -> ToolCall:
        """Return the tool call at position ``index`` of a message.

        ``arguments`` is an object or its JSON text. Otherwise, add the call to ``invalid``.
        """
        parsed: Any = arguments or {}
        if isinstance(parsed, str):
            with suppress(orjson.JSONDecodeError):
                parsed = orjson.loads(parsed)
        if not isinstance(parsed, dict) or is_nested_deeper(parsed, MAX_ARGUMENT_LEVELS):
            self.invalid.append(call_id)
            parsed = {}
        return {"id": call_id, "function": {"index": index, "name": name, "arguments": parsed}}

    def notices(self, messages: Sequence[Message]) -> list[Notice]:
        """Return a notice for each call with invalid arguments.

        Raises ``ValidationFailed`` if the last message has such a call.
        """
        newest = names_of_calls(messages[-1:])
        notices = []
        for call_id in self.invalid:
            text = f"the arguments of call {call_id!r} {_INVALID_ARGUMENTS}"
            if call_id in newest:
                raise ValidationFailed.at("messages", text)
            message = f"In an earlier message, {text}. The model received an empty object instead."
            notices.append(Notice("warning", {"code": "ARGUMENTS_INVALID", "message": message}))
        return notices


def names_of_calls(messages: Iterable[Message]) -> dict[str, str]:
    """Return the names of the tools that messages call, by the IDs of the calls."""
    names = {}
    for message in messages:
        for call in tool_calls_of(message):
            names[call.get("id", "")] = call["function"]["name"]
    return names


def add_tool_names(messages: Iterable[Message]) -> None:
    """Add the names of the tools to the results of tool calls that earlier messages contain."""
    names: dict[str, str] = {}
    for message in messages:
        names |= names_of_calls([message])
        if message["role"] == "tool":
            name = names.get(message.get("tool_call_id", ""))
            if name:
                message["tool_name"] = name


async def decode_images(urls: Mapping[Location, str], message: Location) -> tuple[Image, ...]:
    """Decode the images of a message. ``urls`` maps their paths to data URLs.

    Raises ``ValidationFailed`` at their own path, or at ``message`` if there are too many.
    """
    if len(urls) > MAX_IMAGES:
        raise ValidationFailed.at(
            message, f"the message has {len(urls)} images, and the limit is {MAX_IMAGES}"
        )
    return await read_images(urls)


def check_text(text: str, position: int) -> None:
    """Raise ``ValidationFailed`` if the text of the user message at index ``position`` is blank or
    too long.
    """
    if not text.strip():
        raise ValidationFailed.at(("messages", position), "the user message has no text")
    if len(text) > MAX_MESSAGE_CHARS:
        raise ValidationFailed.at(
            ("messages", position), f"the text has more than {MAX_MESSAGE_CHARS} characters"
        )
