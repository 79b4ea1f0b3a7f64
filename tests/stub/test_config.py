"""Configurations: the examples of the specification and all other settings."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import Cut, Failure, Message, Prompt, Reasoning, StubServer, Text
from mochi_stub.config import load, validate_config
from mochi_stub.replies.chunks import pieces, planned_end
from mochi_stub.resolver import resolve
from mochi_stub.yaml_file import ConfigError
from tests.stub.requests import send_message, send_request

DATA = Path(__file__).parent / "data"
"""The files `spec-config.yaml`, `spec-inheritance.yaml` and `fixtures/example.yaml` are copies of
the specification's.

"""
INSTRUCTION = (
    '<|instruction_start|>{"messages": [{"text_message": {"length": 2}}]}<|instruction_end|>'
)


def stub_with_config(folder: Path, text: str) -> StubServer:
    file = folder / "config.yaml"
    file.write_text(text, encoding="utf-8")
    return StubServer(config=file, speed=0)


def reply_message(stub: StubServer, model: str, text: str, **fields: Any) -> Any:
    return send_message(stub, text, model, stream=False, **fields).json["message"]


def test_example_of_the_specification_works() -> None:
    assert validate_config(DATA / "spec-config.yaml") == []
    with StubServer(config=DATA / "spec-config.yaml", speed=0) as stub:
        assert reply_message(stub, "echo", " hello\n")["content"] == " hello\n"
        weird = send_message(stub, "x", "weirdo", stream=False).json
        assert weird["message"]["content"] == "asdkjhasd kajshd aksjdh..."
        assert weird["eval_count"] == 999999
        assert reply_message(stub, "thinker", "x") == {
            "role": "assistant",
            "content": "here is my thoughtful response... *gibberish*",
            "thinking": "hmm let me think about this... *gibberish*",
        }
        coded = reply_message(stub, "coder", "x")
        assert coded["thinking"] == "I need to read this file first..."
        assert coded["tool_calls"][0]["function"] == {
            "index": 0,
            "name": "read_file",
            "arguments": {"path": "/src/main.js"},
        }
        assert reply_message(stub, "gpt-4", "hello")["content"] == "Hi there!"
        assert reply_message(stub, "gpt-4", "Hello")["content"] == "Hello"
        assert reply_message(stub, "gpt-4", "load fixture")["content"] == "Hello!"
        for text, status, message in (
            ("test error", 500, "Internal server error"),
            ("rate limit", 429, "Rate limit exceeded"),
        ):
            failed = send_message(stub, text, "gpt-4")
            assert (failed.status, failed.json) == (status, {"error": message})
        deep = send_message(stub, "think hard", "claude-3-opus", stream=False).json
        assert deep["message"]["thinking"] == "Deep thinking happening here..."
        assert (deep["prompt_eval_count"], deep["eval_count"]) == (500, 1000)
        assert reply_message(stub, "claude-3-opus", "x")["content"] == "I'm Claude, how can I help?"
        assert send_message(stub, "x", "gpt-5").status == 404
        listed = [model["id"] for model in send_request(stub, "GET", "/v1/models").json["data"]]
        assert listed == ["echo", "weirdo", "thinker", "coder", "gpt-4", "claude-3-opus"]


@pytest.mark.parametrize("kind", ["message", "echo", "mirror", "lorem", "task", "demo"])
def test_reasoning_calls_and_finish_apply_to_all_generated_types(tmp_path: Path, kind: str) -> None:
    fields = "reasoning: hm, tool_calls: [{name: now}], finish: length, usage: {output: 7}"
    text = (
        f"models:\n  a: [_default: {{type: {kind}, {fields}}}]\n  b: [_default: {{type: {kind}}}]\n"
    )
    text += f"  c: [_default: {{type: {kind}, {fields}, think_tags: true}}]\n"
    (tmp_path / "config.yaml").write_text(text)
    config = load(tmp_path / "config.yaml")
    full, plain, tagged = [
        resolve(Prompt(model, messages=(Message("user", "hello"),)), config) for model in "abc"
    ]
    assert (full.reasoning, full.text, [call.name for call in full.tool_calls]) == (
        "hm",
        plain.text,
        ["now"],
    )
    assert (full.finish, full.usage.output) == ("length", 7)
    assert (tagged.reasoning, tagged.text) == ("", f"<think>hm</think>\n\n{plain.text}")


def test_child_triggers_win_over_inherited_ones() -> None:
    with StubServer(config=DATA / "spec-inheritance.yaml", speed=0) as stub:
        assert (
            reply_message(stub, "claude-3-opus", "hello")["content"] == "Hi from Opus specifically!"
        )
        assert reply_message(stub, "claude-3-opus", "think")["thinking"] == "Deep thoughts..."
        assert reply_message(stub, "claude-3-opus", "other")["content"] == "I'm Claude"
        assert reply_message(stub, "base-claude", "hello")["content"] == "Hi from Claude!"
        rules = [(exchange.rule, exchange.passed_over) for exchange in stub.exchanges()]
    assert rules[0] == (
        "trigger 'hello' of claude-3-opus",
        ("instruction block: no valid block",),
    )
    assert rules[2] == (
        "_default of base-claude",
        (
            "instruction block: no valid block",
            "claude-3-opus: no match among its triggers (2)",
            "base-claude: no match among its triggers (1)",
            "claude-3-opus: no _default",
        ),
    )


def test_inherited_trigger_wins_over_own_default(tmp_path: Path) -> None:
    text = """
