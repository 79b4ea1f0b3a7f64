"""Conversion of requests of Anthropic's Messages API to the input of a turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from mochi_server.chat.images import Location
from mochi_server.chat.turn_input import GenerationOptions, TurnInput
from mochi_server.errors import ValidationFailed
from mochi_server.protocols import messages as stored
from mochi_server.protocols.anthropic import schemas
from mochi_server.protocols.conversation import SentMessages
from mochi_server.protocols.schemas import MochiHeaders, NamedFunction, TextPart, think_value, tool_selection
from mochi_server.sessions.types import Message, Role

PARAMETERS = {"response_format": "output_config.format"}
"""Mapping of field names in chat completion requests to the names of the same fields in the Messages API."""
_OPTIONS = {"max_tokens": "num_predict", "stop_sequences": "stop"} | {n: n for n in ("temperature", "top_p", "top_k")}
"""Mapping of fields of the request to Ollama's options."""
_Blocks = Sequence[tuple[Location, Any]]
"""Content blocks with their paths in the request."""


async def parse(request: schemas.CountRequest, headers: MochiHeaders) -> tuple[TurnInput, SentMessages]:
    """Return the options of a request and its messages. Raises ``ValidationFailed`` for an invalid message."""
    tools = [tool.to_ollama() for tool in request.tools or () if tool.type in schemas.CUSTOM]
    wanted = request.tool_choice or schemas.ToolChoice(type="auto")
    choice: str | NamedFunction = "required" if wanted.type == "any" else wanted.type
    if wanted.type == "tool":
        if wanted.name is None:
            raise ValidationFailed.at(("tool_choice", "name"), "Field required")
        choice = NamedFunction(name=wanted.name)
    selection = tool_selection(headers, tools, choice, parallel=not wanted.disable_parallel_tool_use)
    sent = await _messages(request)
    for index, message in enumerate(sent.messages):
        if message["role"] == "tool" and "tool_name" not in message and headers.session is None:
            raise sent.error(stored.unknown_call(message["tool_call_id"]), index)
    return headers.turn(request.model, _generation(request), selection), sent


def _generation(request: schemas.CountRequest) -> GenerationOptions:
    output = request.output_config or schemas.OutputConfig()
    think: bool | str | None = None if request.thinking is None else request.thinking.type != "disabled"
    if think and output.effort:
        think = think_value(output.effort)
    fields = request.model_dump(include=set(_OPTIONS), exclude_none=True)
    options = {_OPTIONS[name]: value for name, value in fields.items()}
    return GenerationOptions(think, options, output.format.to_ollama() if output.format else None)


async def _messages(request: schemas.CountRequest) -> SentMessages:
    """Return the messages of a request. Consecutive messages of one role become one message, as in Anthropic's API."""
    reader = _Reader([], [], {})
    reader.add("system", _blocks(request.system, ("system",)), 0)
    for _, group in groupby(enumerate(request.messages), lambda each: each[1].role):
        *_, (last, message) = sent = list(group)
        blocks = [block for position, m in sent for block in _blocks(m.content, ("messages", position, "content"))]
        for path, block in blocks:
            if isinstance(block, schemas.ToolResultBlock):
                fields = {"tool_call_id": block.tool_use_id, "success": not block.is_error}
                reader.add("tool", _blocks(block.content or "", (*path, "content")), last, **fields)
        reader.add(message.role, [each for each in blocks if not isinstance(each[1], schemas.ToolResultBlock)], last)
    stored.add_tool_names(reader.messages)
    images = {index: await stored.decode_images(urls, next(iter(urls))[:3]) for index, urls in reader.urls.items()}
    return SentMessages(reader.messages, images, positions=reader.positions)


@dataclass
class _Reader:
    """Converter of content blocks to messages. ``urls`` has the encoded images of each message by their paths."""

    messages: list[Message]
    positions: list[int]
    urls: dict[int, dict[Location, str]]

    def add(self, role: Role, blocks: _Blocks, position: int, **fields: Any) -> None:
        """Add the message with the content ``blocks``. ``position`` is its position in the request."""
        if not blocks:
            return
        if thinking := [block.thinking for _, block in blocks if isinstance(block, schemas.ThinkingBlock)]:
            fields["thinking"] = "\n\n".join(filter(None, thinking))
        if calls := [block for _, block in blocks if isinstance(block, schemas.ToolUseBlock)]:
            fields["tool_calls"] = [stored.tool_call(n, call.id, call.name, call.input) for n, call in enumerate(calls)]
        if images := [(path, block.source) for path, block in blocks if isinstance(block, schemas.ImageBlock)]:
            self.urls[len(self.messages)] = {(*path, "source"): source.url or source.data for path, source in images}
        text = "\n".join(block.text for _, block in blocks if isinstance(block, TextPart))
        self.messages.append({**stored.new_message(role, text), **fields})  # type: ignore[typeddict-item]  # fields of messages
        self.positions.append(position)


def _blocks(content: str | Sequence[Any] | None, path: Location) -> _Blocks:
    if isinstance(content, str):
        return [(path, TextPart(type="text", text=content))]
    return [((*path, number), block) for number, block in enumerate(content or ())]
