"""Default replies of a model: filler text, the echo, the reason, and instruction blocks."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from mochi_stub import Message, Prompt, Reply, StubServer, ToolCall
from mochi_stub.replies import hash_sized, lorem
from mochi_stub.resolver import resolve
from tests.stub.requests import contents, send_message, send_request
from tests.support.cases import cases

AWKWARD = "  two\n\n\tlines,  and\u00a0ünïcode \U0001f361 \u2028 <b>&</b>\x0b end \n"


def reply_to(text: str, *after: Message, thinks: bool = True, choices: bool = False) -> Reply:
    return resolve(
        Prompt(
            "mochi",
            messages=(Message("user", text), *after),
            includes_reasoning=thinks,
            allows_choices=choices,
        )
    )


def instruction(**plan: Any) -> str:
    return f"ignored <|instruction_start|>{json.dumps(plan)}<|instruction_end|> ignored"


def test_answer_is_filler_text_and_the_message() -> None:
    assert reply_to("hello").text == f"{hash_sized('hello')} hello"
    assert reply_to("hello").reasoning == ""


def test_filler_text_has_between_5_and_500_words() -> None:
    sizes = {len(hash_sized(str(number)).split()) for number in range(3000)}
    assert min(sizes) == 5
    assert max(sizes) == 500


def test_filler_text_has_the_same_length_in_each_process() -> None:
    program = "from mochi_stub.replies import hash_sized; print(hash_sized('a prompt'))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {hash_sized("a prompt") + "\n"}


def test_echo_keeps_whitespace(stub: StubServer) -> None:
    streamed = send_message(stub, AWKWARD)
    assert contents(streamed.lines).endswith(f" {AWKWARD}")
    assert send_message(stub, AWKWARD, stream=False).json["message"]["content"] == contents(
        streamed.lines
    )


def test_chunks_have_five_words_except_the_last(stub: StubServer) -> None:
    lines = send_message(stub, "one two three four five six seven").lines[:-1]
    assert [len(line["message"]["content"].split()) for line in lines[-2:]] == [5, 2]
    sizes = [len(line["message"]["content"].split()) for line in lines[:-2]]
    assert set(sizes[:-1]) == {5}
    assert 1 <= sizes[-1] <= 5


def test_reason_line_adds_thinking_that_echoes_the_message() -> None:
    question = "What?\nReason: why not"
    reply = reply_to(question)
    assert reply.reasoning == reply.text == f"{hash_sized(question)} {question}"


def test_thinking_streams_before_text(stub: StubServer) -> None:
    lines = send_message(stub, "What?\nReason: why not").lines[:-1]
    thinking = ["thinking" in line["message"] for line in lines]
    assert thinking == sorted(thinking, reverse=True)
    assert thinking[0]
    assert not thinking[-1]


@pytest.mark.parametrize(("model", "fields"), [("mochi", {"think": False}), ("mochi-chat", {})])
def test_reason_line_without_thinking_has_text_only(
    stub: StubServer, model: str, fields: dict[str, Any]
) -> None:
    message = send_message(stub, "What?\nReason: why not", model, stream=False, **fields).json[
        "message"
    ]
    assert "thinking" not in message
    assert message["content"].endswith("Reason: why not")


def test_instruction_sends_its_messages_in_order() -> None:
    plan = instruction(
        id_message="#1",
        reasoning={"length": 7},
        messages=[{"text_message": {"length": n}} for n in (3, 4)],
    )
    reply = reply_to(plan)
    assert reply.text == f"#1 {lorem(3)} #1\n\n#1 {lorem(4)} #1"
    assert reply.reasoning == f"#1 {lorem(7)} #1\n\n#1 {lorem(7)} #1"
    assert reply_to(plan, thinks=False).reasoning == ""


def test_reply_continues_after_the_tool_results() -> None:
    calls = [{"name": "now", "args": {}}, {"name": "add", "args": {"a": 1, "b": [2]}}]
    plan = instruction(
        messages=[
            {"text_message": {"length": 2}},
            {"tool_call": calls},
            {"text_message": {"length": 3}},
        ]
    )
    first = reply_to(plan)
    assert first.text == lorem(2)
    assert first.tool_calls == [ToolCall("now", {}), ToolCall("add", {"a": 1, "b": [2]})]
    question = Message("assistant", tool_calls=tuple(first.tool_calls))
    results = Message("tool", "12:00"), Message("tool", "3")
    assert reply_to(plan, question, *results).text == lorem(3)
    again = reply_to(plan, question, *results, question, Message("tool", "the end"))
    assert again.text == f"{hash_sized('the end')} the end"
    assert again.tool_calls == []


def test_only_the_latest_user_message_is_an_instruction() -> None:
    plan = instruction(messages=[{"tool_call": [{"name": "now", "args": {}}]}])
    assert reply_to(plan, Message("assistant", "done"), Message("user", "thanks")).text.endswith(
        " thanks"
    )


def test_tool_result_without_instruction_is_echoed() -> None:
    question = Message("assistant", tool_calls=(ToolCall("now"),))
    reply = reply_to("what time?", question, Message("tool", "noon"))
    assert reply.text == f"{hash_sized('noon')} noon"


@cases(
    "block",
    [
        "{",
        "[]",
        "{}",
        '{"messages":[{"text_message":{}}]}',
        '{"messages":[{"text_message":{"length":"x"}}]}',
        '{"messages":[{"tool_call":[{"args":{}}]}]}',
        '{"messages":[{"tool_call":[{"name":"f","args":5}]}]}',
        '{"messages":[7]}',
        '{"messages":[{"text_message":{"length":1e999}}]}',
        '{"messages":[],"reasoning":5}',
        '{"messages":[],"id_message":5}',
    ],
)
def test_invalid_instruction_block_is_echoed(block: str) -> None:
    text = f"<|instruction_start|>{block}<|instruction_end|>"
    assert reply_to(text).text.endswith(f" {text}")


def test_system_message_about_summaries_keeps_the_instruction() -> None:
    block = instruction(messages=[{"text_message": {"length": 2}}])
    messages = (
        Message("system", "You are helpful. Summarize long chats when asked."),
        Message("user", "Hi!"),
        Message("assistant", "Hello."),
        Message("user", block),
    )
    assert resolve(Prompt("mochi", messages=messages)).text == "lorem ipsum"


def test_instruction_in_a_quoted_conversation_is_ignored() -> None:
    block = instruction(messages=[{"text_message": {"length": 2}}])
    messages = (
        Message("system", "Write a summary of the conversation so far."),
        Message("user", f"Conversation:\n\nuser: My boat is called Wanda. {block}"),
    )
    reply = resolve(Prompt("mochi", messages=messages))
    assert reply.rule == "built-in: summary"
    assert "Wanda" in reply.text


def test_empty_instruction_is_echoed() -> None:
    assert reply_to(instruction(messages=[])).text.endswith("ignored")
    assert reply_to(instruction(messages=[]), choices=True).text.endswith("ignored")


def test_null_values_of_an_instruction_are_ignored() -> None:
    reply = reply_to(
        instruction(id_message=None, reasoning=None, messages=[{"text_message": {"length": 1.0}}])
    )
    assert (reply.text, reply.reasoning) == ("lorem", "")


@cases("reasoning", [{}, {"length": None}])
def test_instruction_without_a_length_of_reasoning_has_text_only(
    reasoning: dict[str, None],
) -> None:
    block = instruction(reasoning=reasoning, messages=[{"text_message": {"length": 2}}])
    reply = reply_to(block)
    assert (reply.text, reply.reasoning) == ("lorem ipsum", "")


def test_tool_calls_of_an_instruction_are_sent(stub: StubServer) -> None:
    plan = instruction(messages=[{"tool_call": [{"name": "add", "args": {"x": "<é>"}}]}])
    own_line, bare = send_message(stub, plan).lines
    (call,) = own_line["message"]["tool_calls"]
    assert call["function"] == {"index": 0, "name": "add", "arguments": {"x": "<é>"}}
    assert call["id"].startswith("call_")
    assert "tool_calls" not in bare["message"]
    (final,) = send_message(stub, plan, "mochi-native:4b").lines
    assert final["message"]["tool_calls"][0]["function"] == call["function"]
    assert final["done"] is True


def test_tool_calls_are_sent_without_offered_tools(stub: StubServer) -> None:
    plan = instruction(
        messages=[{"text_message": {"length": 2}}, {"tool_call": [{"name": "now", "args": {}}]}]
    )
    whole = send_message(stub, plan, stream=False).json["message"]
    assert whole["content"] == lorem(2)
    streamed = [
        call
        for line in send_message(stub, plan).lines
        for call in line["message"].get("tool_calls", ())
    ]
    for calls in (whole["tool_calls"], streamed):
        assert [call["function"] for call in calls] == [
            {"index": 0, "name": "now", "arguments": {}}
        ]


def test_generate_answers_like_chat(stub: StubServer) -> None:
    answer = send_request(
        stub, "POST", "/api/generate", {"model": "mochi-chat", "prompt": "hello", "stream": False}
    ).json
    assert answer["response"] == f"{hash_sized('hello')} hello"