models:
  _base: [{"hello": "from the base"}]
  child: [{_inherit: _base}, {_default: "from the child"}]
  grandchild: [{_inherit: child}]
  bare:
"""
    with stub_with_config(tmp_path, text) as stub:
        assert reply_message(stub, "grandchild", "hello")["content"] == "from the base"
        assert reply_message(stub, "grandchild", "other")["content"] == "from the child"
        assert reply_message(stub, "bare", "hello")["content"].endswith(" hello")
        assert reply_message(stub, "_base", "hello")["content"] == "from the base"
        names = [model["name"] for model in send_request(stub, "GET", "/api/tags").json["models"]]
        assert names == ["child:latest", "grandchild:latest", "bare:latest"]
        assert stub.exchanges()[2].rule == "built-in: lorem and echo"


def test_model_without_declaration_has_all_capabilities(tmp_path: Path) -> None:
    text = "models: {any: [{_default: {type: message, reasoning: hm, tool_calls: [{name: now}]}}]}"
    with stub_with_config(tmp_path, text) as stub:
        capabilities = send_request(stub, "POST", "/api/show", {"model": "any"}).json[
            "capabilities"
        ]
        assert {"completion", "tools", "thinking", "embedding"} <= set(capabilities)
        message = reply_message(stub, "any", "x", think=True)
        assert message["thinking"] == "hm"
        assert "thinking" not in reply_message(stub, "any", "x", think=False)
        assert message["tool_calls"][0]["function"]["name"] == "now"
        assert (
            len(
                send_request(stub, "POST", "/api/embed", {"model": "any", "input": "x"}).json[
                    "embeddings"
                ][0]
            )
            >= 256
        )


@pytest.mark.parametrize(("model", "context"), [("any", 512), ("seeing", 2048), ("child", 2048)])
def test_vision_model_has_a_large_context(tmp_path: Path, model: str, context: int) -> None:
    seeing = "[{_model: {capabilities: [completion, vision]}}]"
    with stub_with_config(
        tmp_path, f"models: {{any: [], seeing: {seeing}, child: [{{_inherit: seeing}}]}}"
    ) as stub:
        send_message(stub, "x", model, options={"num_ctx": 512})
        assert [
            one["context_length"] for one in send_request(stub, "GET", "/api/ps").json["models"]
        ] == [context]


def test_model_declarations_are_inherited_and_shown(tmp_path: Path) -> None:
    text = """
