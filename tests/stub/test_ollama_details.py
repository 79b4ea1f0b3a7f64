"""Details of Ollama's API: Go's number and string formats, model names, thinking habits and log
probabilities.
"""

from __future__ import annotations

from typing import Any

import pytest

from mochi_stub import Gate, Logprob, Model, Reasoning, Reply, StubServer, Text
from mochi_stub.json_encoding import go_dumps, go_text, number, quoted, timestamp
from mochi_stub.providers.ollama.models import full_name, short_name, valid_name
from mochi_stub.reply import HttpError
from tests.stub.requests import send_message, send_request
from tests.support.cases import cases


@cases(
    ("value", "written"),
    [
        (0.0, "0"),
        (1.5, "1.5"),
        (-2.0, "-2"),
    ],
)
def test_whole_numbers_have_no_fraction(value: float, written: str) -> None:
    assert number(value) == written


def test_strings_are_escaped_like_in_go() -> None:
    assert go_text('<a href="x">&\u2028\u2029\x00\x7f\b\f\t é\U0001f361\\') == (
        '"\\u003ca href=\\"x\\"\\u003e\\u0026\\u2028\\u2029\\u0000\x7f\\b\\f\\t é\U0001f361\\\\"'
    )
    assert go_dumps({"<": [True, None, 1, {}, []]}) == '{"\\u003c":[true,null,1,{},[]]}'


def test_strings_are_quoted_like_in_go() -> None:
    assert quoted('a"\\\né') == '"a\\"\\\\\\né"'


def test_times_have_no_trailing_zeros() -> None:
    assert timestamp(1_767_225_600_000_000_000) == "2026-01-01T00:00:00Z"
    assert timestamp(1_767_225_600_120_000_000) == "2026-01-01T00:00:00.12Z"
    assert timestamp(1_767_225_600_000_000_001) == "2026-01-01T00:00:00.000000001Z"


@cases(
    ("name", "short", "full"),
    [
        ("a", "a:latest", "registry.ollama.ai/library/a:latest"),
        ("a:7b", "a:7b", "registry.ollama.ai/library/a:7b"),
        ("me/a", "me/a:latest", "registry.ollama.ai/me/a:latest"),
        ("host:5000/me/a:b", "host:5000/me/a:b", "host:5000/me/a:b"),
    ],
)
def test_model_names_have_defaults(name: str, short: str, full: str) -> None:
    assert (short_name(name), full_name(name), valid_name(name)) == (short, full, full)


@cases("name", ["", ":", "a:", ":b", "a b", "a/b/c/d", "a//b", "-a", "a:b:c", "é", "a\n", "x" * 81])
def test_malformed_model_names_are_refused(name: str) -> None:
    with pytest.raises(HttpError):
        valid_name(name)


@cases("template_style", ["template", "builtin", "native"])
def test_thinking_in_generate_has_its_own_field(template_style: Any) -> None:
    model = Model("thinker", ("completion", "thinking"), template_style=template_style)
    reply = Reply([Reasoning("hm"), Text("yes")])
    with StubServer(models=[model], resolve=lambda _: reply, speed=0) as stub:
        lines = send_request(
            stub, "POST", "/api/generate", {"model": "thinker", "prompt": "x"}
        ).lines
        body = send_request(
            stub, "POST", "/api/generate", {"model": "thinker", "prompt": "x", "stream": False}
        ).json
    assert [(line["response"], line.get("thinking")) for line in lines[:-1]] == [
        ("", "hm"),
        ("yes", None),
    ]
    assert (body["response"], body["thinking"]) == ("yes", "hm")


def test_native_capabilities_are_in_show_but_not_in_the_list(stub: StubServer) -> None:
    listed = {
        model["name"]: model for model in send_request(stub, "GET", "/api/tags").json["models"]
    }
    assert (
        listed["mochi-native:4b"]["capabilities"]
        == listed["mochi-embed:latest"]["capabilities"]
        == ["completion"]
    )
    shown = send_request(stub, "POST", "/api/show", {"model": "mochi-native:4b"}).json
    assert shown["capabilities"] == ["tools", "thinking", "completion"]
    assert "context_length" not in shown["details"]


