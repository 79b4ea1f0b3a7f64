"""Instruction blocks that continue after a later user message, for programs that append a prompt to
each request.
"""

from __future__ import annotations

from typing import Any

import pytest

from mochi_stub import Message, Prompt, Reply, ToolCall
from mochi_stub.resolver import resolve
from tests.support.instructions import calls, instruct, words

PLAN = instruct(words(2), calls("look"), words(3))
REMINDER = Message("user", "Now do it.")
LOOKED = (
    Message("assistant", "ID", tool_calls=(ToolCall("look"),)),
    Message("tool", "Nothing.", tool_name="look"),
)


def reply_to(*messages: Message, tools: tuple[str, ...] = ()) -> Reply:
    offered: tuple[dict[str, Any], ...] = tuple(
        {"type": "function", "function": {"name": name}} for name in tools
    )
    return resolve(Prompt("mochi", messages=(Message("user", PLAN), *messages), tools=offered))


def test_unanswered_script_is_run() -> None:
    assert reply_to(REMINDER).text == "ID lorem ipsum ID"


def test_tool_calls_need_offered_tools() -> None:
    reply = reply_to(Message("assistant", "I have a plan."), REMINDER, tools=("look", "note"))
    assert [call.name for call in reply.tool_calls] == ["look"]


def test_script_continues_after_the_tool_results() -> None:
    assert (
        reply_to(Message("assistant", "I have a plan."), *LOOKED, REMINDER).text
        == "ID lorem ipsum dolor ID"
    )


@pytest.mark.parametrize(
    "history",
    [(Message("assistant", "I cannot."),), (*LOOKED, Message("assistant", "Done."))],
    ids=["without the tools", "after the end"],
)
def test_next_message_gets_a_default_reply(history: tuple[Message, ...]) -> None:
    assert reply_to(*history, Message("user", "thanks")).text.endswith(" thanks")


def test_malformed_tools_offer_nothing() -> None:
    messages = (Message("user", PLAN), Message("assistant", "I have a plan."), REMINDER)
    assert (
        resolve(
            Prompt("mochi", messages=messages, tools=({"function": "look"}, {"name": []}))
        ).tool_calls
        == []
    )


def test_block_can_contain_a_nested_block() -> None:
    inner = instruct(words(5), label="INNER")
    outer = instruct(calls("agent", instruction=inner), label="OUTER")
    (call,) = resolve(Prompt("mochi", messages=(Message("user", outer),))).tool_calls
    assert call.arguments == {"instruction": inner}
    assert resolve(Prompt("mochi", messages=(Message("user", inner),))).text.startswith(
        "INNER lorem"
    )
