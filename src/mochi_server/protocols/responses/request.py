"""Conversion of requests of the Responses API to the input of a turn."""

from dataclasses import dataclass, field

from mochi_server.chat.images import Location
from mochi_server.chat.turn_input import TurnInput
from mochi_server.errors import ValidationFailed
from mochi_server.protocols.conversation import SentMessages
from mochi_server.protocols.messages import add_tool_names, decode_images, new_message, tool_call
from mochi_server.protocols.responses.items import (
    ITEM,
    FunctionCall,
    FunctionCallOutput,
    InputImage,
    InputItem,
    InputMessage,
    ItemReference,
    Part,
    ReasoningItem,
)
from mochi_server.protocols.responses.schemas import ResponseRequest
from mochi_server.protocols.responses.state import ResponseItems
from mochi_server.protocols.schemas import MochiHeaders, RefusalPart, tool_selection
from mochi_server.sessions.types import Message, Role

PARAMETERS = {"messages": "input", "response_format": "text.format"}
"""Mapping of field names in chat completion requests to the names of the same fields in the Responses API."""

_NO_SESSION = "responses are not stored; name a session in the header X-Mochi-Session, or send the whole conversation"
_UNKNOWN_ITEM = "is not in the server's memory; send the item itself, or set `store` to false in the client"


async def parse(
    request: ResponseRequest, headers: MochiHeaders, items: ResponseItems
) -> tuple[TurnInput, SentMessages]:
    """Return the options of a request and its messages. ``items`` has the items that the request refers to by ID.

    Raises ``ValidationFailed`` for an invalid or unknown item.
    """
    is_session = request.session_id(headers) is not None
    if request.previous_response_id is not None and not is_session:
        raise ValidationFailed.at("previous_response_id", _NO_SESSION)
    text_format = request.text and request.text.format
    tools = [tool.to_ollama() for tool in request.tools or ()]
    turn = request.turn(
        headers,
        tool_selection(headers, tools, request.tool_choice, parallel=request.parallel_tool_calls),
        limit=request.max_output_tokens,
        answer_format=text_format and text_format.to_ollama(),
    )
    return turn, await _messages(request, items, is_session=is_session)


async def _messages(request: ResponseRequest, items: ResponseItems, *, is_session: bool) -> SentMessages:
    reader = _ItemReader([new_message("system", request.instructions)] if request.instructions else [])
    if isinstance(request.input, str):
        reader.messages.append(new_message("user", request.input))
        return SentMessages(reader.messages)
    for index, item in enumerate(request.input):
        if not isinstance(item, ItemReference):
            reader.add(item)
        elif (referenced := items.get(item.id)) is not None:
            reader.add(ITEM.validate_python(referenced))
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

    def add(self, item: InputItem) -> None:
        match item:
            case InputMessage(role="assistant"):
                self.answer("content")["content"] = _text(item.content)
            case InputMessage():
                role: Role = "user" if item.role == "user" else "system"
                self._append(new_message(role, _text(item.content)), item.content)
            case FunctionCall():
                calls = self.answer().setdefault("tool_calls", [])
                calls.append(tool_call(len(calls), item.call_id, item.name, item.arguments))
            case FunctionCallOutput():
                result: Message = {**new_message("tool", _text(item.output)), "tool_call_id": item.call_id}
                self._append(result, item.output)
            case ReasoningItem():
                message = self.answer("content", "tool_calls", "thinking")
                message["thinking"] = "\n".join(part.text for part in item.content or item.summary)

    def answer(self, *unset: str) -> Message:
        """Return the last message if it is from the model and its fields ``unset`` are empty, else append one."""
        last = self.messages[-1] if self.messages else None
        if last is None or last["role"] != "assistant" or any(last.get(name) for name in unset):
            self.messages.append(new_message("assistant", ""))
        return self.messages[-1]

    def _append(self, message: Message, content: str | list[Part]) -> None:
        if not isinstance(content, str):
            path: Location = ("messages", len(self.messages), "content")
            urls = {(*path, n): part.image_url for n, part in enumerate(content) if isinstance(part, InputImage)}
            if urls:
                self.image_urls[len(self.messages)] = urls
        self.messages.append(message)


def _text(content: str | list[Part]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(
        p.refusal if isinstance(p, RefusalPart) else p.text for p in content if not isinstance(p, InputImage)
    )