models:
  _base: [{_model: {context_length: 1000, family: qwen3, capabilities: [completion, tools]}}]
  child:
    - _inherit: _base
    - _model: {capabilities: [completion], chars_per_token: 4, parameters: {num_predict: 3}, system: "Be brief."}
"""
    with stub_with_config(tmp_path, text) as stub:
        shown = send_request(stub, "POST", "/api/show", {"model": "child"}).json
        assert shown["capabilities"] == ["completion"]
        assert shown["model_info"]["qwen3.context_length"] == 1000
        assert shown["system"] == "Be brief."
        answer = send_message(stub, "hello", "child", stream=False).json
        assert (len(answer["message"]["content"]), answer["eval_count"]) == (12, 3)


def test_parameter_size_needs_no_unit(tmp_path: Path) -> None:
    with stub_with_config(tmp_path, 'models: {a: [{_model: {parameter_size: "8.6"}}]}') as stub:
        shown = send_request(stub, "POST", "/api/show", {"model": "a"})
        assert shown.status == 200
        assert shown.json["details"]["parameter_size"] == "8.6"


def test_answered_tool_calls_are_not_repeated(tmp_path: Path) -> None:
    text = "models: {caller: [{_default: {type: message, tool_calls: [{name: now}]}}]}"
    with stub_with_config(tmp_path, text) as stub:
        call_message = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "now", "arguments": {}}}],
        }
        messages = [
            {"role": "user", "content": "time?"},
            call_message,
            {"role": "tool", "content": "noon"},
        ]
        answer = send_request(
            stub, "POST", "/api/chat", {"model": "caller", "messages": messages, "stream": False}
        ).json
        assert answer["message"]["content"] == "noon"
        assert "tool_calls" not in answer["message"]
        assert stub.exchanges()[-1].rule == "_default of caller, with the results of its tool calls"
        assert (
            "_default of caller: its tool calls already have results"
            in stub.exchanges()[-1].passed_over
        )


WEATHER = """
models:
  bot:
    - "weather?": {type: message, content: "Sunny.", tool_calls: [{name: look, arguments: {at: Oslo}}]}
    - _default: {type: message, tool_calls: [{name: look}]}
"""
LOOKED: list[Any] = [
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "look", "arguments": {}}}],
    },
    {"role": "tool", "content": "21 degrees", "tool_name": "look"},
]


@pytest.mark.parametrize("reminder", [[], [{"role": "user", "content": "Go on with your plan."}]])
@pytest.mark.parametrize(("text", "answer"), [("weather?", "Sunny."), ("other", "21 degrees")])
def test_reply_after_tool_results_calls_no_tool(
    tmp_path: Path, reminder: list[Any], text: str, answer: str
) -> None:
    with stub_with_config(tmp_path, WEATHER) as stub:
        messages = [{"role": "user", "content": text}]
        body = {"model": "bot", "stream": False}
        first = send_request(stub, "POST", "/api/chat", {**body, "messages": messages}).json[
            "message"
        ]
        assert [call["function"]["name"] for call in first["tool_calls"]] == ["look"]
        messages = [*messages, *LOOKED, *reminder]
        last = send_request(stub, "POST", "/api/chat", {**body, "messages": messages}).json[
            "message"
        ]
    assert last == {"role": "assistant", "content": answer}


def test_new_message_after_an_answer_calls_tools_again(tmp_path: Path) -> None:
    with stub_with_config(tmp_path, WEATHER) as stub:
        messages = [
            {"role": "user", "content": "x"},
            *LOOKED,
            {"role": "assistant", "content": "It is warm."},
        ]
        messages += [{"role": "user", "content": "weather?"}]
        body = {"model": "bot", "stream": False, "messages": messages}
        assert "tool_calls" in send_request(stub, "POST", "/api/chat", body).json["message"]


def test_triggers_match_substrings_and_regular_expressions(tmp_path: Path) -> None:
    text = r"""
