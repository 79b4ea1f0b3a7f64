"""Requests of the Responses API: the responses and the items that they refer to, and the input of a turn."""

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

import orjson

from mochi_server.chat.turn_input import Location, TurnInput
from mochi_server.errors import ValidationFailed
from mochi_server.protocols.conversation import SentMessages, add_tool_names, decode_images, new_message, tool_call
from mochi_server.protocols.responses import schemas
from mochi_server.protocols.schemas import MochiHeaders, RefusalPart, tool_selection
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message, Role

_MAX_BYTES = 32 * 1024 * 1024


def response_id(session_id: str | None, position: int, run_id: str) -> str:
    """Return the ID of a response. In a session, it contains the index of the first message of the turn."""
    return f"resp_{token_hex(12)}" if session_id is None else f"resp_{session_id}_{position}_{run_id}"


def check_previous_response(previous: str | None, session: ChatSession) -> None:
    """Raise ``ValidationFailed`` unless ``previous`` is None or the ID of the session's latest response.

    A turn without a complete answer does not count, so that a client can repeat its request after a failure.
    """
    if previous is None:
        return
    match = re.fullmatch(rf"resp_{session.session_id}_([0-9]{{1,9}})(_.*)?", previous)
    if match is None or int(match[1]) > len(session.history) or not _is_latest(session, int(match[1])):
        problem = f"{previous!r} is not the latest response of the session {session.session_id!r}; send the ID of that"
        raise ValidationFailed.at("previous_response_id", problem)


def _is_latest(session: ChatSession, start: int) -> bool:
    """Return whether no turn after the one that begins at index ``start`` has a complete answer."""
    is_answered = is_later = False
    client_tool_calls: set[str] = set()
    for message in session.history[start:]:
        calls_of_client = message.get("client_tool_calls") or ()
        if message["role"] == "assistant":
            # Calls that the client runs end the turn. After other calls, the turn continues.
            ends_turn = not message.get("interrupted") and (calls_of_client or not message.get("tool_calls"))
            if is_later and ends_turn:
                return False
            is_answered = True
            client_tool_calls.update(calls_of_client)
        elif is_answered and (message["role"] == "user" or message.get("tool_call_id") in client_tool_calls):
            is_later = True
    return True


class ResponseItems:
    """Output items of recent responses. If the items exceed ``max_bytes``, the oldest are dropped.

    Some clients send the ID of an item instead of the item, as the AI SDK does by default.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._items: OrderedDict[str, bytes] = OrderedDict()

    def add(self, items: Iterable[dict[str, Any]]) -> None:
        for item in items:
            self._items[item["id"]] = encoded = orjson.dumps(item)
            self._size += len(encoded)
        while self._size > self._max_bytes:
            self._size -= len(self._items.popitem(last=False)[1])

    def get(self, item_id: str) -> dict[str, Any] | None:
        """Return an item, or None if it is unknown."""
        encoded = self._items.get(item_id)
        return None if encoded is None else orjson.loads(encoded)


PARAMETERS = {"messages": "input", "response_format": "text.format"}
"""Mapping of field names in chat completion requests to the names of the same fields in the Responses API."""

_NO_SESSION = "responses are not stored; name a session in the header X-Mochi-Session, or send the whole conversation"
_UNKNOWN_ITEM = "is not in the server's memory; send the item itself, or set `store` to false in the client"


async def parse(
    request: schemas.ResponseRequest, headers: MochiHeaders, items: ResponseItems
) -> tuple[TurnInput, SentMessages]:
    """Return the options of a request and its messages. ``items`` has the items that the request refers to by ID.

    Raises ``ValidationFailed`` for an invalid or unknown item.
    """
    is_session = request.session_id(headers) is not None
    if request.previous_response_id is not None and not is_session:
        raise ValidationFailed.at("previous_response_id", _NO_SESSION)
    text_format = request.text.format if request.text else None
    tools = [tool.to_ollama() for tool in request.tools or ()]
    turn = request.turn(
        headers,
        tool_selection(headers, tools, request.tool_choice, parallel=request.parallel_tool_calls),
        limit=request.max_output_tokens,
        answer_format=text_format.to_ollama() if text_format else None,
    )
    return turn, await _messages(request, items, is_session=is_session)


async def _messages(request: schemas.ResponseRequest, items: ResponseItems, *, is_session: bool) -> SentMessages:
    reader = _ItemReader([new_message("system", request.instructions)] if request.instructions else [])
    if isinstance(request.input, str):
        reader.messages.append(new_message("user", request.input))
        return SentMessages(reader.messages)
    for index, item in enumerate(request.input):
        if not isinstance(item, schemas.ItemReference):
            reader.add(item)
        elif (referenced := items.get(item.id)) is not None:
            reader.add(schemas.ITEM.validate_python(referenced))
        elif is_session:  # the session has the item, which is from the model
            reader.answer()
        else:
            raise ValidationFailed.at(f"input[{index}].id", f"the item {item.id!r} {_UNKNOWN_ITEM}")
    add_tool_names(reader.messages)
    images = {index: await decode_images(urls, ("messages", index)) for index, urls in reader.image_urls.items()}
    return SentMessages(reader.messages, images)


@dataclass
class _ItemReader:
    """Converter of input items to messages. Consecutive items from the model become one assistant message."""

    messages: list[Message]
    image_urls: dict[int, dict[Location, str]] = field(default_factory=dict)

    def add(self, item: schemas.InputItem) -> None:
        match item:
            case schemas.InputMessage(role="assistant"):
                self.answer("content")["content"] = _text(item.content)
            case schemas.InputMessage():
                role: Role = "user" if item.role == "user" else "system"
                self._append(new_message(role, _text(item.content)), item.content)
            case schemas.FunctionCall():
                calls = self.answer().setdefault("tool_calls", [])
                calls.append(tool_call(len(calls), item.call_id, item.name, item.arguments))
            case schemas.FunctionCallOutput():
                result: Message = {**new_message("tool", _text(item.output)), "tool_call_id": item.call_id}
                self._append(result, item.output)
            case schemas.ReasoningItem():
                message = self.answer("content", "tool_calls", "thinking")
                message["thinking"] = "\n".join(part.text for part in item.content or item.summary)

    def answer(self, *unset: str) -> Message:
        """Return the last message if it is from the model and its fields ``unset`` are empty, else append one."""
        last = self.messages[-1] if self.messages else None
        if last is None or last["role"] != "assistant" or any(last.get(name) for name in unset):
            self.messages.append(new_message("assistant", ""))
        return self.messages[-1]

    def _append(self, message: Message, content: str | Sequence[schemas.Part]) -> None:
        if not isinstance(content, str):
            path: Location = ("messages", len(self.messages), "content")
            urls = {
                (*path, n): part.image_url for n, part in enumerate(content) if isinstance(part, schemas.InputImage)
            }
            if urls:
                self.image_urls[len(self.messages)] = urls
        self.messages.append(message)


def _text(content: str | Sequence[schemas.Part]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(
        p.refusal if isinstance(p, RefusalPart) else p.text for p in content if not isinstance(p, schemas.InputImage)
    )
