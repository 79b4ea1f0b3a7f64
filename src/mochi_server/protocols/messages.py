"""Parts of a turn's input that the parsers of all protocols build: stored messages, tool calls, tools and images."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from mochi_server.chat.images import Location, read_images
from mochi_server.constants import MAX_ARGUMENT_LEVELS, MAX_IMAGES, MAX_MESSAGE_CHARS
from mochi_server.errors import ValidationFailed
from mochi_server.sessions.images import Image
from mochi_server.sessions.serialization import is_nested_deeper
from mochi_server.sessions.types import Message, Role, ToolCall
from mochi_server.util.clock import new_id, now


def new_message(role: Role, content: str) -> Message:
    return {"role": role, "content": content, "message_id": new_id(), "timestamp": now()}


def tool_call(index: int, call_id: str, name: str, arguments: str | dict[str, Any]) -> ToolCall:
    """Return a tool call. ``index`` is its position in the message. ``arguments`` is an object or its JSON text.

    Raises ``ValidationFailed`` if the arguments are not a JSON object, or nested too deeply.
    """
    parsed: Any = arguments
    try:
        if isinstance(arguments, str):
            parsed = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ValidationFailed.at("messages", f"the arguments of call {call_id!r} are not a JSON object")
    if is_nested_deeper(parsed, MAX_ARGUMENT_LEVELS):
        reason = f"the arguments of call {call_id!r} are nested deeper than {MAX_ARGUMENT_LEVELS} levels"
        raise ValidationFailed.at("messages", reason)
    return {"id": call_id, "function": {"index": index, "name": name, "arguments": parsed}}


def add_tool_names(messages: Iterable[Message]) -> None:
    """Add the names of the tools to the results of tool calls that earlier messages contain."""
    names: dict[str, str] = {}
    for message in messages:
        names |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls") or ()}
        if message["role"] == "tool" and (name := names.get(message["tool_call_id"])):
            message["tool_name"] = name


def unknown_call(call_id: str) -> str:
    """Return the error message for the result of a tool call that no earlier message contains."""
    return f"no earlier message has a tool call with the ID {call_id!r}"


def tool_schema(name: str, description: str | None, parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the schema of a client's tool in Ollama's format."""
    schema = {"type": "object", "properties": {}} | dict(parameters or {})
    return {"type": "function", "function": {"name": name, "description": description or "", "parameters": schema}}


async def decode_images(urls: Mapping[Location, str], message: Location) -> tuple[Image, ...]:
    """Decode the images of the message at the path ``message``. ``urls`` maps their paths to data URLs.

    Raise ``ValidationFailed`` if an image is invalid or there are too many.
    """
    if len(urls) > MAX_IMAGES:
        raise ValidationFailed.at(message, f"the message has {len(urls)} images, and the limit is {MAX_IMAGES}")
    return await read_images(urls)


def check_text(text: str, position: int) -> str:
    """Return ``text``, the text of the user message at index ``position``.

    Raise ``ValidationFailed`` if the text is blank or too long.
    """
    if not text.strip():
        raise ValidationFailed.at(("messages", position), "the user message has no text")
    if len(text) > MAX_MESSAGE_CHARS:
        raise ValidationFailed.at(("messages", position), f"the text has more than {MAX_MESSAGE_CHARS} characters")
    return text
