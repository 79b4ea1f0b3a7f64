"""Request bodies: those that Ollama refuses, with its messages, and unusual ones that it
accepts.
"""

from __future__ import annotations

from typing import Any

import pytest

from mochi_stub import StubServer
from tests.stub.requests import send_request
from tests.support.cases import cases

HI = [{"role": "user", "content": "hi"}]
FIELD = "json: cannot unmarshal {} into Go struct field ChatRequest.{} of type {}"


def error(stub: StubServer, body: Any, path: str = "/api/chat") -> tuple[int, str]:
    answer = send_request(stub, "POST", path, body)
    return answer.status, answer.json["error"]


@pytest.mark.parametrize("body", [b"", b" \r\n\t"])
def test_missing_body_is_refused(stub: StubServer, body: bytes) -> None:
    assert error(stub, body) == (400, "missing request body")


@cases(
    "body",
    [
        b'{"model":"mochi"',
        b"x",
        b'{"a":1,}',
        b'{"a":NaN}',
        b"[" * 100_000,
        b'"\xff"',
        b'{"model":"mochi"} {}',
    ],
)
@cases("path", ["/api/chat", "/api/generate", "/api/show", "/api/embed", "/api/create"])
def test_malformed_json_is_refused_with_one_sentence(
    stub: StubServer, body: bytes, path: str
) -> None:
    status, text = error(stub, body, path)
    assert (status, text.partition(": ")[0]) == (400, "The request body is not valid JSON")


@pytest.mark.parametrize(("body", "found"), [(b"7", "number"), (b"[]", "array")])
def test_body_that_is_no_object_is_refused(stub: StubServer, body: bytes, found: str) -> None:
    assert error(stub, body) == (
        400,
        f"json: cannot unmarshal {found} into Go value of type api.ChatRequest",
    )


@cases(
    ("fields", "wrong"),
    [
        ({"stream": "yes"}, ("string", "stream", "bool")),
        ({"messages": {}}, ("object", "messages", "[]api.Message")),
        ({"messages": [5]}, ("number", "messages", "api.Alias")),
        ({"messages": [{"role": True}]}, ("bool", "messages.role", "string")),
        (
            {"messages": [{"tool_calls": [{"function": {"name": 1}}]}]},
            ("number", "messages.tool_calls.function.name", "string"),
        ),
        ({"messages": [{"images": [5]}]}, ("number", "messages.images", "api.ImageData")),
        ({"tools": "x"}, ("string", "tools", "api.Tools")),
        ({"options": []}, ("array", "options", "map[string]interface {}")),
        ({"top_logprobs": 1.5}, ("number 1.5", "top_logprobs", "int")),
        ({"top_logprobs": 2**63}, ("number 9223372036854775808", "top_logprobs", "int")),
    ],
)
def test_wrong_type_names_its_field(
    stub: StubServer, fields: dict[str, Any], wrong: tuple[str, str, str]
) -> None:
    assert error(stub, {"model": "mochi", **fields}) == (400, FIELD.format(*wrong))


