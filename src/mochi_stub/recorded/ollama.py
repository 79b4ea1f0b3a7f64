"""`/api/chat` and `/api/generate`: a line of a stream and a whole reply have the same fields."""

from __future__ import annotations

from typing import Any

from mochi_stub.recorded.gathered import Gathered, get, listed
from mochi_stub.reply import Durations, Reasoning, Text

_DURATIONS = ("total", "load", "prompt_eval", "eval")


def read(line: Any, into: Gathered) -> None:
    if get(line, "error") is not None:
        into.fail(get(line, "error"))
        return
    said = get(line, "message") or line
    into.say(Reasoning, get(said, "thinking"))
    into.say(Text, get(said, "content") if get(line, "message") is not None else get(said, "response"))
    for call in listed(said, "tool_calls"):
        function = get(call, "function")
        into.call(len(into.calls), name=get(function, "name"), id=get(call, "id"), arguments=get(function, "arguments"))
    if get(line, "done"):
        into.finish = "length" if get(line, "done_reason") == "length" else "stop"
        into.count(input=get(line, "prompt_eval_count"), output=get(line, "eval_count"))
        given = {name: get(line, f"{name}_duration") for name in _DURATIONS}
        into.durations = Durations(**{name: value for name, value in given.items() if isinstance(value, int)})