models:
  bot:
    - "weather": "exact"
    - "weather in": {type: message, content: "substring", match: substring}
    - '(?i)^weather .*\d+$': {type: message, content: "regex", match: regex}
    - "exact too": {type: message, content: "declared exact", match: exact}
    - _default: "none"
  child: [{_inherit: bot}]
"""
    messages = {
        "weather": "exact",
        "the weather in Oslo": "substring",
        "Weather on day 12": "regex",
        "the exact too": "none",
        "exact too": "declared exact",
        "Weather": "none",
    }
    with stub_with_config(tmp_path, text) as stub:
        for model in ("bot", "child"):
            assert [reply_message(stub, model, said)["content"] for said in messages] == list(
                messages.values()
            )
        assert stub.exchanges()[1].rule == "trigger 'weather in' (substring) of bot"


def test_included_models_keep_their_replies(tmp_path: Path) -> None:
    text = """
include: default
models:
  map: [{_default: "mine"}]
  child: [{_inherit: echo}, {_model: {context_length: 1000}}]
  plain: [{_inherit: mochi-chat}]
"""
    with stub_with_config(tmp_path, text) as stub, StubServer(speed=0) as packaged:
        names = [model["id"] for model in send_request(stub, "GET", "/v1/models").json["data"]]
        packaged_names = [
            model["id"] for model in send_request(packaged, "GET", "/v1/models").json["data"]
        ]
        assert names == [
            *(name for name in packaged_names if name != "map"),
            "map",
            "child",
            "plain",
        ]
        assert reply_message(stub, "map", "hello")["content"] == "mine"
        assert reply_message(stub, "child", "hello")["content"] == "hello"
        for model in ("mochi", "mochi-native:4b"):
            body = {"model": model}
            assert (
                send_request(stub, "POST", "/api/show", body).body
                == send_request(packaged, "POST", "/api/show", body).body
            )
        assert (
            send_message(stub, "hello", "mochi").body
            == send_message(packaged, "hello", "mochi").body
        )
        assert (
            send_request(stub, "POST", "/api/show", {"model": "plain"}).json["details"]["family"]
            == "gemma2"
        )


def test_default_follows_a_trigger_with_only_tool_calls(tmp_path: Path) -> None:
    text = """
models:
  ag:
    - "loop": {type: message, tool_calls: [{name: ok, arguments: {}}]}
    - _default: fin
"""
    with stub_with_config(tmp_path, text) as stub:
        called = reply_message(stub, "ag", "loop")
        assert [call["function"]["name"] for call in called["tool_calls"]] == ["ok"]
        messages = [
            {"role": "user", "content": "loop"},
            called,
            {"role": "tool", "content": "done"},
        ]
        answer = send_request(
            stub, "POST", "/api/chat", {"model": "ag", "messages": messages, "stream": False}
        ).json
        assert answer["message"] == {"role": "assistant", "content": "fin"}


def test_instruction_block_wins_over_triggers(tmp_path: Path) -> None:
    with stub_with_config(tmp_path, "models: {any: [{_default: no}]}") as stub:
        assert reply_message(stub, "any", INSTRUCTION)["content"] == "lorem ipsum"
        assert stub.exchanges()[-1].rule == "instruction block"


def test_keys_are_the_texts_as_written(tmp_path: Path) -> None:
    text = (
        'models: {4: [{yes: "y", 12: "twelve", 2026-01-01: 2026-02-30, null: "nil", 9+10=: "x"}]}'
    )
    with stub_with_config(tmp_path, text) as stub:
        for trigger, answer in (
            ("yes", "y"),
            ("12", "twelve"),
            ("2026-01-01", "2026-02-30"),  # an impossible date
            ("null", "nil"),
            ("9+10=", "x"),
        ):
            assert reply_message(stub, "4", trigger)["content"] == answer


def test_numbers_and_truth_values_are_texts_as_written(tmp_path: Path) -> None:
    text = "models: {a: [{one: 1.10, two: yes, three: {type: message, content: [007, off]}}]}"
    with stub_with_config(tmp_path, text) as stub:
        for trigger, answer in (("one", "1.10"), ("two", "yes"), ("three", "007off")):
            assert reply_message(stub, "a", trigger)["content"] == answer


@pytest.mark.parametrize("key", ["template_style", "habit"])
def test_template_style_has_an_earlier_name(tmp_path: Path, key: str) -> None:
    (tmp_path / "config.yaml").write_text(
        f"models: {{a: [{{_model: {{{key}: native}}}}], b: [{{_inherit: a}}]}}"
    )
    assert [model.template_style for model in load(tmp_path / "config.yaml").models] == [
        "native",
        "native",
    ]


def test_anchors_and_merges_work(tmp_path: Path) -> None:
    text = """
