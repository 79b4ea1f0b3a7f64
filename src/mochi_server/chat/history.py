"""What a model is sent of a stored conversation. The one place that decides it; the stored history stays."""

from collections.abc import Sequence

from mochi_server.ollama.types import ChatMessage
from mochi_server.sessions.types import Message

_SENT = ("role", "content", "tool_calls", "tool_name", "tool_call_id")


def wire_messages(messages: Sequence[Message], turn_begins: int) -> list[ChatMessage]:
    """Stored messages as Ollama takes them.

    ``turn_begins`` is the position of the user message being answered: thinking goes back to the model only
    behind it, within the tool rounds of its own turn. An answer that was cut off before it said anything is
    left out.
    """
    return [
        _wire(message, with_thinking=index > turn_begins)
        for index, message in enumerate(messages)
        if message["role"] != "assistant" or message["content"] or message.get("tool_calls")
    ]


def last_user_index(messages: Sequence[Message]) -> int | None:
    """Where the latest user message is, if there is one."""
    return next((i for i in range(len(messages) - 1, -1, -1) if messages[i]["role"] == "user"), None)


def _wire(message: Message, *, with_thinking: bool) -> ChatMessage:
    sent: ChatMessage = {name: message[name] for name in _SENT if message.get(name) is not None}  # type: ignore[assignment, literal-required]  # a TypedDict by names
    if with_thinking and message.get("thinking"):
        sent["thinking"] = message["thinking"]
    return sent
