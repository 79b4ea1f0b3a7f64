"""Verification against another stub in place of a real server: differences are reported."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest

from mochi_stub import Failure, Model, Prompt, Reply, StubServer, ToolCall
from mochi_stub.cli.conformance import capabilities_of, nearest_model, probes, verify
from mochi_stub.config.loader import packaged_config
from tests.support.raw_ollama import RawOllama

MODELS = {model.name: model for model in packaged_config().models[:5]}


@pytest.mark.parametrize("model", ["mochi", *(pytest.param(name, marks=pytest.mark.slow) for name in [*MODELS][1:])])
def test_identical_server_has_no_differences(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    with StubServer(models=[MODELS[model]], speed=0) as real:
        assert verify(real.url, model) == 0
    assert capsys.readouterr().out == f"0 differences between {real.url} and the stub, model {model}\n"


def test_differences_are_reported_with_their_probe(capsys: pytest.CaptureFixture[str]) -> None:
    def wrong(prompt: Prompt) -> Reply | None:
        return Reply([Failure("kaput", 503)]) if prompt.operation == "generate" else None

    with StubServer(models=[MODELS["mochi"]], resolve=wrong, speed=0) as real:
        assert verify(real.url, "mochi") == 1
    told = capsys.readouterr().out.splitlines()
    assert "generate, streamed: status: server 503, stub 200" in told
    assert any(line.startswith("generate, whole: error object: server") or "kaput" in line for line in told)
    assert not any(line.startswith("chat") for line in told)
    assert told[-1].startswith(f"{len(told) - 1} differences")


@pytest.mark.parametrize("name", MODELS)
def test_model_is_compared_with_the_most_similar_one(stub: StubServer, name: str) -> None:
    with httpx.Client(base_url=stub.url) as client:
        assert nearest_model(client, name, capabilities_of(client, name)).name == name


TALKATIVE = Reply.of("No tool. " * 20, reasoning="I think.", finish="length")


@pytest.mark.parametrize("reply", [Reply.of("Hi"), TALKATIVE, Reply.of(tool_calls=[ToolCall("look")])])
def test_text_of_the_model_makes_no_difference(reply: Reply, capsys: pytest.CaptureFixture[str]) -> None:
    def talk(prompt: Prompt) -> Reply | None:
        return None if prompt.operation == "embed" or prompt.format is not None else reply

    models = [Model("qwen3:8b", ("completion", "tools", "thinking"), parameters={"top_k": 20}, license="MIT")]
    with StubServer(models=models, resolve=talk, speed=0) as real:
        code = verify(real.url, "qwen3:8b", "mochi")
    assert code == 0, capsys.readouterr().out


def test_probes_cover_tools_origins_long_prompts_and_openai() -> None:
    names = [probe.name for probe in probes("mochi")]
    assert len(names) == len(set(names))
    for part in ("tool as a text", "origin, foreign", "preflight, local", "too long, without truncation", "/v1, chat"):
        assert any(part in name for name in names)


def test_packaged_stub_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yaml").write_text("models: {mochi: [{_default: {type: error, status: 418, message: tea}}]}")
    with StubServer(config=tmp_path / "config.yaml", speed=0) as real:
        assert verify(real.url, "mochi") == 1
    told = capsys.readouterr().out
    assert "chat, whole: status: server 418, stub 200" in told


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
