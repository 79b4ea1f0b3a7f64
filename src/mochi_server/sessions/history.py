"""Immutable history of a session, which caches results that are computed from its messages.

A history is divided into blocks. A longer history of the same session shares the blocks of the
shorter one. Results such as encoded lines or prompts are cached per block, so that old messages are
processed only once.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from hashlib import blake2b
from itertools import chain
from typing import Any, TypeVar, cast

from mochi_server.errors import ToolExecutionFailed
from mochi_server.sessions.types import Message, PartialMessage, ToolCall, ToolMessage

BLOCK_MESSAGES = 64
"""Minimum number of messages of a block."""

_Result = TypeVar("_Result")


class Block:
    """Immutable sequence of whole turns, followed by a user message, which several histories may
    share.
    """

    __slots__ = ("end", "messages", "results")

    def __init__(self, messages: tuple[Message, ...], start: int) -> None:
        self.messages = messages
        self.end = start + len(messages)
        """End position of this block in every history (exclusive)."""
        self.results: dict[Callable[..., Any], Any] = {}
        """Cached results by function."""

    def cached(self, function: Callable[[Sequence[Message]], _Result]) -> _Result:
        """Return the result of ``function`` for the messages of this block.

        Cache the result after the first call.
        """
        if function not in self.results:
            self.results[function] = function(self.messages)
        return cast("_Result", self.results[function])


class History(tuple[Message, ...]):
    """Immutable sequence of messages: ``blocks``, then a ``tail`` of later messages that are in no
    block.
    """

    blocks: tuple[Block, ...]
    tail: tuple[Message, ...]

    def __new__(cls, blocks: tuple[Block, ...] = (), tail: tuple[Message, ...] = ()) -> "History":
        history = super().__new__(cls, chain(*(block.messages for block in blocks), tail))
        history.blocks = blocks
        history.tail = tail
        return history

    @classmethod
    def of(cls, messages: Iterable[Message]) -> "History":
        """Return a history of these messages.

        The caller must not change the messages afterwards.
        """
        return messages if isinstance(messages, History) else cls().extended(messages)

    def extended(self, messages: Iterable[Message]) -> "History":
        """Return a history with the messages appended.

        The caller must not change the messages afterwards.
        """
        blocks = [*self.blocks]
        tail = [*self.tail]
        for message in messages:
            if len(tail) >= BLOCK_MESSAGES and message.get("role") == "user":
                start = blocks[-1].end if blocks else 0
                blocks.append(Block(tuple(tail), start))
                tail = []
            tail.append(message)
        return History(tuple(blocks), tuple(tail))

    def prefix(self, length: int) -> "History":
        """Return a history of the first ``length`` messages."""
        if length >= len(self):
            return self
        # A block that ends at ``length`` becomes the tail, because the next message may not be a
        # user message.
        blocks = tuple(block for block in self.blocks if block.end < length)
        start = blocks[-1].end if blocks else 0
        return History(blocks, self[start:length])

    def copies(self) -> list[Message]:
        """Return copies of the messages, which the caller may change."""
        nested = (dict, list)
        copies: list[Message] = []
        for message in self:
            is_nested = any(type(value) in nested for value in message.values())
            copies.append(deepcopy(message) if is_nested else message.copy())
        return copies

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]  # like list


def last_user_index(messages: Sequence[Message]) -> int | None:
    """Return the index of the latest user message, or None if no message is from the user."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index]["role"] == "user":
            return index
    return None


def first_answer_index(messages: Sequence[Message]) -> int:
    """Return the index of the first message after the latest user message, or the end of the
    history without a user message.
    """
    user_index = last_user_index(messages)
    return len(messages) if user_index is None else user_index + 1


def complete_length(messages: Sequence[Message]) -> int:
    """Return the number of messages without the partial answer at their end, if any."""
    if not messages:
        return 0
    last = messages[-1]
    is_partial = last["role"] == "assistant" and last.get("interrupted")
    return len(messages) - 1 if is_partial else len(messages)


def follows_result(messages: Sequence[Message]) -> bool:
    """Return whether the last complete message is the result of a call."""
    length = complete_length(messages)
    return length > 0 and messages[length - 1]["role"] == "tool"


INTERRUPTED = "The turn was interrupted before this call had a result."


def close_partial(partial: PartialMessage) -> list[Message]:
    """Return the messages of a partial answer or placeholder, marked as interrupted.

    A placeholder (``UnfinishedCalls``) becomes a result for each open call. The message IDs are
    the same each time.
    """
    first = partial.copy()
    first["interrupted"] = True
    if first["role"] != "tool":
        return [first]
    results: list[Message] = [first]
    for call in first.pop("tool_calls", []):
        result = first.copy()
        result["tool_name"] = call["function"]["name"]
        result["tool_call_id"] = call["id"]
        result["message_id"] = _derived_id(first, call["id"])
        results.append(result)
    return results


def with_missing_results(history: History) -> History:
    """Return the history with an interrupted result for each call of the server's tools that has no
    result.

    If no result is missing, return ``history`` itself.
    """
    if any(block.cached(_lacks_results) for block in history.blocks) or _lacks_results(
        history.tail
    ):
        return History.of(_with_missing_results(history))
    return history


def _lacks_results(messages: Sequence[Message]) -> bool:
    return len(_with_missing_results(messages)) > len(messages)


def _with_missing_results(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with the missing results after those that exist.

    A result without a known call ID counts as that of the first open call.
    """
    complete: list[Message] = []
    missing: dict[str, ToolMessage] = {}
    for message in messages:
        if message["role"] == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in missing:
                call_id = next(iter(missing), "")
            missing.pop(call_id, None)
        else:
            complete.extend(missing.values())
            missing = {call["id"]: _interrupted(message, call) for call in _server_calls(message)}
        complete.append(message)
    return [*complete, *missing.values()]


def _server_calls(message: Message) -> list[ToolCall]:
    if message["role"] != "assistant":
        return []
    client_tool_calls = message.get("client_tool_calls") or ()
    return [
        call
        for call in message.get("tool_calls") or ()
        if isinstance(call, dict)
        and isinstance(call.get("id"), str)
        and isinstance(call.get("function"), dict)
        and call["id"] not in client_tool_calls
    ]


def _interrupted(answer: Message, call: ToolCall) -> ToolMessage:
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
