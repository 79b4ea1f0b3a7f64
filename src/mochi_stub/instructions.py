"""Instruction blocks: a user message that says what the reply shall be.

    <|instruction_start|>{"id_message": "A", "reasoning": {"length": 8}, "messages": [
        {"text_message": {"length": 20}}, {"tool_call": [{"name": "now", "args": {}}]}]}<|instruction_end|>

A block becomes a list of rounds. A round is one reply; it ends after a `tool_call` entry, because a real model stops
there and waits for the results. On a wire with choices there is one round, and each entry is a choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from mochi_stub.lorem import lorem
from mochi_stub.prompt import ToolCall
from mochi_stub.reply import Choice, Part, Reasoning, Text, ToolCalls

MAX_WORDS = 1_000_000
MAX_NESTED = 50
_START, _END = "<|instruction_start|>", "<|instruction_end|>"


def rounds(user_text: str, *, thinks: bool, choices: bool = False) -> list[list[Part]] | None:
    """Return the replies that a message requests, or None if it has no valid block."""
    plan = _plan(user_text)
    if plan is None:
        return None
    try:
        entries = _entries(plan, thinks)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    if choices and entries:
        return [[part for index, entry in enumerate(entries) for part in (Choice(index), *entry)]]
    return _in_turn(entries)


def _plan(text: str) -> Any:
    """Return the JSON of the first block. Its strings may contain other blocks, meant for another model."""
    _, found, rest = text.partition(_START)
    end = rest.find(_END) if found else -1
    for _ in range(MAX_NESTED):
        if end < 0:
            return None
        try:
            return orjson.loads(rest[:end])
        except orjson.JSONDecodeError:
            end = rest.find(_END, end + 1)
    return None


def _entries(plan: Mapping[str, Any], thinks: bool) -> list[list[Part]]:
    label = plan.get("id_message") or ""
    thought = _labelled(label, plan["reasoning"]) if plan.get("reasoning") is not None else None
    found: list[list[Part]] = []
    for entry in plan["messages"]:
        if "tool_call" in entry:
            found.append([ToolCalls([_call(call) for call in entry["tool_call"]])])
        else:
            text = Text(_labelled(label, entry["text_message"]))
            found.append([Reasoning(thought), text] if thought is not None and thinks else [text])
    return found


def _in_turn(entries: list[list[Part]]) -> list[list[Part]]:
    """Join the entries up to each tool call. A second text or reasoning of a round is set off by a blank line."""
    found: list[list[Part]] = [[]]
    for part in (part for entry in entries for part in entry):
        if isinstance(part, (Reasoning, Text)):
            if any(type(earlier) is type(part) for earlier in found[-1]):
                found[-1].append(type(part)("\n\n"))
            found[-1].append(part)
        else:
            found[-1].append(part)
            found.append([])
    return [parts for parts in found if parts]


def _call(call: Mapping[str, Any]) -> ToolCall:
    name, arguments = call["name"], call.get("args", {})
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise TypeError("a tool_call entry needs a name and an object of args")
    return ToolCall(name, arguments)


def _labelled(label: str, message: Mapping[str, Any]) -> str:
    length = message["length"]
    if not isinstance(length, (int, float)) or isinstance(length, bool):
        raise TypeError("a length is a number")
    return " ".join(filter(None, [label, lorem(max(0, min(int(length), MAX_WORDS))), label]))