def test_log_probabilities_are_in_their_chunks(stub: StubServer) -> None:
    lines = send_message(stub, "hello", logprobs=True, top_logprobs=3).lines
    for line in lines[:-1]:
        entries = line["logprobs"]
        tokens = [entry["token"] for entry in entries]
        assert "".join(tokens) == line["message"]["content"]
        assert tokens == [bytes(entry["bytes"]).decode() for entry in entries]
        for entry in entries:
            ranked = [rival["logprob"] for rival in entry["top_logprobs"]]
            assert ranked == sorted(ranked, reverse=True)
            assert len(ranked) == 3
    assert "logprobs" not in lines[-1]
    assert "logprobs" not in send_message(stub, "hello").lines[0]


@cases("chars_per_token", [1, 2.5, 4, 100])
@cases("stream", [True, False])
def test_each_token_has_one_log_probability(chars_per_token: float, stream: bool) -> None:
    models = [Model("m", chars_per_token=chars_per_token)]
    parts = [Text(("a", "bcd", "", "efghijkl mnopq", "rst"))]
    with StubServer(models=models, resolve=lambda _: Reply(parts), speed=0) as stub:
        lines = send_message(stub, "hello", "m", logprobs=True, stream=stream).lines
    entries = [entry for line in lines for entry in line.get("logprobs", ())]
    assert len(entries) == lines[-1]["eval_count"]
    assert entries[0]["token"] == "a"
    assert entries[-1]["token"].endswith("t") or chars_per_token > 2.5


def test_scripted_log_probabilities_are_limited() -> None:
    likely = Logprob("a", -0.5, (("a", -0.5), ("b", -1.0)))
    with StubServer(resolve=lambda _: Reply([Text(("a",), (likely,))]), speed=0) as stub:
        first = send_message(stub, "hello", logprobs=True, top_logprobs=1).lines[0]
        bare = send_message(stub, "hello", logprobs=True).lines[0]
    assert [rival["token"] for rival in first["logprobs"][0]["top_logprobs"]] == ["a"]
    assert bare["logprobs"] == [{"token": "a", "logprob": -0.5, "bytes": [97]}]


def test_whole_reply_has_all_log_probabilities() -> None:
    gate = Gate()
    gate.open()
    with StubServer(resolve=lambda _: Reply([Text(("a",)), gate, Text(("b",))]), speed=0) as stub:
        body = send_message(stub, "hello", logprobs=True, stream=False).json
    assert [entry["token"] for entry in body["logprobs"]] == ["a", "b"]


def test_images_count_768_tokens_each(stub: StubServer) -> None:
    message = {"role": "user", "content": "hi", "images": ["aGk=", "aGk="]}
    body = {"model": "echo", "messages": [message], "stream": False}
    assert (
        send_request(stub, "POST", "/api/chat", body).json["prompt_eval_count"]
        == len("hi") + 2 * 768
    )


@cases("stream", [True, False])
@cases(
    ("path", "fields"),
    [
        ("/api/chat", {"messages": [{"role": "user", "content": "hi", "images": ["aGk="]}]}),
        ("/api/generate", {"prompt": "hi", "images": ["aGk="]}),
    ],
)
def test_model_without_vision_refuses_images(
    stub: StubServer, path: str, fields: dict[str, Any], stream: bool
) -> None:
    refused = send_request(stub, "POST", path, {"model": "mochi", "stream": stream, **fields})
    text = "Multimodal data provided, but model does not support multimodal requests."
    assert (refused.status, refused.json) == (400, {"error": text})
    assert (
        send_request(stub, "POST", path, {"model": "echo", "stream": stream, **fields}).status
        == 200
    )


def test_chat_model_refuses_to_embed(stub: StubServer) -> None:
    text = {"error": "This server does not support embeddings. Start it with `--embeddings`"}
    for path, field, status in (("/api/embed", "input", 501), ("/api/embeddings", "prompt", 500)):
        refused = send_request(stub, "POST", path, {"model": "mochi-demo", field: "hi"})
        assert (refused.status, refused.json) == (status, text)
        assert (
            send_request(stub, "POST", path, {"model": "mochi-demo", field: ""}).status == 200
        )  # loads the model
        assert send_request(stub, "POST", path, {"model": "mochi-embed", field: "hi"}).status == 200


def test_embedding_model_has_its_lengths_in_the_list(stub: StubServer) -> None:
    listed = {
        model["name"]: model["details"]
        for model in send_request(stub, "GET", "/api/tags").json["models"]
    }
    lengths = listed["mochi-embed:latest"]
    assert (lengths["context_length"], lengths["embedding_length"]) == (2048, 768)
