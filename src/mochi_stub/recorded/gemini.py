"""`generateContent` and `streamGenerateContent`: a chunk of a stream and a whole reply have the same fields."""

from __future__ import annotations

from typing import Any

from mochi_stub.recorded.gathered import Gathered, get, listed
from mochi_stub.reply import Finish, Reasoning, Text

_FINISH: dict[Any, Finish] = {
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
}


def read(body: Any, into: Gathered) -> None:
    if get(body, "error") is not None:
        into.fail(get(body, "error", "message") or get(body, "error"))
        return
    candidate = get(body, "candidates", 0)
    for part in listed(candidate, "content", "parts"):
        into.say(Reasoning if get(part, "thought") else Text, get(part, "text"))
        call = get(part, "functionCall")
        if call is not None:
            into.call(len(into.calls), name=get(call, "name"), id=get(call, "id"), arguments=get(call, "args"))
    into.finish = _FINISH.get(get(candidate, "finishReason"), into.finish)
    usage = get(body, "usageMetadata")
    written, thought = get(usage, "candidatesTokenCount"), get(usage, "thoughtsTokenCount")
    into.count(
        input=get(usage, "promptTokenCount"),
        output=written + thought if isinstance(written, int) and isinstance(thought, int) else written,
        reasoning=thought,
        cache_read=get(usage, "cachedContentTokenCount"),
    )
