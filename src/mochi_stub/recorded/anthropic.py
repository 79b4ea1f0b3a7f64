"""`/v1/messages`."""

from __future__ import annotations

from typing import Any

from mochi_stub.recorded.gathered import Gathered, get, listed
from mochi_stub.reply import Finish, Reasoning, Text

_FINISH: dict[Any, Finish] = {"max_tokens": "length", "refusal": "content_filter"}


def message(body: Any, into: Gathered) -> None:
    """A whole message."""
    if get(body, "type") == "error":
        into.fail(get(body, "error", "message"))
        return
    for index, block in enumerate(listed(body, "content")):
        _block(index, block, into)
        if get(block, "type") == "tool_use":
            into.call(index, arguments=get(block, "input"))
    _ended(get(body, "stop_reason"), get(body, "usage"), into)


def event(body: Any, into: Gathered) -> None:
    """An event of a stream."""
    kind, delta = get(body, "type"), get(body, "delta")
    if kind == "message_start":
        _ended(None, get(body, "message", "usage"), into)
    elif kind == "content_block_start":
        _block(get(body, "index"), get(body, "content_block"), into)
    elif kind == "content_block_delta":
        into.say(Text, get(delta, "text"))
        into.say(Reasoning, get(delta, "thinking"))
        if get(delta, "type") == "input_json_delta":
            into.call(get(body, "index"), arguments=get(delta, "partial_json"))
    elif kind == "message_delta":
        _ended(get(delta, "stop_reason"), get(body, "usage"), into)
    elif kind == "error":
        into.fail(get(body, "error", "message") or "the message failed")


def _block(index: Any, block: Any, into: Gathered) -> None:
    into.say(Text, get(block, "text"))
    into.say(Reasoning, get(block, "thinking"))
    if get(block, "type") == "tool_use":
        into.call(index, name=get(block, "name"), id=get(block, "id"))


def _ended(reason: Any, usage: Any, into: Gathered) -> None:
    into.finish = _FINISH.get(reason, into.finish)
    into.count(
        input=get(usage, "input_tokens"),
        output=get(usage, "output_tokens"),
        cache_read=get(usage, "cache_read_input_tokens"),
        cache_creation=get(usage, "cache_creation_input_tokens"),
    )
