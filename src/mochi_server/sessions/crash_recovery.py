"""Crash recovery: repair of a session's history after the process that executed a turn has died."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from mochi_server.errors import ToolExecutionFailed
from mochi_server.sessions.history import History
from mochi_server.sessions.types import Message

INTERRUPTED = "The turn was interrupted before this call had a result."


def close_partial(partial: Message) -> list[Message]:
    """Convert a partial answer or a partial tool result to messages that are marked as interrupted.

    A partial tool result lists the remaining tool calls in ``tool_calls``. Each of them gets a result, because models
    reject a history in which a call has no result. Repeated conversions return the same message ids.
    """
    first = partial.copy()
    first["interrupted"] = True
    if first["role"] != "tool":
        return [first]
    results = [first]
    for call in first.pop("tool_calls", []):
        result = first.copy()
        result["tool_name"], result["tool_call_id"] = call["function"]["name"], call["id"]
        result["message_id"] = _derived_id(first, call["id"])
        results.append(result)
    return results


def with_missing_results(history: History) -> History:
    """Add a result that is marked as interrupted for each tool call without a result. Return the new history.

    Tool calls that the client runs (``client_tool_calls``) are ignored. If no result is missing, return ``history``.
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
            call_id = message.get("tool_call_id")
            missing.pop(call_id if call_id in missing else next(iter(missing), ""), None)
        else:
            complete.extend(missing.values())
            missing = {call["id"]: _interrupted(message, call) for call in _calls(message)}
        complete.append(message)
    return [*complete, *missing.values()]


def _calls(message: Message) -> list[Any]:
    """Return the valid tool calls of a message, except calls that the client runs."""
    client_tool_calls = message.get("client_tool_calls") or ()
    return [
        call
        for call in message.get("tool_calls") or ()
        if isinstance(call, dict)
        and isinstance(call.get("id"), str)
        and isinstance(call.get("function"), dict)
        and call["id"] not in client_tool_calls
    ]


def _interrupted(answer: Message, call: dict[str, Any]) -> Message:
    return {
        "role": "tool",
        "content": INTERRUPTED,
        "tool_name": str(call["function"].get("name")),
        "tool_call_id": call["id"],
        "message_id": _derived_id(answer, call["id"]),
        "timestamp": answer["timestamp"],
        "success": False,
        "error_code": ToolExecutionFailed.code,
        "decided_by": "policy",
        "interrupted": True,
    }


def _derived_id(message: Message, tool_call_id: str) -> str:
    return blake2b(f"{message['message_id']} {tool_call_id}".encode(), digest_size=5).hexdigest()
