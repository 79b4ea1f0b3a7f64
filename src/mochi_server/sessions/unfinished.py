"""What becomes of the unfinished part of a turn whose process has died. Pure."""

from hashlib import blake2b

from mochi_server.sessions.types import Message


def cut_off(partial: Message) -> list[Message]:
    """The messages that an unfinished one stands for, marked as interrupted, the same ones every time.

    An answer stands for itself. The result of a call stands for those of its ``tool_calls`` as well, the calls that
    were to follow: each call that is stored has a result, or no model takes the history.
    """
    first = partial.copy()
    first["interrupted"] = True
    if first["role"] != "tool":
        return [first]
    others = first.pop("tool_calls", [])
    return [first, *(_like(first, call["function"]["name"], call["id"]) for call in others)]


def _like(result: Message, tool_name: str, tool_call_id: str) -> Message:
    other = result.copy()
    other["tool_name"], other["tool_call_id"] = tool_name, tool_call_id
    other["message_id"] = blake2b(f"{result['message_id']} {tool_call_id}".encode(), digest_size=5).hexdigest()
    return other
