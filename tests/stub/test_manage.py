"""`pull`, `create`, `copy` and `delete`, beyond the captures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mochi_stub import Model, StubServer
from tests.stub.requests import open_stream, send_message, send_request
from tests.support.cases import cases


def model_names(stub: StubServer) -> set[str]:
    return {
        model["name"].removesuffix(":latest")
        for model in send_request(stub, "GET", "/api/tags").json["models"]
    }


def statuses(stub: StubServer, path: str, body: Any) -> list[str]:
    return [
        line.get("status") or line["error"] for line in send_request(stub, "POST", path, body).lines
    ]


def test_copy_is_the_same_model_with_another_name(private_stub: StubServer) -> None:
    assert (
        send_request(
            private_stub, "POST", "/api/copy", {"source": "mochi", "destination": "me/mine:1"}
        ).status
        == 200
    )
    shown = {
        model["name"]: model
        for model in send_request(private_stub, "GET", "/api/tags").json["models"]
    }
    assert shown["me/mine:1"]["digest"] == shown["mochi:latest"]["digest"]
    assert (
        send_request(
            private_stub, "POST", "/api/chat", {"model": "me/mine:1", "messages": []}
        ).status
        == 200
    )


def _copy(stub: StubServer, source: str, name: str) -> None:
    body = {"source": source, "destination": name}
    assert send_request(stub, "POST", "/api/copy", body).status == 200


def _create(stub: StubServer, source: str, name: str) -> None:
    body = {"model": name, "from": source, "system": "Be brief."}
    assert statuses(stub, "/api/create", body)[-1] == "success"


@pytest.mark.parametrize("derive", [_copy, _create])
def test_derived_model_has_the_replies_of_its_source(
    private_stub: StubServer, derive: Callable[[StubServer, str, str], None]
) -> None:
    derive(private_stub, "echo", "mine")
    derive(private_stub, "mine", "second")
    derive(private_stub, "rate-limited", "limited")
    derive(private_stub, "embed-zero", "zero")
    for model in ("mine", "second:latest"):
        chat = send_message(private_stub, "hello", model, stream=False).json
        assert chat["message"]["content"] == "hello"
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
        completion = send_request(private_stub, "POST", "/v1/chat/completions", body).json
        assert completion["choices"][0]["message"]["content"] == "hello"
    assert send_message(private_stub, "hello", "limited").status == 429
    body = {"model": "zero", "input": "hello"}
    (vector,) = send_request(private_stub, "POST", "/api/embed", body).json["embeddings"]
    assert not any(vector)


def test_model_that_replaces_a_configured_one_has_other_replies(private_stub: StubServer) -> None:
    _copy(private_stub, "map", "echo")
    chat = send_message(private_stub, "hello", "echo", stream=False).json
    assert chat["message"]["content"] == "Hi there!"


def test_deleted_model_can_be_pulled_again(private_stub: StubServer) -> None:
    assert send_request(private_stub, "DELETE", "/api/delete", {"model": "mochi"}).status == 200
    assert "mochi" not in model_names(private_stub)
    assert send_request(private_stub, "POST", "/api/show", {"model": "mochi"}).status == 404
    assert send_request(private_stub, "GET", "/v1/models/mochi").status == 404
    lines = send_request(private_stub, "POST", "/api/pull", {"model": "mochi"}).lines
    assert (lines[0], lines[-1]) == ({"status": "pulling manifest"}, {"status": "success"})
    weights = [line for line in lines if line.get("digest") == lines[1]["digest"]]
    assert "completed" not in weights[0]
    assert weights[-1]["completed"] == weights[-1]["total"] == 5_225_388_164
    assert weights[0]["status"] == f"pulling {weights[0]['digest'].removeprefix('sha256:')[:12]}"
    assert "mochi" in model_names(private_stub)


def test_pull_of_an_existing_model_has_a_line_for_each_layer(private_stub: StubServer) -> None:
    lines = send_request(private_stub, "POST", "/api/pull", {"model": "mochi"}).lines
    digests = [line["digest"] for line in lines if "digest" in line]
    assert len(digests) == len(set(digests)) == 3
    assert all(line["completed"] == line["total"] for line in lines if "digest" in line)


def test_pull_stops_when_its_client_disconnects() -> None:
    with StubServer(speed=0.1) as stub:
        send_request(stub, "DELETE", "/api/delete", {"model": "mochi"})
        with open_stream(stub, "/api/pull", {"model": "mochi"}) as response:
            assert response.readline()
        stub.wait_for(lambda seen: seen[-1].outcome == "cancelled")
        assert "mochi" not in model_names(stub)


@pytest.mark.parametrize("name", ["nope", "hf.co/a/b:q4"])
def test_pull_of_an_unknown_model_fails_in_the_stream(private_stub: StubServer, name: str) -> None:
    body, text = {"model": name}, "pull model manifest: file does not exist"
    assert statuses(private_stub, "/api/pull", body) == ["pulling manifest", text]
    whole = send_request(private_stub, "POST", "/api/pull", {**body, "stream": False})
    assert (whole.status, whole.json) == (500, {"error": text})


@cases("path", ["/api/pull", "/api/create", "/api/copy"])
@cases("body", [b"", b"{", b"[]", b'{"model":5}', b'{"source":"a","destination":"/"}'])
def test_invalid_bodies_are_400(private_stub: StubServer, path: str, body: bytes) -> None:
    refused = send_request(private_stub, "POST", path, body)
    assert refused.status == 400
    assert refused.json["error"]


def test_delete_needs_a_valid_name(private_stub: StubServer) -> None:
    refused = send_request(private_stub, "DELETE", "/api/delete", {"model": "a b"})
    assert (refused.status, refused.json) == (400, {"error": 'name "a b" is invalid'})
    assert send_request(private_stub, "DELETE", "/api/delete").status == 400


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/api/push"), ("POST", "/api/blobs/sha256:0")]
)
def test_files_and_push_are_refused(stub: StubServer, method: str, path: str) -> None:
    refused = send_request(stub, method, path, {"model": "mochi"})
    assert (refused.status, refused.json) == (
        400,
        {"error": "mochi-stub stores no files and pushes no models"},
    )


@pytest.mark.parametrize("path", ["/api/pull", "/api/create"])
def test_names_with_spaces_are_refused(private_stub: StubServer, path: str) -> None:
    refused = send_request(private_stub, "POST", path, {"model": "a b", "from": "mochi"})
    assert (refused.status, refused.json) == (400, {"error": "invalid model name"})


def test_created_model_has_the_given_parts(private_stub: StubServer) -> None:
    body = {
        "model": "mine",
        "from": "mochi-native:4b",
        "system": "S",
        "parameters": {"num_ctx": 512},
    }
    created = statuses(private_stub, "/api/create", {**body, "template": "{{ .Tools }}{{ if"})
    assert [line.partition(" sha256")[0] for line in created] == [
        *("using existing layer", "creating new layer", "creating new layer", "creating new layer"),
        *("writing manifest", "success"),
    ]
    shown = send_request(private_stub, "POST", "/api/show", {"model": "mine"}).json
    assert (shown["system"], shown["details"]["parent_model"]) == ("S", "mochi-native:4b")
    assert "num_ctx                        512" in shown["parameters"].split("\n")
    assert "\nTEMPLATE {{ .Tools }}{{ if\n" in shown["modelfile"]
    assert shown["capabilities"] == ["tools", "thinking", "completion"]
    send_request(private_stub, "POST", "/api/chat", {"model": "mine", "messages": []})
    assert send_request(private_stub, "GET", "/api/ps").json["models"][0]["context_length"] == 512


def test_texts_of_several_lines_are_quoted_as_in_ollama(private_stub: StubServer) -> None:
    parts = {"system": 'Say "x".\nThen stop.', "parameters": {"stop": ["\n\n", '"']}}
    send_request(
        private_stub, "POST", "/api/create", {"model": "mine", "from": "mochi-chat", **parts}
    )
    shown = send_request(private_stub, "POST", "/api/show", {"model": "mine"}).json
    assert (
        'SYSTEM """Say "x".\nThen stop."""\nPARAMETER stop "\n\n"\nPARAMETER stop "\n'
        in shown["modelfile"]
    )
    assert [line.split() for line in shown["parameters"].split("\n")] == [
        ["stop", r'"\n\n"'],
        ["stop", r'"\""'],
    ]


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"from": "a b"}, 400, "invalid model name"),
        (
            {"files": {"a.gguf": "sha256:0"}, "quantize": "q4_K_M"},
            400,
            "mochi-stub creates models only with from, system, parameters, template; remove "
            "files, quantize",
        ),
        (
            {"license": ["MIT"], "stream": False, "adapters": None},
            400,
            "mochi-stub creates models only with",
        ),
    ],
)
def test_invalid_part_of_a_model_is_refused(
    private_stub: StubServer, fields: Any, status: int, text: str
) -> None:
    body = {"model": "mine", "from": "mochi", **fields}
    refused = send_request(private_stub, "POST", "/api/create", body)
    assert (refused.status, refused.json["error"].startswith(text)) == (status, True)


def test_parameters_are_checked_when_the_model_is_used(private_stub: StubServer) -> None:
    body = {"model": "mine", "from": "mochi", "parameters": {"num_ctx": "x"}}
    assert statuses(private_stub, "/api/create", body)[-1] == "success"
    refused = send_message(private_stub, "hello", "mine")
    assert (refused.status, refused.json) == (
        500,
        {"error": 'option "num_ctx" must be of type integer'},
    )
    assert send_message(private_stub, "hello", "mine", options={"num_ctx": 512}).status == 200


@cases("template_style", ["template", "native", "builtin"])
def test_generated_template_mentions_the_capabilities(template_style: Any) -> None:
    models = [
        Model("able", ("completion", "tools", "thinking"), template_style=template_style),
        Model("plain", template_style=template_style),
    ]
    with StubServer(models=models) as stub:
        able, plain = (
            send_request(stub, "POST", "/api/show", {"model": one.name}).json["template"]
            for one in models
        )
    assert all(name in able and name not in plain for name in (".Tools", ".Thinking"))


def test_create_from_an_unknown_model_tries_to_pull_it(private_stub: StubServer) -> None:
    tried = statuses(private_stub, "/api/create", {"model": "z", "from": "nope"})
    assert tried == ["pulling manifest", "pull model manifest: file does not exist"]


def test_same_request_creates_the_same_model() -> None:
    shown = []
    for _ in range(2):
        with StubServer(speed=0) as stub:
            send_request(
                stub, "POST", "/api/create", {"model": "mine", "from": "mochi", "system": "S"}
            )
            shown.append(send_request(stub, "GET", "/api/tags").body)
    assert shown[0] == shown[1]
