"""Required tool calls: the reply calls an offered tool with arguments that its schema permits."""

from __future__ import annotations

import json
from typing import Any

from mochi_stub import Reply, StubServer
from mochi_stub.prompt import ToolCall
from mochi_stub.replies.tool_choice import call_of, functions
from tests.stub.requests import RawResponse, send_request
from tests.support.cases import cases
from tests.support.lazy import LazyModule

jsonschema = LazyModule("jsonschema")

BOOK = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 3},
        "nights": {"type": "integer", "minimum": 2, "maximum": 9},
        "room": {"enum": ["single", "double"]},
        "guests": {"type": "array", "items": {"$ref": "#/$defs/guest"}, "minItems": 1},
    },
    "required": ["city", "nights", "room", "guests"],
    "$defs": {
        "guest": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        }
    },
}
SCHEMAS: dict[str, Any] = {"now": {"type": "object", "properties": {}}, "book": BOOK}

CHAT, RESPONSE, MESSAGE = "/v1/chat/completions", "/v1/responses", "/v1/messages"
GEMINI = "/v1beta/models/mochi:generateContent"

NAMED = {"type": "function", "name": "book"}
CHOICES: list[
    tuple[str, Any, list[str]]
] = [  # the path, the choice of a tool, and the tools that the reply may call
    (CHAT, "required", ["now", "book"]),
    (CHAT, {"type": "function", "function": {"name": "book"}}, ["book"]),
    (
        CHAT,
        {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "required",
                "tools": [{"type": "function", "function": {"name": "book"}}],
            },
        },
        ["book"],
    ),
    (RESPONSE, "required", ["now", "book"]),
    (RESPONSE, NAMED, ["book"]),
    (
        RESPONSE,
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "book"}],
        },
        ["book"],
    ),
    (MESSAGE, {"type": "any"}, ["now", "book"]),
    (MESSAGE, {"type": "tool", "name": "book"}, ["book"]),
    (GEMINI, {"mode": "ANY"}, ["now", "book"]),
    (GEMINI, {"mode": "any", "allowedFunctionNames": ["book"]}, ["book"]),
]
FREE: list[tuple[str, Any]] = [
    *((CHAT, None), (CHAT, "auto"), (CHAT, "none"), (RESPONSE, "auto"), (RESPONSE, "none")),
    (
        CHAT,
        {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "auto",
                "tools": [{"type": "function", "function": {"name": "book"}}],
            },
        },
    ),
    *(
        (MESSAGE, {"type": "auto"}),
        (MESSAGE, {"type": "none"}),
        (GEMINI, {"mode": "AUTO"}),
        (GEMINI, {"mode": "NONE"}),
    ),
]


def body(
    path: str, choice: Any, text: str = "hello you", model: str = "mochi", **fields: Any
) -> dict[str, Any]:
    functions = [{"name": name, "parameters": schema} for name, schema in SCHEMAS.items()]
    messages = [{"role": "user", "content": text}]
    chosen = {} if choice is None else {"tool_choice": choice}
    if path == GEMINI:
        contents = [{"role": "user", "parts": [{"text": text}]}]
        declared = [
            {"name": tool["name"], "parametersJsonSchema": tool["parameters"]} for tool in functions
        ]
        config = {
            "toolConfig": {"functionCallingConfig": choice},
            "tools": [{"functionDeclarations": declared}],
        }
        return {"contents": contents, **config, **fields}
    if path == MESSAGE:
        tools = [{"name": tool["name"], "input_schema": tool["parameters"]} for tool in functions]
        return {
            "model": model,
            "messages": messages,
            "max_tokens": 9999,
            "tools": tools,
            **chosen,
            **fields,
        }
    if path == RESPONSE:
        tools = [{"type": "function", **tool} for tool in functions]
        return {"model": model, "input": text, "tools": tools, **chosen, **fields}
    tools = [{"type": "function", "function": tool} for tool in functions]
    return {"model": model, "messages": messages, "tools": tools, **chosen, **fields}


