"""Turns of a recorded conversation in a configuration: the stub answers each prompt as the
conversation did.
"""

from pathlib import Path
from typing import Any

import pytest

from mochi_stub import Message, Prompt, StubServer
from mochi_stub.config import load, validate_config
from mochi_stub.replies.chunks import pieces
from mochi_stub.resolver import resolve
from tests.stub.requests import send_request

CONFIG = """
models:
  bot:
    - _turns:
        - user: "Yes"
          replies: ["First yes."]
        - user: "Yes"
          replies:
            - {type: message, tool_calls: [{name: add, arguments: {a: 1}}], usage: {input: 7, output: 3}}
            - {type: message, tool_calls: [{name: add, arguments: {a: 2}}]}
            - {type: message, reasoning: "Hm.", content: "Second yes.", durations: {total: 9.5, load: 1, eval: 4}}
        - user: "Bye"
          replies: [{type: error, status: 500}]
    - "Hello": "Hi."
    - _default: "Something else."
"""
SECOND = ["user: Yes", "assistant: First yes.", "user: Yes"]
CALLED = [*SECOND, "assistant: ", "tool: 3"]


@pytest.fixture
def stub(tmp_path: Path) -> Any:
    (tmp_path / "config.yaml").write_text(CONFIG)
    with StubServer(config=tmp_path / "config.yaml", speed=0) as stub:
        yield stub


def answer(stub: StubServer, lines: list[str], **fields: Any) -> Any:
    messages = [dict(zip(("role", "content"), line.split(": ", 1), strict=True)) for line in lines]
    body = {"model": "bot", "messages": messages, "stream": False, **fields}
    return send_request(stub, "POST", "/api/chat", body).json


def test_each_turn_and_round_has_its_own_reply(stub: StubServer) -> None:
    assert answer(stub, ["user: Yes"])["message"]["content"] == "First yes."
    first = answer(stub, SECOND)
    assert first["message"]["tool_calls"][0]["function"] == {
        "index": 0,
        "name": "add",
        "arguments": {"a": 1},
    }
    assert (first["prompt_eval_count"], first["eval_count"]) == (7, 3)
    assert answer(stub, CALLED)["message"]["tool_calls"][0]["function"]["arguments"] == {"a": 2}
    last = answer(stub, [*CALLED, "assistant: ", "tool: 4"])
    assert last["message"] == {"role": "assistant", "content": "Second yes.", "thinking": "Hm."}
    seconds = {name: last[f"{name}_duration"] / 1e9 for name in ("total", "load", "eval")}
    assert seconds == {"total": 9.5, "load": 1, "eval": 4}
    assert stub.exchanges()[-1].rule == "turn 2 of bot, reply 3"
    assert "error" in answer(stub, [*SECOND, "assistant: Second yes.", "user: Bye"])


def test_prompt_without_its_oldest_messages_continues_the_conversation(stub: StubServer) -> None:
    assert "error" in answer(
        stub, ["system: Summary.", "user: Yes", "assistant: Second yes.", "user: Bye"]
    )


def test_durations_of_a_reply_are_its_timing(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    roles_and_texts = [line.split(": ", 1) for line in [*CALLED, "assistant: ", "tool: 4"]]
    messages = tuple(Message(role, text) for role, text in roles_and_texts)
    reply = resolve(Prompt("bot", messages=messages), load(tmp_path / "config.yaml"))
    assert [piece.due / 1e9 for piece in pieces(reply)] == pytest.approx([1 + 4 * 3 / 14, 5])


def test_think_false_removes_the_reasoning_of_a_turn(stub: StubServer) -> None:
    lines = [*CALLED, "assistant: ", "tool: 4"]
    assert answer(stub, lines, think=False)["message"] == {
        "role": "assistant",
        "content": "Second yes.",
    }


def test_other_messages_get_the_replies_of_triggers(stub: StubServer) -> None:
    assert answer(stub, ["user: Hello"])["message"]["content"] == "Hi."
    assert (
        answer(stub, ["user: Yes", "assistant: First yes.", "user: No"])["message"]["content"]
        == "Something else."
    )
    rounds = ["assistant: ", "tool: 1"] * 3
    assert answer(stub, [*SECOND, *rounds])["message"]["content"] == "Something else."


@pytest.mark.parametrize(
    ("turn", "problem"),
    [
        ("{replies: [x]}", "expected the key user in _turns"),
        ("{user: x, reply: y}", "expected the key replies, found 'reply'"),
        ("{user: x, replies: [{type: massage}]}", "expected a type: message"),
        ("{user: x, replies: y}", "expected a list as replies"),
    ],
)
def test_mistake_in_a_turn_is_reported_with_its_line(
    tmp_path: Path, turn: str, problem: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"models:\n  bot:\n    - _turns:\n      - {turn}\n")
    assert problem in validate_config(file)[0]
    assert ":4:" in validate_config(file)[0]
