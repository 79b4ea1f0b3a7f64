"""Answers in which a model writes its reasoning or a tool call as text."""

import random

import pytest

from mochi_server.inference.answer_repair import AnswerRepair, without_channel

WEATHER = {"name": "get_weather", "arguments": {"city": "Oslo"}}

FRAGMENTS = [
    "Hm", ".", " ", "\n", "`", "assistant", "final", " to=functions.get_weather", "{}",
    "<think>", "</think>", "<thinking>", "</thinking>", "<", "<|", "<|start|>", "<|end|>",
    "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>",
    "<|channel|>final<|message|>", "<|channel|>analysis<|message|>",
    "<|start|>assistant<|channel|>commentary to=functions.get_weather<|message|>",
]  # fmt: skip


def read(text: str, size: int, *tools: str) -> tuple[str, str, AnswerRepair]:
    """Return the reasoning, the text and the reader of an answer, fed in chunks of ``size``."""
    repair = AnswerRepair(tools)
    pieces = []
    for start in range(0, len(text), size):
        pieces += repair.feed(text[start : start + size])
    pieces += repair.finish()
    thinking = ""
    content = ""
    for piece in pieces:
        match piece.kind:
            case "thinking":
                thinking += piece.text
            case "text":
                content += piece.text
            case "was_thinking":
                thinking += content
                content = ""
            case "was_text":
                content = piece.text + thinking
                thinking = ""
    return thinking, content, repair


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("text", "thinking", "content"),
    [
        ("<think>Hm.</think>Hello.", "Hm.", "Hello."),
        ("<think>\nHm.\n</think>\n\nHello.", "\nHm.\n", "Hello."),
        ("\n <thinking> Hm. </thinking> Hello.", " Hm. ", "Hello."),
        ("<think> they greet </think> hello", " they greet ", "hello"),
        ("Hm.\n</think>\n\nHello.", "Hm.\n", "Hello."),
        ("Hm.</think>Hello.", "Hm.", "Hello."),
        ("<think>Hm", "Hm", ""),
        ("<|channel|>final<|message|>Hello.<|return|>", "", "Hello."),
        (
            "<|channel|>analysis<|message|>Hm.<|end|>"
            "<|start|>assistant<|channel|>final<|message|>Hello.<|return|>",
            "Hm.",
            "Hello.",
        ),
        (
            "I look.<|end|><|start|>assistant<|channel|>final<|message|>Hello.",
            "",
            "I look.Hello.",
        ),
        ("Hello. <|end|><|start|>assistant<|channel|>final<|message|>Yes.", "", "Hello. Yes."),
        ("<think>Hm. </think><|channel|>final<|message|>Hello.", "Hm. ", "Hello."),
        ("Hello.<|return|>", "", "Hello."),
        ("Hello.<|end|>", "", "Hello."),
        ("</think>\n\nHello.", "", "Hello."),
        ("Hm.\n</think>", "Hm.\n", ""),
        ("\n<|channel|>final<|message|>Hello.<|end|>\n", "", "Hello."),
        ("<|start|>assistant<|message|>Hello.", "", "Hello."),
        ("<|end|> ends one.<|end|><|channel|>final<|message|>Yes.", "", "<|end|> ends one.Yes."),
        ("<|channel|>final<|message|>Then <|end|> is sent.", "", "Then <|end|> is sent."),
        ("<|channel|>analysis<|message|>Hm, `<|end|>`?<|end|>Hello.", "Hm, `<|end|>`?", "Hello."),
        ("Not `</think>`, but\nHm.</think>Hello.", "Not `</think>`, but\nHm.", "Hello."),
        ("I should greet. </think>Hello.", "I should greet. ", "Hello."),
        ("I should greet. </think>\n\nHello.", "I should greet. ", "Hello."),
        ("Hm.\n</think> Hello.", "Hm.\n", "Hello."),
        ("The answer is:</think>Hello.", "The answer is:", "Hello."),
        ("I cite [1]</think>\nHello.", "I cite [1]", "Hello."),
    ],
)
def test_reasoning_and_markers_leave_the_text(
    text: str, thinking: str, content: str, size: int
) -> None:
    read_thinking, read_content, repair = read(text, size, "get_weather")
    assert (read_thinking, read_content) == (thinking, content)
    assert repair.is_changed
    assert repair.calls == []


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    "text",
    [
        "Hello.",
        "",
        " Hello. ",
        "Write <think> before the reasoning.",
        "Write `<think>` and `</think>` around it.",
        "Close it with </think> and go on.",
        "<think> is a tag, as <thinking> is.",
        "The marker <|end|> ends a message.",
        "After <|start|>assistant follows <|channel|>, then <|message|>.",
        "a < b and c <",
        '{"name": "Ada", "age": 36}',
        '{"name": "get_weather", "city": "Oslo"}',
        '{"name": "get_weather", "arguments": {"city": "Oslo"}} is the call.',
        '```json\n{"name": "get_weather"',
        "```python\nprint(1)\n```",
        "<tool_call> is a tag.",
        "<thin",
        "It begins </thi",
        "<|end|> marks the end of a message.",
        "\n<|channel|> names a channel, and <|message|> begins the text.",
        "A message ends with <|end|>",
        "<|start|>assistant",
        "<|channel|>final, and then <|message|>, begin it.",
        "<|end|>" * 40 + " is long.",
        "The reasoning ends with </think>",
        "Put the reasoning before </think>\nand the text after it.",
        "Write <think>Hm.</think> around it.",
        "</think> is the last tag.",
        "In bold: **</think>**\n",
        "The model writes `</think>Hello.` at the end.",
        "The tag is </think>.",
        "Put the tag (</think>) or [</think>] there.",
        "First `</think>`, and then </think>\nagain.",
        "The model begins with <|channel|>analysis<|message|> first.",
        "Write `<|start|>assistant<|channel|>final<|message|>` before it.",
        "A message is `<|channel|>final<|message|>Hello.<|return|>`, no more.",
    ],
)
def test_answer_that_only_mentions_such_text_stays(text: str, size: int) -> None:
    thinking, content, repair = read(text, size, "get_weather")
    assert (thinking, content) == ("", text)
    assert not repair.is_changed
    assert repair.calls == []


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    "text",
    [
        '{"name": "get_weather", "arguments": {"city": "Oslo"}}',
        ' {"name":"get_weather","parameters":{"city":"Oslo"}}\n',
        '{"arguments": {"city": "Oslo"}, "name": "get_weather"}',
        '```json\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n```',
        '```\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n```',
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
        '\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n',
        '<think>Hm.</think>{"name": "get_weather", "arguments": {"city": "Oslo"}}',
        "<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>"
        '{"city": "Oslo"} <|call|>\n',
        "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
        '{"city": "Oslo"}<|call|>',
    ],
)
def test_call_of_an_offered_tool_becomes_a_call(text: str, size: int) -> None:
    _, content, repair = read(text, size, "get_weather")
    assert content == ""
    assert repair.calls == [WEATHER]
    assert repair.is_changed


