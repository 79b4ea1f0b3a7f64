"""Requests to Ollama and parsing of its responses."""

from typing import Any

import pytest

from mochi_server.ollama.endpoint import parse_endpoint
from mochi_server.ollama.library import ModelDetails, ModelList
from mochi_server.ollama.payloads import (
    ModelKey,
    chat_payload,
    lacks_details,
    qualified_name,
    read_tags,
    with_details,
)
from mochi_server.ollama.types import ModelInfo
from mochi_server.util.net import is_loopback
from tests.support.cases import cases


@cases(
    ("host", "url", "authorization"),
    [
        ("localhost:11434", "http://localhost:11434", None),
        ("http://localhost:11434/", "http://localhost:11434", None),
        (
            "https://me:p%40ss@example.com/ollama/",
            "https://example.com/ollama",
            "Basic bWU6cEBzcw==",
        ),
        ("http://[::1]:11434", "http://[::1]:11434", None),
        ("192.168.1.100", "http://192.168.1.100:11434", None),
        ("[::1]/ollama", "http://[::1]:11434/ollama", None),
        ("http://192.168.1.100", "http://192.168.1.100", None),
    ],
)
def test_endpoints_keep_paths_and_hide_credentials(
    host: str, url: str, authorization: str | None
) -> None:
    found = parse_endpoint(host)
    assert found.url == url
    assert found.headers.get("Authorization") == authorization


def test_api_key_of_the_environment_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_API_KEY", "k")
    assert parse_endpoint("https://ollama.com").headers == {"Authorization": "Bearer k"}
    assert parse_endpoint("https://a:b@ollama.com").headers["Authorization"].startswith("Basic ")


@cases(
    ("host", "expected"),
    [
        *[
            ("localhost", True),
            ("a.localhost", True),
            ("127.8.9.1", True),
            ("::1", True),
            ("[::1]", True),
        ],
        *[
            ("192.168.0.1", False),
            ("localhost.evil.example", False),
            ("", False),
            ("10.0.0.1", False),
        ],
    ],
)
def test_only_loopback_bypasses_the_proxy(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
    if host and "[" not in host and host != "::1":
        assert parse_endpoint(f"http://{host}").use_proxy is not expected


def test_payload_has_only_given_fields() -> None:
    assert chat_payload("m", []) == {
        "model": "m",
        "messages": [],
        "stream": True,
        "truncate": False,
    }
    assert chat_payload(
        "m", [], think=False, context_window=4096, options={"seed": 1}, keep_alive=0
    ) == {
        "model": "m",
        "messages": [],
        "stream": True,
        "truncate": False,
        "think": False,
        "keep_alive": 0,
        "options": {"seed": 1, "num_ctx": 4096},
    }


@cases(
    ("name", "expected"),
    [
        ("Qwen3", "qwen3:latest"),
        ("qwen3:14b", "qwen3:14b"),
        ("hf.co/x/y:Q4", "hf.co/x/y:q4"),
        ("localhost:5000/x", "localhost:5000/x:latest"),
        ("library/Qwen3", "qwen3:latest"),
        ("Registry.ollama.ai/library/qwen3:14b", "qwen3:14b"),
        ("registry.ollama.ai/user/x", "user/x:latest"),
        ("registry.ollama.ai/x", "registry.ollama.ai/x:latest"),
        ("host/library/x", "host/library/x:latest"),
        ("library/user/x", "library/user/x:latest"),
    ],
)
def test_names_are_compared_with_their_tag(name: str, expected: str) -> None:
    assert qualified_name(name) == expected


def test_window_and_context_length_are_read() -> None:
    details = ModelDetails.model_validate(
        {
            "capabilities": ["completion"],
            "parameters": 'stop                           "</s>"\nnum_ctx                        '
            "4096\nseed  5",
            "model_info": {
                "general.architecture": "bert",
                "bert.context_length": 512,
                "llama.context_length": 8192,
            },
        }
    )
    assert (details.num_ctx, details.context_length) == (4096, 512)


def test_old_server_without_capabilities_has_chat_models() -> None:
    assert ModelDetails.model_validate({"model_info": {}}).capabilities == ["completion"]


def tag(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "digest": f"digest of {name}", "size": 1048576, "details": {}, **fields}


def tags_of(body: dict[str, Any]) -> dict[ModelKey, ModelInfo]:
    return read_tags(ModelList.model_validate(body))


def test_incomplete_details_are_recognized() -> None:
    length = {"context_length": 8}
    complete = tag("told", capabilities=["completion", "tools"], details=length)
    unsure = tag("unsure", capabilities=["completion"], details=length)
    seeing = tag("seeing", capabilities=["completion", "vision"], details=length)
    models = tags_of({"models": [tag("old"), complete, unsure, seeing]})
    assert [key for key, model in models.items() if lacks_details(model)] == [
        ("old", "digest of old"),
        ("unsure", "digest of unsure"),
        ("seeing", "digest of seeing"),
    ]


def test_model_details_override_the_list() -> None:
    (listed,) = tags_of({"models": [tag("m", capabilities=["completion"])]}).values()
    model = with_details(
        listed,
        ModelDetails(capabilities=["tools", "completion"], model_info={"m.context_length": 4096}),
    )
    assert model.has_capability("tools")
    assert model.context_length == 4096


def test_models_with_equal_digests_have_different_keys() -> None:
    assert len(tags_of({"models": [tag("chat", digest="d"), tag("vectors", digest="d")]})) == 2
