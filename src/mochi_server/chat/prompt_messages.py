"""What a model is sent of a stored conversation. The one place that decides it; the stored history stays."""

from collections.abc import Sequence

from mochi_server.ollama.types import ChatMessage
from mochi_server.sessions.history import History
from mochi_server.sessions.images import images_of
from mochi_server.sessions.session import system_message
from mochi_server.sessions.types import Message

_SENT = ("role", "content", "tool_calls", "tool_name", "tool_call_id")


def wire_messages(messages: Sequence[Message], turn_begins: int) -> list[ChatMessage]:
    """Stored messages as Ollama takes them.

    ``turn_begins`` is the position of the user message being answered: thinking goes back to the model only
    behind it, within the tool rounds of its own turn. An answer that was cut off before it said anything is
    left out; a call that a crash left without a result gets one, since models take nothing else. Images are
    named by their SHA-256 here; their bytes come in when the request is sent, and never into a summary.
    """
    sent: list[ChatMessage] = []
    for index, message in enumerate(messages):
        if message["role"] != "assistant" or message["content"] or message.get("tool_calls"):
            sent.append(_wire(message, with_thinking=index > turn_begins))
            if message["role"] == "tool" or message.get("tool_calls"):
                sent.extend(_missing_results(messages, index))
    return sent


def last_user_index(messages: Sequence[Message]) -> int | None:
    """Where the latest user message is, if there is one."""
    backwards = zip(range(len(messages) - 1, -1, -1), reversed(messages), strict=True)
    return next((index for index, message in backwards if message["role"] == "user"), None)


def instructed(history: History, asked: int, instructions: str | None) -> tuple[History, int]:
    """A history with instructions for one turn behind what its system message says, and where ``asked`` is now."""
    if not instructions:
        return history, asked
    if not history or history[0]["role"] != "system":
        return History.of([system_message(instructions), *history]), asked + 1
    first = history[0]
    if first["content"].strip() == instructions.strip():
        return history, asked
    told: Message = {**first, "content": f"{first['content']}\n\n{instructions}"}
    return History.of([told, *history[1:]]), asked


def _wire(message: Message, *, with_thinking: bool) -> ChatMessage:
    sent: ChatMessage = {name: message[name] for name in _SENT if message.get(name) is not None}  # type: ignore[assignment, literal-required]  # a TypedDict by names
    if with_thinking and message.get("thinking"):
        sent["thinking"] = message["thinking"]
    if "images" in message and (images := images_of(message)):
        sent["images"] = images
    return sent


def _missing_results(messages: Sequence[Message], index: int) -> list[ChatMessage]:
    """Results for the calls of a message that have none, when it is the last of their results' messages."""
    first = index
    while first >= 0 and messages[first]["role"] == "tool":
        first -= 1
    calls = messages[first].get("tool_calls") if first >= 0 else None
    if not calls or (index + 1 < len(messages) and messages[index + 1]["role"] == "tool"):
        return []
    answered = {message.get("tool_call_id") for message in messages[first + 1 : index + 1]}
    return [
        {"role": "tool", "content": _NO_RESULT, "tool_name": call["function"]["name"], "tool_call_id": call["id"]}
        for call in calls
        if call.get("id") and call["id"] not in answered
    ]


_NO_RESULT = "The call was interrupted and has no result."
