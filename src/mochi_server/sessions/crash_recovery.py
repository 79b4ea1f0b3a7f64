"""Crash recovery of a session: what becomes of the unfinished part of a turn whose process has died. Pure."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from mochi_server.errors import ToolExecutionFailed
from mochi_server.sessions.history import History
from mochi_server.sessions.types import Message

INTERRUPTED = "The turn was interrupted before this call had a result."


def close_partial(partial: Message) -> list[Message]:
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


def with_missing_results(history: History) -> History:
    """The history in which each call has a result, the same history if each has one.

    A call without a result gets one that is marked as interrupted. Calls that were handed back to the client get none.
    """
    if any(block.cached(_lacks_results) for block in history.blocks) or _lacks_results(history.tail):
        return History.of(_with_missing_results(history))
    return history


def _lacks_results(messages: Sequence[Message]) -> bool:
    return len(_with_missing_results(messages)) > len(messages)


def _with_missing_results(messages: Sequence[Message]) -> list[Message]:
    complete: list[Message] = []
    missing: dict[str, Message] = {}
    for message in messages:
        if message["role"] == "tool":
            answered = message.get("tool_call_id")
            missing.pop(answered if answered in missing else next(iter(missing), ""), None)
        else:
            complete.extend(missing.values())
            missing = {call["id"]: _interrupted(message, call) for call in _calls(message)}
        complete.append(message)
    return [*complete, *missing.values()]


def _calls(message: Message) -> list[Any]:
    """The calls of a message that the server runs, as far as they can be read: files may be edited by hand."""
    handed_back = message.get("handed_back") or ()
    return [
        call
        for call in message.get("tool_calls") or ()
        if isinstance(call, dict)
        and isinstance(call.get("id"), str)
        and isinstance(call.get("function"), dict)
        and call["id"] not in handed_back
    ]


def _interrupted(asked: Message, call: dict[str, Any]) -> Message:
    return {
        "role": "tool",
        "content": INTERRUPTED,
        "tool_name": str(call["function"].get("name")),
        "tool_call_id": call["id"],
        "message_id": _derived_id(asked, call["id"]),
        "timestamp": asked["timestamp"],
        "success": False,
        "error_code": ToolExecutionFailed.code,
        "decided_by": "policy",
        "interrupted": True,
    }


def _like(result: Message, tool_name: str, tool_call_id: str) -> Message:
    other = result.copy()
    other["tool_name"], other["tool_call_id"] = tool_name, tool_call_id
    other["message_id"] = _derived_id(result, tool_call_id)
    return other


def _derived_id(message: Message, tool_call_id: str) -> str:
    return blake2b(f"{message['message_id']} {tool_call_id}".encode(), digest_size=5).hexdigest()