def calls(path: str, answer: RawResponse) -> list[tuple[str, Any]]:
    """Return the tool calls of a complete reply."""
    assert answer.status == 200, answer.body
    reply = answer.json
    if path == CHAT:
        found = [call["function"] for call in reply["choices"][0]["message"].get("tool_calls", ())]
        return [(call["name"], json.loads(call["arguments"])) for call in found]
    if path == RESPONSE:
        items = [item for item in reply["output"] if item["type"] == "function_call"]
        return [(item["name"], json.loads(item["arguments"])) for item in items]
    if path == MESSAGE:
        return [
            (block["name"], block["input"])
            for block in reply["content"]
            if block["type"] == "tool_use"
        ]
    parts = [
        part["functionCall"]
        for part in reply["candidates"][0]["content"]["parts"]
        if "functionCall" in part
    ]
    return [(call["name"], call["args"]) for call in parts]


@cases(("path", "choice", "permitted"), CHOICES)
def test_required_call_has_valid_arguments(
    stub: StubServer, path: str, choice: Any, permitted: list[str]
) -> None:
    for text in ("hello", "where?", "Book 3 nights for 12 guests."):
        answer = send_request(stub, "POST", path, body(path, choice, text))
        ((name, arguments),) = calls(path, answer)
        assert name in permitted
        jsonschema.validate(arguments, SCHEMAS[name])
        assert text.encode() not in answer.body  # the call replaces the text


def test_required_call_has_the_finish_reason_of_the_provider(stub: StubServer) -> None:
    chat = send_request(stub, "POST", CHAT, body(CHAT, "required")).json["choices"][0]
    assert (chat["finish_reason"], chat["message"]["content"]) == ("tool_calls", None)
    assert (
        send_request(stub, "POST", MESSAGE, body(MESSAGE, {"type": "any"})).json["stop_reason"]
        == "tool_use"
    )
    gemini = send_request(stub, "POST", GEMINI, body(GEMINI, {"mode": "ANY"})).json
    assert gemini["candidates"][0]["finishReason"] == "STOP"


@cases(("path", "choice"), FREE)
def test_other_choices_require_no_call(stub: StubServer, path: str, choice: Any) -> None:
    assert calls(path, send_request(stub, "POST", path, body(path, choice))) == []


@cases("mode", ["auto", "required"])
def test_choice_of_only_custom_tools_calls_no_function(stub: StubServer, mode: str) -> None:
    allowed = {"mode": mode, "tools": [{"type": "custom", "name": "shell"}]}
    choices = {
        CHAT: {"type": "allowed_tools", "allowed_tools": allowed},
        RESPONSE: {"type": "allowed_tools", **allowed},
    }
    for path, choice in choices.items():
        request = body(path, choice, "call book", "mochi-demo")
        assert calls(path, send_request(stub, "POST", path, request)) == []


SHELL = {"type": "custom", "custom": {"name": "shell"}}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
TOOLSET = {"type": "mcp_toolset", "mcp_server_name": "files"}


@cases(
    ("path", "choice", "tool"),
    [
        (CHAT, "required", SHELL),
        (RESPONSE, "required", {"type": "custom", "name": "shell"}),
        (RESPONSE, "required", {"type": "web_search"}),
        (MESSAGE, {"type": "any"}, SEARCH),
        (MESSAGE, {"type": "any"}, TOOLSET),
        (MESSAGE, {"type": "tool", "name": "web_search"}, SEARCH),
    ],
)
def test_required_call_of_only_other_tools_keeps_the_text(
    stub: StubServer, path: str, choice: Any, tool: dict[str, Any]
) -> None:
    answer = send_request(stub, "POST", path, body(path, choice, "hello", "echo", tools=[tool]))
    assert calls(path, answer) == []
    assert b'"hello"' in answer.body


def test_choice_of_a_server_tool_calls_no_function(stub: StubServer) -> None:
    request = body(MESSAGE, {"type": "tool", "name": "web_search"})
    request["tools"].append(SEARCH)
    assert calls(MESSAGE, send_request(stub, "POST", MESSAGE, request)) == []


