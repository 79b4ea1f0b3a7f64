"""Request bodies: those that Ollama refuses, with Go's messages, and unusual ones that it accepts."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from mochi_stub import StubServer
from mochi_stub.reply import HttpError
from mochi_stub.wire.ollama.go_syntax import loads
from tests.stub.requests import send_request

HI = [{"role": "user", "content": "hi"}]
FIELD = "json: cannot unmarshal {} into Go struct field ChatRequest.{} of type {}"


def error(stub: StubServer, body: Any, path: str = "/api/chat") -> tuple[int, str]:
    answer = send_request(stub, "POST", path, body)
    return answer.status, answer.json["error"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "missing request body"),
        (b" \r\n\t", "missing request body"),
        (b'{"model":"mochi"', "unexpected EOF"),
        (b'{"model":"moc', "unexpected EOF"),
        (b'{"model":', "unexpected EOF"),
        (b"[1,", "unexpected EOF"),
        (b"tru", "unexpected EOF"),
        (b'"\\u00', "unexpected EOF"),
        (b"x", "invalid character 'x' looking for beginning of value"),
        (b"{x}", "invalid character 'x' looking for beginning of object key string"),
        (b'{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b"[1,]", "invalid character ']' looking for beginning of value"),
        (b'{"a":{"b":[1,2,{"c":tru!}]}}', "invalid character '!' in literal true (expecting 'e')"),
        (b"nul'", "invalid character '\\'' in literal null (expecting 'l')"),
        (b'"a\nb"', "invalid character '\\n' in string literal"),
        (b'"a\x01"', "invalid character '\\x01' in string literal"),
        (b'"\\x"', "invalid character 'x' in string escape code"),
        (b'"\\u12g4"', "invalid character 'g' in \\u hexadecimal character escape"),
        (b"-a", "invalid character 'a' in numeric literal"),
        (b"1.x", "invalid character 'x' after decimal point in numeric literal"),
        (b"1e+x", "invalid character 'x' in exponent of numeric literal"),
        (b"[01]", "invalid character '1' after array element"),
        ("é".encode(), "invalid character 'Ã' looking for beginning of value"),
        (b"7", "json: cannot unmarshal number into Go value of type api.ChatRequest"),
        (b"[1.5.2]", "invalid character '.' after array element"),
        (b"1.5.2", "json: cannot unmarshal number into Go value of type api.ChatRequest"),
        (b"[" * 2000, "unexpected EOF"),
        (b"[" * 20_000, "exceeded max depth"),
        (b'{"a":1e5e}', "invalid character 'e' after object key:value pair"),
        (b'{"a":[],"b":2e}', "invalid character '}' in exponent of numeric literal"),
        (b"[NaN]", "invalid character 'N' looking for beginning of value"),
        (b"[-Infinity]", "invalid character 'I' in numeric literal"),
        (b"[" + b"1" * 5000 + b"x]", "invalid character 'x' after array element"),
        (b"[]", "json: cannot unmarshal array into Go value of type api.ChatRequest"),
    ],
)
def test_invalid_json_is_refused_with_the_message_of_go(stub: StubServer, body: bytes, text: str) -> None:
    assert error(stub, body) == (400, text)


@pytest.mark.parametrize(
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
        ({"stream": 1, "tools": 2}, ("number", "stream", "bool")),
    ],
)
def test_wrong_type_names_its_field(stub: StubServer, fields: dict[str, Any], wrong: tuple[str, str, str]) -> None:
    assert error(stub, {"model": "mochi", **fields}) == (400, FIELD.format(*wrong))


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"keep_alive": "5x"}, 400, 'time: unknown unit "x" in duration "5x"'),
        ({"keep_alive": "5é"}, 400, r'time: unknown unit "\xc3\xa9" in duration "5\xc3\xa9"'),
        ({"keep_alive": '"\n'}, 400, r'time: invalid duration "\"\x0a"'),
        ({"keep_alive": ""}, 400, 'time: invalid duration ""'),
        ({"keep_alive": "2562048h"}, 400, 'time: invalid duration "2562048h"'),
        ({"keep_alive": "2562047h48m"}, 400, 'time: invalid duration "2562047h48m"'),
        ({"keep_alive": "99999999999999999999"}, 400, 'time: invalid duration "99999999999999999999"'),
        ({"keep_alive": {}}, 400, "Unsupported type: 'map[string]interface {}'"),
        ({"keep_alive": []}, 400, "Unsupported type: '[]interface {}'"),
        ({"messages": [{"role": "user", "images": ["aGk=", "aGk=!"]}]}, 400, "illegal base64 data at input byte 4"),
        ({"messages": [{"role": "user", "images": ["aGkh\naG"]}]}, 400, "illegal base64 data at input byte 5"),
        ({"messages": [{"role": "user", "images": ["aG=k"]}]}, 400, "illegal base64 data at input byte 2"),
        ({"messages": [{"role": "user", "images": ["aG="]}]}, 400, "illegal base64 data at input byte 3"),
        ({"messages": [{"role": "user", "images": ["=aGk"]}]}, 400, "illegal base64 data at input byte 0"),
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
        ({"think": ""}, 400, 'invalid think value: "" (must be "high", "medium", "low", "max", true, or false)'),
        ({"top_logprobs": -1}, 400, "top_logprobs must be between 0 and 20"),
    ],
)
def test_wrong_value_has_the_message_of_ollama(
    stub: StubServer, fields: dict[str, Any], status: int, text: str
) -> None:
    assert error(stub, {"model": "mochi", "messages": HI, **fields}) == (status, text)


@pytest.mark.parametrize(
    "body",
    [
        {"MODEL": "mochi", "Messages": [{"Role": "USER", "CONTENT": "hi"}], "STREAM": False},
        {"model": "MOCHI:Latest", "messages": HI, "stream": False, "unknown": {"x": 1}},
        {"model": "library/mochi", "messages": HI, "stream": False, "think": None, "tools": None, "options": None},
        {"model": "https://registry.ollama.ai/library/mochi:latest", "messages": HI, "stream": False, "format": ""},
        {
            "model": "mochi:local",
            "messages": HI,
            "stream": False,
            "options": {"unknown": [], "num_ctx": 4096.7, "seed": None},
        },
        {
            "model": "mochi",
            "messages": [None, {"role": None, "images": [None], "tool_calls": [None]}, *HI],
            "stream": False,
        },
        {"model": "mochi", "messages": [{"role": "wizard", "content": "x"}, *HI], "stream": False, "think": "max"},
    ],
)
def test_unusual_but_valid_bodies_are_accepted(stub: StubServer, body: dict[str, Any]) -> None:
    answer = send_request(stub, "POST", "/api/chat", body)
    assert answer.status == 200
    assert answer.json["message"]["content"].endswith(" hi")
    assert answer.json["model"] == body.get("model", "mochi")


@pytest.mark.parametrize("tail", [b"x", b"{}", b" trailing garbage", b"\x00"])
def test_data_after_the_first_json_value_is_ignored(stub: StubServer, tail: bytes) -> None:
    body = json.dumps({"model": "mochi", "messages": HI, "stream": False}).encode() + tail
    assert send_request(stub, "POST", "/api/chat", body).json["message"]["content"].endswith(" hi")


def test_invalid_unicode_is_replaced(stub: StubServer) -> None:
    for raw in (b"\xff", b"\\ud800"):
        body = b'{"model":"mochi","stream":false,"messages":[{"role":"user","content":"a' + raw + b'z"}]}'
        assert send_request(stub, "POST", "/api/chat", body).json["message"]["content"].endswith(" a\ufffdz")


def test_deeply_nested_body_is_refused(stub: StubServer) -> None:
    assert error(stub, b"[" * 100_000 + b"]" * 100_000) == (400, "exceeded max depth")


@pytest.mark.parametrize("size", [500_000, pytest.param(3_300_000, marks=pytest.mark.slow)])
def test_huge_message_is_echoed(stub: StubServer, size: int) -> None:
    text = "0123456789 " * (size // 11)
    answer = send_request(
        stub,
        "POST",
        "/api/chat",
        {"model": "mochi", "messages": [{"role": "user", "content": text}], "stream": False},
    )
    assert answer.json["message"]["content"].endswith(text)


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("/api/show", {"name": "nope:7b"}, 404, "model 'nope:7b' not found"),
        ("/api/show", {"model": "mochi:cloud"}, 403, "ollama cloud is disabled: remote model details are unavailable"),
        ("/api/chat", {"model": "x:20b-cloud"}, 403, "ollama cloud is disabled: remote model is unavailable"),
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
            "json: cannot unmarshal number into Go struct field GenerateRequest.prompt of type string",
        ),
    ],
)
def test_other_routes_have_their_own_messages(
    stub: StubServer, path: str, body: dict[str, Any], status: int, text: str
) -> None:
    assert error(stub, body, path) == (status, text)


@pytest.mark.parametrize("number", ["1e2", "1.50", "-0.0", "9223372036854775808", "99999999999999999999999", "1e400"])
def test_number_of_wrong_type_is_shown_as_in_the_body(stub: StubServer, number: str) -> None:
    body = f'{{"model": "mochi", "messages": [{{"role": "user"}}], "top_logprobs": {number}}}'
    assert error(stub, body.encode()) == (400, FIELD.format(f"number {number}", "top_logprobs", "int"))


@pytest.mark.parametrize(("field", "value"), [("keep_alive", "{}"), ("options", '{{"seed": {}}}')])
def test_number_out_of_range_is_refused(stub: StubServer, field: str, value: str) -> None:
    body = f'{{"model": "mochi", "messages": [{{"role": "user"}}], "{field}": {value.format("-1e400")}}}'
    assert error(stub, body.encode()) == (400, FIELD.format("number -1e400", field, "float64"))


@pytest.mark.parametrize("source", ["1e2", "[1, 2.0]", '"<a>"', r'"\u00e9"', "false"])
def test_wrong_format_is_shown_as_in_the_body(stub: StubServer, source: str) -> None:
    body = (
        f'{{"Format" : {source} , "model": "mochi", "messages": [{{"role": "user"}}], "stream": false}} {{"format": 7}}'
    )
    shown = source.replace("\\", r"\\").replace('"', r"\"")
    expected = f'invalid format: "{shown}"; expected "json" or a valid JSON Schema object'
    assert error(stub, body.encode()) == (500, expected)


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


@pytest.mark.parametrize("size", [500_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("piece", [b"1,", b"[1],", b'{"role":"user"},', b'"\\n",'])
def test_large_invalid_json_is_refused_in_linear_time(piece: bytes, size: int) -> None:
    began = time.process_time()
    with pytest.raises(HttpError, match="invalid character 'x' looking for beginning of value"):
        loads(b'{"messages":[' + piece * (size // len(piece)) + b"x]}")
    assert time.process_time() - began < max(4, 8 * size / 10_000_000)  # a walk over all tokens is slower
