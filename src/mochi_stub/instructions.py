"""Instruction blocks: a user message that says what the reply shall be.

    <|instruction_start|>{"id_message": "A", "reasoning": {"length": 8}, "messages": [
        {"text_message": {"length": 20}}, {"tool_call": [{"name": "now", "args": {}}]}]}<|instruction_end|>

Here a block becomes a list of rounds. A round is what one reply plays; it ends behind a `tool_call` entry, because
there a real model stops and waits for the results. On a wire with choices there is one round, each entry a choice.
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
    """The replies that the message asks for, in order; None where there is no block, or none that can be understood."""
    plan = _plan(user_text)
    if plan is None:
        return None
    try:
        entries = _entries(plan, thinks)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    return [_side_by_side(entries)] if choices and entries else _in_turn(entries)


def _plan(text: str) -> Any:
    """The JSON of the first block. A block may hold others inside its strings, for whoever is told them."""
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
    """What each entry of the block says."""
    label = plan.get("id_message") or ""
    reasoning = _words(plan["reasoning"]["length"]) if plan.get("reasoning") is not None else None
    found: list[list[Part]] = []
    for entry in plan["messages"]:
        if "tool_call" in entry:
            found.append([ToolCalls([_call(call) for call in entry["tool_call"]])])
            continue
        text = Text(_labelled(label, _words(entry["text_message"]["length"])))
        thought = [Reasoning(_labelled(label, reasoning))] if reasoning is not None and thinks else []
        found.append([*thought, text])
    return found


def _side_by_side(entries: list[list[Part]]) -> list[Part]:
    return [part for index, entry in enumerate(entries) for part in (Choice(index), *entry)]


def _in_turn(entries: list[list[Part]]) -> list[list[Part]]:
    found: list[list[Part]] = [[]]
    for entry in entries:
        for part in entry:
            if isinstance(part, (Reasoning, Text)):
                _append(found[-1], part)
            else:
                found[-1].append(part)
                found.append([])
    return [parts for parts in found if parts]


def _append(parts: list[Part], part: Reasoning | Text) -> None:
    """One reply has one text and one reasoning; what comes to either is set off by a blank line."""
    if any(type(earlier) is type(part) for earlier in parts):
        parts.append(type(part)("\n\n"))
    parts.append(part)


def _call(call: Mapping[str, Any]) -> ToolCall:
    name, arguments = call["name"], call.get("args", {})
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise TypeError("a tool_call entry needs a name and an object of args")
    return ToolCall(name, arguments)


def _words(length: object) -> str:
    if not isinstance(length, (int, float)) or isinstance(length, bool):
        raise TypeError("a length is a number")
    return lorem(max(0, min(int(length), MAX_WORDS)))


def _labelled(label: str, words: str) -> str:
    return " ".join(filter(None, [label, words, label]))