@cases("model", ["mochi", "echo", "map", "mirror", "task", "thinker", "weirdo", "token-stream"])
def test_packaged_models_make_the_required_call(stub: StubServer, model: str) -> None:
    required = body(CHAT, {"type": "function", "function": {"name": "book"}}, "hello", model)
    ((name, arguments),) = calls(CHAT, send_request(stub, "POST", CHAT, required))
    assert name == "book"
    jsonschema.validate(arguments, BOOK)


def test_configured_calls_and_errors_stay(stub: StubServer) -> None:
    required = body(CHAT, "required", model="tool-caller")
    assert calls(CHAT, send_request(stub, "POST", CHAT, required)) == [
        ("read_file", {"path": "/src/main.js"})
    ]
    assert send_request(stub, "POST", CHAT, body(CHAT, "required", model="failing")).status == 500
    shortened = send_request(
        stub, "POST", CHAT, body(CHAT, "required", model="finish-length")
    ).json["choices"][0]
    assert (shortened["finish_reason"], "tool_calls" in shortened["message"]) == ("length", False)


def test_script_decides_about_its_replies() -> None:
    with StubServer(resolve=lambda _: Reply.of("no call"), speed=0) as stub:
        assert calls(CHAT, send_request(stub, "POST", CHAT, body(CHAT, "required"))) == []


def test_instruction_block_decides_about_its_replies(stub: StubServer) -> None:
    plan = json.dumps({"messages": [{"text_message": {"length": 3}}]})
    block = f"<|instruction_start|>{plan}<|instruction_end|>"
    assert calls(CHAT, send_request(stub, "POST", CHAT, body(CHAT, "required", block))) == []


def test_each_required_tool_is_called_before_the_last_repeats(stub: StubServer) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    called = []
    for _ in range(3):
        answer = send_request(stub, "POST", CHAT, body(CHAT, "required", messages=messages))
        ((name, _),) = calls(CHAT, answer)
        called.append(name)
        message = answer.json["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "done"}
        messages += [message, result]
    assert called == ["now", "book", "book"]


def test_required_call_is_streamed(stub: StubServer) -> None:
    answer = send_request(stub, "POST", CHAT, body(CHAT, "required", stream=True))
    *data, done, _ = answer.body.decode().split("\n\n")
    deltas = [json.loads(one.removeprefix("data: "))["choices"][0] for one in data]
    assert deltas[0]["delta"]["tool_calls"][0]["function"]["name"] == "now"
    assert (deltas[-1]["finish_reason"], done) == ("tool_calls", "data: [DONE]")


@cases(
    ("path", "choice", "message"),
    [
        (
            CHAT,
            {"type": "function", "function": {"name": "nope"}},
            "the request selects the function nope, but does not offer it",
        ),
        (
            RESPONSE,
            {"type": "function", "name": "nope"},
            "the request selects the function nope, but does not offer it",
        ),
        (
            RESPONSE,
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "nope"}],
            },
            "the request selects the function nope, but does not offer it",
        ),
        (
            CHAT,
            "always",
            'Invalid value for tool_choice: expected one of none, auto, required, found "always"',
        ),
        (
            CHAT,
            {"type": "function"},
            "Invalid value for tool_choice.function: expected a value, found nothing",
        ),
        (
            MESSAGE,
            {"type": "tool", "name": "nope"},
            "the request selects the function nope, but does not offer it",
        ),
        (
            MESSAGE,
            {"type": "tool"},
            "Invalid value for tool_choice.name: expected a value, found nothing",
        ),
        (
            GEMINI,
            {"mode": "ANY", "allowedFunctionNames": ["nope"]},
            "the request selects the function nope, but does not offer it",
        ),
    ],
)
def test_unknown_tool_is_an_error_of_the_provider(
    stub: StubServer, path: str, choice: Any, message: str
) -> None:
    refused = send_request(stub, "POST", path, body(path, choice))
    assert (refused.status, refused.json["error"]["message"]) == (400, message)


@cases(
    ("path", "choice"), [(CHAT, "required"), (MESSAGE, {"type": "any"}), (GEMINI, {"mode": "ANY"})]
)
def test_required_call_without_tools_is_an_error(stub: StubServer, path: str, choice: Any) -> None:
    assert send_request(stub, "POST", path, body(path, choice, tools=[])).status == 400


