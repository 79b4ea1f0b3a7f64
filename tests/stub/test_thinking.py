"""Thinking that a request enables or disables, on every API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from tests.stub.requests import send_request
from tests.stub.test_all_providers import PATHS, body
from tests.support.cases import cases

ENABLED: list[tuple[str, dict[str, Any]]] = [
    *(("ollama", {"think": think, "stream": False}) for think in (True, "low", "max")),
    *(("chat", {"reasoning_effort": effort}) for effort in ("minimal", "low", "high")),
    *(
        ("response", {"reasoning": reasoning})
        for reasoning in ({"effort": "low"}, {"summary": "auto"})
    ),
    ("message", {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
    ("message", {"thinking": {"type": "adaptive"}}),
    *(
        ("gemini", {"generationConfig": {"thinkingConfig": {"includeThoughts": True, **config}}})
        for config in ({}, {"thinkingBudget": -1}, {"thinkingLevel": "LOW"})
    ),
]
DISABLED: list[tuple[str, dict[str, Any]]] = [
    ("ollama", {"think": False, "stream": False}),
    ("chat", {"reasoning_effort": "none"}),
    ("response", {"reasoning": {"effort": "none"}}),
    ("message", {"thinking": {"type": "disabled"}}),
    (
        "gemini",
        {"generationConfig": {"thinkingConfig": {"includeThoughts": True, "thinkingBudget": 0}}},
    ),
]
UNSET: list[tuple[str, dict[str, Any]]] = [
    *(("ollama", {"stream": False}), ("chat", {}), ("response", {}), ("message", {})),
    ("gemini", {"generationConfig": {"thinkingConfig": {"includeThoughts": False}}}),
]


def ask(
    stub: StubServer, wire: str, text: str, fields: dict[str, Any], model: str = "mochi"
) -> tuple[str, str, int]:
    """Return the thinking and the text of a reply, and its number of thinking tokens.

    Ollama does not count these.
    """
    request = {**body(wire, text, **fields), "model": model}
    answer = send_request(stub, "POST", PATHS[wire].replace("mochi", model), request)
    assert answer.status == 200, answer.body
    return _READERS[wire](answer.json)


def _read_ollama(reply: Any) -> tuple[str, str, int]:
    thinking = reply["message"].get("thinking", "")
    return thinking, reply["message"]["content"], len(thinking)


def _read_chat(reply: Any) -> tuple[str, str, int]:
    message, details = reply["choices"][0]["message"], reply["usage"]["completion_tokens_details"]
    return message.get("reasoning", ""), message["content"], details["reasoning_tokens"]


def _read_response(reply: Any) -> tuple[str, str, int]:
    thinking = [part["text"] for item in reply["output"] for part in item.get("summary", ())]
    texts = [part["text"] for item in reply["output"] for part in item.get("content", ())]
    return (
        "".join(thinking),
        "".join(texts),
        reply["usage"]["output_tokens_details"]["reasoning_tokens"],
    )


def _read_message(reply: Any) -> tuple[str, str, int]:
    texts = [
        "".join(block.get(kind, "") for block in reply["content"]) for kind in ("thinking", "text")
    ]
    details = reply["usage"].get("output_tokens_details", {"thinking_tokens": 0})
    return texts[0], texts[1], details["thinking_tokens"]


def _read_gemini(reply: Any) -> tuple[str, str, int]:
    parts = reply["candidates"][0]["content"]["parts"]
    thinking = "".join(part["text"] for part in parts if part.get("thought"))
    text = "".join(part["text"] for part in parts if not part.get("thought"))
    return thinking, text, reply["usageMetadata"].get("thoughtsTokenCount", 0)


_READERS = {
    "ollama": _read_ollama,
    "chat": _read_chat,
    "response": _read_response,
    "message": _read_message,
    "gemini": _read_gemini,
}


@cases(("wire", "fields"), ENABLED)
def test_model_thinks_on_request(stub: StubServer, wire: str, fields: dict[str, Any]) -> None:
    thinking, text, tokens = ask(stub, wire, "hello", fields)
    assert thinking.startswith("lorem")
    assert text.endswith(" hello")
    assert tokens == len(thinking) <= 1024  # the smallest budget of Anthropic


@cases(("wire", "fields"), UNSET)
def test_model_does_not_think_without_a_request(
    stub: StubServer, wire: str, fields: dict[str, Any]
) -> None:
    assert ask(stub, wire, "hello", fields)[::2] == ("", 0)


@cases(("wire", "fields"), ENABLED[3:])
def test_model_that_cannot_think_does_not(
    stub: StubServer, wire: str, fields: dict[str, Any]
) -> None:
    assert ask(stub, wire, "hello", fields, "mochi-chat")[::2] == ("", 0)


@cases(("wire", "fields"), ENABLED)
def test_configured_model_thinks_on_request(
    stub: StubServer, wire: str, fields: dict[str, Any]
) -> None:
    thinking, text, _ = ask(stub, wire, "hello", fields, "echo")
    assert (thinking[:5], text) == ("lorem", "hello")
    assert ask(stub, wire, "hello", fields, "thinker")[0].startswith("I was told something.")


@cases(("wire", "fields"), DISABLED)
def test_disabled_thinking_removes_configured_reasoning(
    stub: StubServer, wire: str, fields: dict[str, Any]
) -> None:
    assert ask(stub, wire, "hello", fields, "thinker") == ("", "hello", 0)
    assert ask(stub, wire, "What?\nReason: why not", fields)[::2] == ("", 0)


def test_think_tags_stay_in_the_text(stub: StubServer) -> None:
    for think in (True, False, None):
        thinking, text, _ = ask(
            stub, "ollama", "hello", {"think": think, "stream": False}, "think-tags"
        )
        assert (thinking, text.partition("</think>")[0][:7]) == ("", "<think>")


def test_hidden_thoughts_of_gemini_are_counted(stub: StubServer) -> None:
    fields = {"generationConfig": {"thinkingConfig": {"thinkingBudget": 1024}}}
    thinking, _, tokens = ask(stub, "gemini", "hello", fields)
    assert thinking == ""
    assert tokens > 0


def test_error_reply_has_no_thinking(stub: StubServer) -> None:
    request = {**body("ollama"), "model": "failing", "think": True}
    assert send_request(stub, "POST", "/api/chat", request).status == 500


def test_disabled_thinking_removes_the_configured_count(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    reply = "{type: message, reasoning: hm, content: yes, usage: {output: 9, reasoning: 4}}"
    config.write_text(f"models: {{any: [{{_default: {reply}}}]}}")
    with StubServer(config=config, speed=0) as stub:
        assert ask(stub, "chat", "hello", {}, "any") == ("hm", "yes", 4)
        assert ask(stub, "chat", "hello", {"reasoning_effort": "none"}, "any") == ("", "yes", 0)


REPLIES = """
models:
  quiet: [{_default: ""}]
  pensive: [{_default: {type: message, reasoning: hm}}]
  broken: [{_default: {type: message, reasoning: hm, content: [a, b, c], fail: {after: 2, message: full}}}]