models:
  one: [&d {_default: {type: message, content: hi, usage: &u {input: 1, output: 2}}}]
  two: [*d]
  three: [{_default: {type: echo, usage: &v {<<: *u, output: 3}}}]
  four: [{_default: {type: echo, usage: *v}}]
"""
    with stub_with_config(tmp_path, text) as stub:
        assert reply_message(stub, "two", "x")["content"] == "hi"
        for model in ("three", "four"):
            answer = send_message(stub, "x", model, stream=False).json
            assert (answer["prompt_eval_count"], answer["eval_count"]) == (1, 3)


def test_recorded_paths_are_relative_to_the_config_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with StubServer(config=DATA / "spec-config.yaml", speed=0) as stub:
        assert reply_message(stub, "gpt-4", "load fixture")["content"] == "Hello!"


def test_invalid_config_does_not_start_a_server(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.yaml:1: expected a mapping as models"):
        stub_with_config(tmp_path, "models: 5")
    with pytest.raises(ConfigError, match=r"none\.yaml:1: expected a readable file"):
        load(tmp_path / "none.yaml")


def test_delay_is_added_before_each_chunk(tmp_path: Path) -> None:
    text = (
        "models: {slow: [{_default: {type: message, content: [a, b, c], delay: 0.5, "
        "tokens_per_second: 10}}]}"
    )
    (tmp_path / "config.yaml").write_text(text)
    reply = resolve(
        Prompt("slow", messages=(Message("user", "x"),)), load(tmp_path / "config.yaml")
    )
    assert [piece.due for piece in pieces(reply)] == [600_000_000, 1_200_000_000, 1_800_000_000]
    assert planned_end(reply) == 1_800_000_000


DURATIONS = """
models:
  plain:
    - _default: {type: message, content: "abcdefghij", durations: {load: 1, prompt_eval: 2, eval: 5}}
  settings:
    - _inherit: plain
    - _model: {profile: token, tokens_per_second: 1000}
  reasoning:
    - _default: {type: message, reasoning: Hm, content: ab, durations: {load: 3, eval: 5}}
