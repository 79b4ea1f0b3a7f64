"""Verification against another stub in place of a real server: differences are reported."""

from __future__ import annotations

import socket

import httpx
import pytest

from mochi_stub import DEFAULT_MODELS, Failure, Prompt, Reply, StubServer
from mochi_stub.cli.conformance import model_of, verify
from tests.support.raw_ollama import RawOllama

MODELS = [model.name for model in DEFAULT_MODELS]


@pytest.mark.parametrize("model", [*MODELS[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in MODELS[2:])])
def test_identical_server_has_no_differences(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    with StubServer(models=[one for one in DEFAULT_MODELS if one.name == model], speed=0) as real:
        assert verify(real.url, model) == 0
    assert capsys.readouterr().out == f"0 differences between {real.url} and the stub, model {model}\n"


def test_differences_are_reported_with_their_probe(capsys: pytest.CaptureFixture[str]) -> None:
    def wrong(prompt: Prompt) -> Reply | None:
        return Reply([Failure("kaput", 503)]) if prompt.operation == "generate" else None

    with StubServer(models=DEFAULT_MODELS[:1], resolve=wrong, speed=0) as real:
        assert verify(real.url, "mochi") == 1
    told = capsys.readouterr().out.splitlines()
    assert "generate, streamed: status: server 503, stub 200" in told
    assert any(line.startswith('generate, whole: object 1: server {"error": "kaput"}, stub') for line in told)
    assert not any(line.startswith("chat") for line in told)
    assert told[-1].startswith(f"{len(told) - 1} differences")


def test_model_is_read_from_the_server(stub: StubServer) -> None:
    with httpx.Client(base_url=stub.url) as client:
        model = model_of(client, "mochi-native:4b")
    assert model.habit == "native"
    assert model.capabilities == ("tools", "thinking", "completion")
    assert model.context_length == 32768


def test_verify_fails_without_server_or_model(stub: StubServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(stub.url, "nope") == 2
    assert "/api/show failed for the model nope" in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert verify(f"http://127.0.0.1:{taken.getsockname()[1]}", "mochi") == 2
    assert "cannot compare" in capsys.readouterr().err
    assert verify("nonsense", "mochi") == 2
    capsys.readouterr()
    page = b"<html>\n<p>Not\n" + b"here " * 1000
    with RawOllama(lambda _: None, show=b"[]") as strange, RawOllama(lambda _: None, show=page) as other:
        assert [verify(strange.url, "raw"), verify(other.url, "raw")] == [2, 2]
    first, second = capsys.readouterr().err.splitlines()
    assert "returned no JSON object" in first
    assert "cannot compare" in second
