"""Conversion of stored messages to prompt messages in Ollama's format, with a cache of encoded messages."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import orjson

from mochi_server.chat.turn_input import HistoryChange
from mochi_server.inference.estimate import PromptSize
from mochi_server.ollama.types import ChatMessage, Encoded
from mochi_server.sessions.history import History
from mochi_server.sessions.session import system_message
from mochi_server.sessions.types import Message, images_in, images_of

_SENT_FIELDS = ("role", "content", "tool_calls", "tool_name", "tool_call_id")
_NO_RESULT = "The call was interrupted and has no result."


def to_ollama_messages(messages: Sequence[Message], turn_start: int) -> list[ChatMessage]:
    """Convert stored messages to Ollama's format. Images are represented by their SHA-256 names.

    Thinking before ``turn_start``, the index of the user message to answer, is omitted, and so are answers without text
    or tool calls. A tool call without a result gets a placeholder, because models require one.
    """
    sent: list[ChatMessage] = []
    missing: dict[str, str] = {}
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            missing.pop(message.get("tool_call_id", ""), None)
        else:
            sent.extend(_missing_results(missing))
            calls = message.get("tool_calls") or ()
            missing = {call["id"]: call["function"]["name"] for call in calls if call.get("id")}
        if message["role"] != "assistant" or message["content"] or message.get("tool_calls"):
            sent.append(_to_ollama(message, with_thinking=index > turn_start))
    return [*sent, *_missing_results(missing)]


def last_user_index(messages: Sequence[Message]) -> int | None:
    """Return the index of the latest user message, or None if no message is from the user."""
    backwards = zip(range(len(messages) - 1, -1, -1), reversed(messages), strict=True)
    return next((index for index, message in backwards if message["role"] == "user"), None)


def answer_index(messages: Sequence[Message], change: HistoryChange) -> int:
    """Return the index of the next answer, which replaces all messages from this index on."""
    if change != "continue":
        user_index = last_user_index(messages)
        return len(messages) if user_index is None else user_index + 1
    has_partial = bool(messages) and messages[-1]["role"] == "assistant" and bool(messages[-1].get("interrupted"))
    return len(messages) - has_partial


def follows_result(messages: Sequence[Message]) -> bool:
    """Return whether the last complete message is the result of a tool call."""
    index = answer_index(messages, "continue")
    return index > 0 and messages[index - 1]["role"] == "tool"


def with_instructions(history: History, user_index: int, instructions: str | None) -> tuple[History, int]:
    """Add instructions to the system message. Return the new history and the new index of the user message."""
    if not instructions:
        return history, user_index
    if not history or history[0]["role"] != "system":
        return History.of([system_message(instructions), *history]), user_index + 1
    first = history[0]
    if first["content"].strip() == instructions.strip():
        return history, user_index
    combined: Message = {**first, "content": f"{first['content']}\n\n{instructions}"}
    return History.of([combined, *history[1:]]), user_index


def _to_ollama(message: Message, *, with_thinking: bool) -> ChatMessage:
    sent: ChatMessage = {name: message[name] for name in _SENT_FIELDS if message.get(name) is not None}  # type: ignore[assignment, literal-required]  # a TypedDict by names
    if with_thinking and message.get("thinking"):
        sent["thinking"] = message["thinking"]
    if "images" in message and (images := images_of(message)):
        sent["images"] = images
    return sent


def _missing_results(names: Mapping[str, str]) -> list[ChatMessage]:
    """Return placeholder results for tool calls that have no result. ``names`` maps call IDs to tool names."""
    return [
        {"role": "tool", "content": _NO_RESULT, "tool_name": name, "tool_call_id": call_id}
        for call_id, name in names.items()
    ]


class EncodedMessages(NamedTuple):
    """Messages encoded as JSON for Ollama, and their size. Images are represented by their SHA-256 names."""

    encoded: Encoded
    size: PromptSize


def encode_messages(messages: Sequence[Message]) -> EncodedMessages:
    """Encode the messages of completed turns as JSON for Ollama. The thinking of the model is omitted."""
    converted = to_ollama_messages(messages, len(messages))
    return EncodedMessages(Encoded(b",".join(map(orjson.dumps, converted))), PromptSize.of(converted))


def shows_images(history: History) -> bool:
    return any(block.cached(encode_messages).size.images for block in history.blocks) or bool(images_in(history.tail))