"""


@pytest.mark.parametrize(
    ("model", "think", "chunks"),
    [
        pytest.param("plain", None, 1, id="five words per chunk"),
        pytest.param("settings", None, 3, id="stream settings"),
        pytest.param("plain", True, 5, id="added reasoning"),
        pytest.param("reasoning", False, 1, id="removed reasoning"),
    ],
)
def test_text_takes_the_configured_durations(
    tmp_path: Path, model: str, think: bool | None, chunks: int
) -> None:
    (tmp_path / "config.yaml").write_text(DURATIONS)
    prompt = Prompt(
        model,
        messages=(Message("user", "x"),),
        requested_thinking=think,
        includes_reasoning=think is not False,
    )
    reply = resolve(prompt, load(tmp_path / "config.yaml"))
    due = [piece.due for piece in pieces(reply) if piece.kind in (Reasoning, Text)]
    assert len(due) == chunks
    assert due[0] > 3_000_000_000
    assert due[-1] == pytest.approx(8_000_000_000)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("hello", id="built-in reply"),
        pytest.param(INSTRUCTION, id="instruction block"),
    ],
)
def test_stream_settings_of_a_model_apply_to_replies_without_a_rule(
    tmp_path: Path, text: str
) -> None:
    settings = "profile: token, pause: {after: 1, seconds: 10}, cut_after: 2"
    config = (
        f"models: {{limited: [{{_model: {{fail: {{status: 429}}}}}}], "
        f"broken: [{{_model: {{{settings}}}}}]}}"
    )
    with stub_with_config(tmp_path, config) as stub:
        assert send_message(stub, text, "limited", stream=False).status == 429
        lines = send_message(stub, text, "broken").lines
        assert [line["message"]["content"] for line in lines] == ["lore", "m ip"]
    prompt = Prompt("broken", messages=(Message("user", text),))
    first, second, _ = pieces(resolve(prompt, load(tmp_path / "config.yaml")))
    assert second.due - first.due > 10e9


@pytest.mark.parametrize(
    ("count", "ending", "kinds"),
    [
        pytest.param(0, "fail: {status: 503}", [Failure], id="error"),
        pytest.param(0, "cut_after: 0", [Cut], id="cut"),
        pytest.param(0, "cut_after: 0, fail: {status: 503}", [Cut], id="cut before error"),
        pytest.param(1, "fail: {after: 1}", [Text, Failure], id="after a chunk"),
        pytest.param(9, "fail: {after: 9}", [Text, Text, Failure], id="after the last chunk"),
        pytest.param(9, "cut_after: 9, fail: {after: 9}", [Text, Text, Cut], id="all at the end"),
    ],
)
def test_pause_comes_before_an_end_at_the_same_chunk(
    tmp_path: Path, count: int, ending: str, kinds: list[type]
) -> None:
    (tmp_path / "config.yaml").write_text(
        "models: {bot: [{_default: {type: message, content: [one, two], "
        f"pause: {{seconds: 10, after: {count}}}, {ending}}}}}]}}"
    )
    prompt = Prompt("bot", messages=(Message("user", "hello"),))
    found = list(pieces(resolve(prompt, load(tmp_path / "config.yaml"))))
    assert [piece.kind for piece in found] == kinds
    assert found[-1].due >= 10e9


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param("cut_after: 20", id="cut"),
        pytest.param("fail: {after: 20, status: 503}", id="error"),
        pytest.param("cut_after: 0, fail: {status: 503}", id="cut and error at once"),
    ],
)
def test_stream_settings_of_a_model_do_not_replace_a_configured_error(
    tmp_path: Path, settings: str
) -> None:
    config = (
        f"models: {{bot: [{{_model: {{{settings}}}}}, "
        "{hi: {type: error, status: 429, message: slow down}}]}"
    )
    with stub_with_config(tmp_path, config) as stub:
        for stream in (True, False):
            failed = send_message(stub, "hi", "bot", stream=stream)
            assert (failed.status, failed.json) == (429, {"error": "slow down"})


def test_configured_error_is_sent_without_the_pause_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "models: {bot: [{_model: {pause: {seconds: 10, after: 3}}}, {hi: {type: error}}]}"
    )
    prompt = Prompt("bot", messages=(Message("user", "hi"),))
    assert planned_end(resolve(prompt, load(tmp_path / "config.yaml"))) == 0


@pytest.mark.parametrize("ending", ["cut_after: 9", "fail: {after: 9, status: 503}"])
def test_recorded_error_stays_if_it_comes_before_a_configured_end(
    tmp_path: Path, ending: str
) -> None:
    (tmp_path / "reply.yaml").write_text(
        "request: {url: http://localhost:11434/api/chat}\n"
        "response:\n"
        "  status: 200\n"
        "  is_streaming: true\n"
        "  body: [{message: {content: one}}, {error: slow down}]\n"
    )
    config = f"models: {{bot: [{{_default: {{type: file, path: reply.yaml, {ending}}}}}]}}"
    with stub_with_config(tmp_path, config) as stub:
        text, failure = send_message(stub, "hi", "bot").lines
    assert (text["message"]["content"], failure) == ("one", {"error": "slow down"})


def test_stream_settings_of_a_model_apply_to_the_text_of_tool_results(tmp_path: Path) -> None:
    config = (
        "models: {bot: [{_model: {profile: token, cut_after: 1}}, "
        "{_default: {type: message, tool_calls: [{name: now}]}}]}"
    )
    messages = [
        {"role": "user", "content": "When?"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "now"}}]},
        {"role": "tool", "tool_name": "now", "content": "at noon"},
    ]
    with stub_with_config(tmp_path, config) as stub:
        body = {"model": "bot", "messages": messages}
        lines = send_request(stub, "POST", "/api/chat", body).lines
        assert [line["message"]["content"] for line in lines] == ["at n"]


def test_stream_settings_of_a_model_do_not_change_embeddings(tmp_path: Path) -> None:
    config = (
        "models: {built-in: [{_model: {fail: {status: 429}, cut_after: 0}}], "
        "zero: [{_inherit: built-in}, {_default: {type: embedding, vector: zero}}]}"
    )
    with stub_with_config(tmp_path, config) as stub:
        for model in ("built-in", "zero"):
            body = {"model": model, "input": "hello"}
            assert send_request(stub, "POST", "/api/embed", body).status == 200


@pytest.mark.parametrize("length", [1, 8])
def test_embedding_can_be_short(tmp_path: Path, length: int) -> None:
    config = f"models: {{small: [{{_model: {{embedding_length: {length}}}}}]}}"
    with stub_with_config(tmp_path, config) as stub:
        request = {"model": "small", "input": "the cat sat on the mat"}
        [vector] = send_request(stub, "POST", "/api/embed", request).json["embeddings"]
    assert len(vector) == length
    assert sum(value * value for value in vector) == pytest.approx(1, abs=1e-5)


def test_vector_is_sent_as_configured(tmp_path: Path) -> None:
    config = "models: {fixed: [{_default: {type: embedding, vector: [3, 4]}}]}"
    openai = {"model": "fixed", "input": "x"}
    gemini = {"content": {"parts": [{"text": "x"}]}}
    with stub_with_config(tmp_path, config) as stub:
        whole = send_request(stub, "POST", "/v1/embeddings", openai).json
        short = send_request(stub, "POST", "/v1/embeddings", {**openai, "dimensions": 1}).json
        google = send_request(stub, "POST", "/v1beta/models/fixed:embedContent", gemini).json
        ollama = send_request(stub, "POST", "/api/embed", openai).json
    assert whole["data"][0]["embedding"] == [3, 4]
    assert short["data"][0]["embedding"] == [1]
    assert google["embedding"]["values"] == [3, 4]
    assert ollama["embeddings"] == [[0.6, 0.8]]  # Ollama normalises all vectors


def test_log_has_one_line_a_request_with_its_mode(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = """
models:
  any:
    - "think": {type: message, reasoning: hm, content: yes}
    - "call": {type: message, tool_calls: [{name: now}]}
    - "fail": {type: error, status: 429}
    - _default: {type: echo}
"""
    with caplog.at_level(logging.INFO, "mochi_stub"), stub_with_config(tmp_path, text) as stub:
        for _ in range(2):  # the second time from the cache
            for said in ("think", "call", "fail", "other"):
                send_message(stub, said, "any")
        send_request(stub, "GET", "/api/version")
        stub.wait_for(lambda seen: len(seen) == 9)
        modes = [exchange.mode for exchange in stub.exchanges()]
    assert modes == ["reasoning+text", "tool_calls", "error", "text"] * 2 + [""]
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 9
    assert lines[0] == "POST /api/chat status=200 outcome=finished chunks=2 mode=reasoning+text"
    assert lines[2].endswith("mode=error")
    assert lines[-1].endswith("GET /api/version status=200 outcome=finished chunks=0 mode=-")