@cases(
    ("fields", "status", "text"),
    [
        ({"keep_alive": "5x"}, 400, 'time: unknown unit "x" in duration "5x"'),
        ({"keep_alive": ""}, 400, 'time: invalid duration ""'),
        ({"keep_alive": "2562048h"}, 400, 'time: invalid duration "2562048h"'),
        ({"keep_alive": "2562047h48m"}, 400, 'time: invalid duration "2562047h48m"'),
        (
            {"keep_alive": "99999999999999999999"},
            400,
            'time: invalid duration "99999999999999999999"',
        ),
        ({"keep_alive": {}}, 400, "Unsupported type: 'map[string]interface {}'"),
        ({"keep_alive": []}, 400, "Unsupported type: '[]interface {}'"),
        (
            {"messages": [{"role": "user", "images": ["aGk=", "aGk=!"]}]},
            400,
            "illegal base64 data at input byte 4",
        ),
        (
            {"messages": [{"role": "user", "images": ["aGkh\naG"]}]},
            400,
            "illegal base64 data at input byte 4",
        ),
        (
            {"messages": [{"role": "user", "images": ["data:image/png;base64,aGk="]}]},
            400,
            "illegal base64 data at input byte 4",
        ),
        (
            {"messages": [{"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]},
            400,
            "Value looks like object, but can't find closing '}' symbol",
        ),
        ({"options": {"temperature": "hot"}}, 500, 'option "temperature" must be of type float32'),
        ({"options": {"num_ctx": True}}, 500, 'option "num_ctx" must be of type integer'),
        ({"options": {"use_mmap": 1}}, 500, 'option "use_mmap" must be of type boolean'),
        ({"options": {"stop": "x"}}, 500, 'option "stop" must be of type array'),
        ({"options": {"stop": [1]}}, 500, 'option "stop" must be of an array of strings'),
        ({"format": 5}, 500, 'invalid format: "5"; expected "json" or a valid JSON Schema object'),
        (
            {"think": ""},
            400,
            'invalid think value: "" (must be "high", "medium", "low", "max", true, or false)',
        ),
        ({"top_logprobs": -1}, 400, "top_logprobs must be between 0 and 20"),
    ],
)
def test_wrong_value_has_the_message_of_ollama(
    stub: StubServer, fields: dict[str, Any], status: int, text: str
) -> None:
    assert error(stub, {"model": "mochi", "messages": HI, **fields}) == (status, text)


@cases(
    "body",
    [
        {"model": "mochi", "messages": [{"role": "USER", "content": "hi"}], "stream": False},
        {"model": "MOCHI:Latest", "messages": HI, "stream": False, "unknown": {"x": 1}},
        {
            "model": "library/mochi",
            "messages": HI,
            "stream": False,
            "think": None,
            "tools": None,
            "options": None,
        },
        {
            "model": "https://registry.ollama.ai/library/mochi:latest",
            "messages": HI,
            "stream": False,
            "format": "",
        },
        {
            "model": "mochi",
            "messages": HI,
            "stream": False,
            "options": {"unknown": [], "num_ctx": 4096.7, "seed": None},
        },
        {
            "model": "mochi",
            "messages": [{"role": None, "images": None, "tool_calls": None}, *HI],
            "stream": False,
        },
        {
            "model": "mochi",
            "messages": [{"role": "wizard", "content": "x"}, *HI],
            "stream": False,
            "think": "max",
        },
    ],
)
def test_unusual_but_valid_bodies_are_accepted(stub: StubServer, body: dict[str, Any]) -> None:
    answer = send_request(stub, "POST", "/api/chat", body)
    assert answer.status == 200
    assert answer.json["message"]["content"].endswith(" hi")
    assert answer.json["model"] == body.get("model", "mochi")


@pytest.mark.parametrize("size", [500_000, pytest.param(3_300_000, marks=pytest.mark.nightly)])
def test_huge_message_is_echoed(stub: StubServer, size: int) -> None:
    text = "0123456789 " * (size // 11)
    answer = send_request(
        stub,
        "POST",
        "/api/chat",
        {"model": "mochi", "messages": [{"role": "user", "content": text}], "stream": False},
    )
    assert answer.json["message"]["content"].endswith(text)


@cases(
    ("path", "body", "status", "text"),
    [
        ("/api/show", {"name": "nope:7b"}, 404, "model 'nope:7b' not found"),
        ("/api/chat", {"model": "x:20b-cloud"}, 404, "model 'x:20b-cloud' not found"),
        ("/api/chat", {"model": "a/b/c/d"}, 400, "invalid model name"),
        ("/api/generate", {"model": "a b"}, 400, "invalid model name"),
        ("/api/generate", {"model": "hf.co/mochi"}, 400, "invalid model name"),
        ("/api/chat", {"model": "/library/mochi"}, 400, "invalid model name"),
        ("/api/chat", {"model": "https://hf.co/a/b"}, 404, "model 'https://hf.co/a/b' not found"),
        ("/api/embed", {"model": "mochi-embed", "input": ["a", 5]}, 400, "invalid input type"),
        ("/api/embed", {"model": "mochi-embed", "input": {}}, 400, "invalid input type"),
        (
            "/api/generate",
            {"model": "mochi", "prompt": 5},
            400,
            "json: cannot unmarshal number into Go struct field GenerateRequest.prompt of type "
            "string",
        ),
    ],
)
def test_other_routes_have_their_own_messages(
    stub: StubServer, path: str, body: dict[str, Any], status: int, text: str
) -> None:
    assert error(stub, body, path) == (status, text)


@cases(("value", "shown"), [(1, "1"), ([1, 2], "[1,2]"), ("<a>", r"\"<a>\""), ("é", r"\"é\"")])
def test_wrong_format_is_shown(stub: StubServer, value: Any, shown: str) -> None:
    expected = f'invalid format: "{shown}"; expected "json" or a valid JSON Schema object'
    assert error(stub, {"model": "mochi", "messages": HI, "stream": False, "format": value}) == (
        500,
        expected,
    )


def test_checks_run_in_the_order_of_ollama(stub: StubServer) -> None:
    body: dict[str, Any] = {
        "model": "nope",
        "messages": HI,
        "top_logprobs": 21,
        "think": True,
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "options": {"num_ctx": "x"},
        "format": "xml",
    }
    errors = [error(stub, body)[1]]
    changes: list[dict[str, Any]] = [
        {"top_logprobs": 0},
        {"model": "mochi-chat"},
        {"think": False},
        {"tools": []},
        {"options": {}},
    ]
    for change in changes:
        body.update(change)
        errors.append(error(stub, body)[1])
    assert errors == [
        "top_logprobs must be between 0 and 20",
        "model 'nope' not found",
        '"mochi-chat" does not support thinking',
        "registry.ollama.ai/library/mochi-chat:latest does not support tools",
        'option "num_ctx" must be of type integer',
        'invalid format: "\\"xml\\""; expected "json" or a valid JSON Schema object',
    ]