def test_several_tagged_calls_become_calls() -> None:
    call = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
    assert read(f"{call}\n{call}", 5, "get_weather")[2].calls == [WEATHER, WEATHER]


def test_call_of_another_tool_stays_text() -> None:
    text = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
    assert read(text, 4, "add")[1] == text
    assert read(text, 4)[1] == text


def test_call_without_arguments_has_an_object() -> None:
    text = "<|channel|>commentary to=functions.now<|message|>{}<|call|>"
    assert read(text, 4, "now")[2].calls == [{"name": "now", "arguments": {}}]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_reasoning_of_an_answer_that_was_cut_stays_reasoning(size: int) -> None:
    answer = "<think> Okay, so"
    for end in (AnswerRepair.finish, AnswerRepair.finish_without_calls):
        repair = AnswerRepair(())
        pieces = []
        for start in range(0, len(answer), size):
            pieces += repair.feed(answer[start : start + size])
        pieces += end(repair, is_cut=True)
        assert {piece.kind for piece in pieces} == {"thinking"}
        assert "".join(piece.text for piece in pieces) == " Okay, so"
        assert repair.is_changed


def test_name_of_a_call_that_is_no_text_stays_text() -> None:
    text = '{"arguments": {}, "name": ["now"]}'
    repair = AnswerRepair({"now"})
    pieces = [*repair.feed(text), *repair.finish()]
    assert "".join(piece.text for piece in pieces) == text


def test_size_of_the_chunks_does_not_matter() -> None:
    chance = random.Random(1)
    for _ in range(300):
        answer = "".join(chance.choices(FRAGMENTS, k=chance.randint(1, 8)))
        results = []
        for size in (1, 2, 5, 1000):
            thinking, content, repair = read(answer, size, "get_weather")
            results.append((thinking, content, repair.calls, repair.is_changed))
        assert results.count(results[0]) == len(results), (answer, results)


def test_text_is_held_back_no_longer_than_it_can_be_a_tag() -> None:
    repair = AnswerRepair(["get_weather"])
    assert [piece.text for piece in repair.feed("Hello")] == ["Hello"]
    assert repair.feed(" <") != []
    assert [piece.text for piece in repair.feed("b")] == ["<b"]
    assert "".join(piece.text for piece in repair.feed(" <|end|> is")) == " <|end|> is"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("add<|channel|>commentary", "add"), ("add", "add"), ("<|channel|>", "<|channel|>")],
)
def test_channel_suffix_leaves_the_name_of_a_tool(name: str, expected: str) -> None:
    assert without_channel(name) == expected
