"""Conversion of chat completion and text completion requests to the input of a turn."""

from mochi_server.chat.turn_input import Location, TurnInput
from mochi_server.errors import ValidationFailed
from mochi_server.protocols.conversation import SentMessages, add_tool_names, decode_images, new_message
from mochi_server.protocols.openai_chat.schemas import (
    CompletionRequest,
    ImagePart,
    NamedTool,
    TextCompletionRequest,
    ToolMessage,
    UserMessage,
)
from mochi_server.protocols.schemas import MochiHeaders, tool_selection
from mochi_server.sessions.types import Image

TEXT_PARAMETERS = {"messages": "prompt"}
"""Mapping of field names in chat completion requests to the names of the same fields in text completion requests."""


async def parse_completion(request: CompletionRequest, headers: MochiHeaders) -> tuple[TurnInput, SentMessages]:
    """Return the options of a chat completion and its messages. Raises ``ValidationFailed`` for an invalid message."""
    messages = [message.to_stored() for message in request.messages]
    add_tool_names(messages)
    tools = [tool.function.to_ollama() for tool in request.tools or ()]
    choice = request.tool_choice.function if isinstance(request.tool_choice, NamedTool) else request.tool_choice
    turn = request.turn(
        headers,
        tool_selection(headers, tools, choice, parallel=request.parallel_tool_calls),
        limit=request.max_completion_tokens or request.max_tokens,
        answer_format=request.response_format.to_ollama() if request.response_format else None,
        logprobs=_logprobs(request),
    )
    return turn, SentMessages(messages, await _images(request))


def parse_text_completion(request: TextCompletionRequest, headers: MochiHeaders) -> tuple[TurnInput, SentMessages]:
    """Return the options of a text completion, and its prompt as a user message."""
    prompt = request.prompt if isinstance(request.prompt, str) else request.prompt[0]
    turn = request.turn(headers, tool_selection(headers), limit=request.max_tokens)
    return turn, SentMessages([new_message("user", prompt)])


def _logprobs(request: CompletionRequest) -> int | None:
    if request.top_logprobs and not request.logprobs:
        raise ValidationFailed.at("top_logprobs", "requires `logprobs: true`")
    return (request.top_logprobs or 0) if request.logprobs else None


async def _images(request: CompletionRequest) -> dict[int, tuple[Image, ...]]:
    images = {}
    for index, message in enumerate(request.messages):
        if not isinstance(message, UserMessage | ToolMessage) or isinstance(message.content, str):
            continue
        content: Location = ("messages", index, "content")
        parts = enumerate(message.content)
        urls = {(*content, number): part.url for number, part in parts if isinstance(part, ImagePart)}
        if urls:
            images[index] = await decode_images(urls, content)
    return images