"""


@pytest.fixture(scope="module")
def configured_stub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StubServer]:
    config = tmp_path_factory.mktemp("thinking") / "config.yaml"
    config.write_text(REPLIES)
    with StubServer(config=config, speed=0) as stub:
        yield stub


def test_reply_without_text_follows_the_request(configured_stub: StubServer) -> None:
    enabled, disabled = ({"think": think, "stream": False} for think in (True, False))
    assert ask(configured_stub, "ollama", "hello", enabled, "quiet")[0].startswith("lorem")
    assert ask(configured_stub, "ollama", "hello", disabled, "pensive")[0] == ""
    tool = {"type": "function", "function": {"name": "now"}}
    request = {**body("chat"), "model": "quiet", "tools": [tool], "tool_choice": "required"}
    choice = send_request(configured_stub, "POST", "/v1/chat/completions", request).json["choices"][
        0
    ]
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "now"


def test_error_follows_the_configured_number_of_chunks(
    stub: StubServer, configured_stub: StubServer
) -> None:
    for model, think in (("broken", False), ("broken", True), ("rate-limited-midway", True)):
        request = {**body("ollama"), "model": model, "think": think, "stream": True}
        answer = send_request(
            configured_stub if model == "broken" else stub, "POST", "/api/chat", request
        )
        assert answer.status == 200
        assert len(answer.body.splitlines()) == len(["chunk", "chunk", "error"])
