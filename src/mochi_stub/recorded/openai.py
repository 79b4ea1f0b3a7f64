"""`/v1/chat/completions`, `/v1/completions` and `/v1/responses`."""

from __future__ import annotations

from typing import Any

from mochi_stub.recorded.gathered import Gathered, get, listed
from mochi_stub.reply import Finish, Reasoning, Text

_FINISH: dict[Any, Finish] = {"length": "length", "content_filter": "content_filter"}


def chat(body: Any, into: Gathered) -> None:
    """A chunk of a stream, or the whole: they differ in "delta" and "message"."""
    if get(body, "error") is not None:
        into.fail(get(body, "error", "message") or get(body, "error"))
        return
    for choice in listed(body, "choices"):
        if get(choice, "index") not in (None, 0):
            continue
        said = get(choice, "delta") or get(choice, "message")
        into.say(Reasoning, get(said, "reasoning_content") or get(said, "reasoning"))
        into.say(Text, get(said, "content"))
        into.say(Text, get(choice, "text"))
        for at, call in enumerate(listed(said, "tool_calls")):
            function, index = get(call, "function"), get(call, "index")
            into.call(
                at if index is None else index,
                name=get(function, "name"),
                id=get(call, "id"),
                arguments=get(function, "arguments"),
            )
        into.finish = _FINISH.get(get(choice, "finish_reason"), into.finish)
    usage = get(body, "usage")
    into.count(
        input=get(usage, "prompt_tokens"),
        output=get(usage, "completion_tokens"),
        reasoning=get(usage, "completion_tokens_details", "reasoning_tokens"),
        cache_read=get(usage, "prompt_tokens_details", "cached_tokens"),
    )


def response(body: Any, into: Gathered) -> None:
    """A whole response."""
    if get(body, "error") is not None:
        into.fail(get(body, "error", "message") or get(body, "error"))
    for item in listed(body, "output"):
        for summary in listed(item, "summary"):
            into.say(Reasoning, get(summary, "text"))
        for content in listed(item, "content"):
            kind = Reasoning if get(content, "type") == "reasoning_text" else Text
            into.say(kind, get(content, "text") or get(content, "refusal"))
        if get(item, "type") == "function_call":
            into.call(get(item, "id"), **_call(item), arguments=get(item, "arguments"))
    _ended(body, into)


def response_event(event: Any, into: Gathered) -> None:
    """An event of a streamed response; contents are in the deltas, the rest at the end."""
    kind = get(event, "type")
    if kind == "response.output_text.delta":
        into.say(Text, get(event, "delta"))
    elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
        into.say(Reasoning, get(event, "delta"))
    elif kind == "response.output_item.added" and get(event, "item", "type") == "function_call":
        into.call(get(event, "item", "id"), **_call(get(event, "item")))
    elif kind == "response.function_call_arguments.delta":
        into.call(get(event, "item_id"), arguments=get(event, "delta"))
    elif kind in ("response.completed", "response.incomplete"):
        _ended(get(event, "response"), into)
    elif kind in ("error", "response.failed"):
        message = get(event, "message") or get(event, "response", "error", "message")
        into.fail(message or "the response failed")


def _call(item: Any) -> dict[str, Any]:
    return {"name": get(item, "name"), "id": get(item, "call_id")}


def _ended(body: Any, into: Gathered) -> None:
    reasons: dict[Any, Finish] = {"max_output_tokens": "length", "content_filter": "content_filter"}
    into.finish = reasons.get(get(body, "incomplete_details", "reason"), into.finish)
    usage = get(body, "usage")
    into.count(
        input=get(usage, "input_tokens"),
        output=get(usage, "output_tokens"),
        reasoning=get(usage, "output_tokens_details", "reasoning_tokens"),
        cache_read=get(usage, "input_tokens_details", "cached_tokens"),
    )