def test_anthropic_refuses_a_required_call_with_thinking(stub: StubServer) -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    refused = send_request(stub, "POST", MESSAGE, body(MESSAGE, {"type": "any"}, thinking=thinking))
    assert (
        refused.json["error"]["message"]
        == "Thinking may not be enabled when tool_choice forces tool use."
    )


def call(parameters: Any, text: str) -> ToolCall:
    (function,) = functions([{"function": {"name": "f", "parameters": parameters}}])
    return call_of(function, text)


def test_numbers_and_quotes_of_the_message_become_arguments() -> None:
    properties = {
        "count": {"type": "integer", "title": "Count"},
        "share": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "level": {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 9},
        "limit": {"type": ["null", "integer"]},
        "name": {"type": ["string", "null"]},
    }
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    arguments = call(schema, "v2: take -7, 0.5 and f(3), 'so it is', limit=8").arguments
    assert arguments == {"count": -7, "share": 0.5, "level": 3, "limit": 8, "name": "so it is"}


@cases(
    "limit",
    [
        {"type": "integer", "default": 10},
        {"type": ["integer", "null"], "default": None},
        {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None, "examples": [5]},
    ],
)
def test_argument_with_a_default_is_assigned_but_not_guessed(limit: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"limit": limit, "count": {"type": "integer"}}}
    assert call(schema, "show 5").arguments == {"count": 5}
    assert call(schema, "show 5, limit=8").arguments == {"limit": 8, "count": 5}


@cases(
    "declared",
    [
        {"type": "integer", "minimum": 10},
        {"type": "integer", "exclusiveMinimum": 5},
        {"type": "integer", "multipleOf": 3},
        {"type": "integer", "enum": [7]},
        {"type": "boolean"},
        {"type": ["null", "boolean"]},
        {"type": "string", "pattern": "^[a-f]{4}$"},
        {"type": "string", "minLength": 10},
        {"type": "string", "format": "date"},
        {"const": "so"},
        {"type": "array", "items": {"type": "integer"}},
        {"$ref": "#/$defs/high"},
        {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/high"}]},
    ],
)
def test_words_of_the_message_that_the_schema_forbids_are_not_used(
    declared: dict[str, Any],
) -> None:
    high = {"type": "integer", "minimum": 100}
    schema = {
        "type": "object",
        "properties": {"x": declared},
        "required": ["x"],
        "$defs": {"high": high},
    }
    arguments = call(schema, "take x=5 and 'five'").arguments
    jsonschema.validate(arguments, schema, format_checker=jsonschema.FormatChecker())


@cases(
    "limits",
    [
        {"minLength": None, "maxLength": None},
        {"minimum": None, "maximum": None},
        {"exclusiveMinimum": None, "exclusiveMaximum": None},
        {"minimum": 0, "exclusiveMinimum": True},  # of draft 4
        {"maximum": 9, "exclusiveMaximum": False},
    ],
)
@cases("kind", ["string", "number"])
def test_limit_that_is_no_number_is_ignored(kind: str, limits: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"x": {"type": kind, **limits}}, "required": ["x"]}
    assert call(schema, "x=0.5").arguments == {"x": "0.5" if kind == "string" else 0.5}


@cases("value", ["9" * 5000, "[" * 20_000], ids=["digits", "brackets"])
def test_value_that_json_cannot_read_is_not_used(value: str) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer", "maximum": 9}}}
    assert call({**schema, "required": ["x"]}, f"x={value}").arguments["x"] <= 9


def test_required_call_has_optional_arguments(stub: StubServer) -> None:
    schema = {
        "type": "object",
        "properties": {"tasks": {"type": "array", "items": {"type": "string"}}},
        "required": [],
    }
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    answer = send_request(stub, "POST", CHAT, body(CHAT, "required", tools=[tool]))
    ((_, arguments),) = calls(CHAT, answer)
    assert arguments["tasks"]


@cases("parameters", [None, {}, True, {"type": "string"}, {"type": "object", "properties": 3}])
def test_call_of_a_tool_with_an_odd_schema_has_no_arguments(parameters: Any) -> None:
    assert call(parameters, "5").arguments == {}
