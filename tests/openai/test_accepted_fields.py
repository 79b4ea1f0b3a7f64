"""Fields and values that Ollama's own `/v1` accepts, and fields that change the meaning of a
request.
"""

from __future__ import annotations

import base64
import json
import math
import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import httpx
import pytest
from pydantic import BaseModel, Field

from mochi_server.chat.turn_input import ToolSelection
from mochi_server.protocols.answer_request import AnswerRequest
from mochi_server.protocols.headers import MochiHeaders
from mochi_server.protocols.tool_choice import FunctionTool, ollama_tools
from mochi_stub import Model, StubServer
from tests.openai.conversation import Conversation, client_of, message_of
from tests.support.cases import cases
from tests.support.instructions import instruct, words
from tests.support.server import RunningServer
from tests.support.stub import chats

if TYPE_CHECKING:
    import openai

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n and so on").decode()
THINKING: dict[str, tuple[dict[str, Any], Any]] = {
    "nothing": ({}, None),
    "reasoning_effort": ({"reasoning_effort": "low"}, "low"),
    "no effort": ({"reasoning_effort": "none"}, False),
    "minimal": ({"reasoning_effort": "minimal"}, "low"),
    "ultra": ({"reasoning_effort": "ultra"}, "max"),
    "reasoning": ({"reasoning": {"effort": "high"}, "reasoning_effort": "low"}, "high"),
    "empty reasoning": ({"reasoning": {}, "reasoning_effort": "low"}, "low"),
    "think": ({"think": True}, True),
    "do not think": ({"think": False}, False),
    "think level": ({"think": "medium"}, "medium"),
    "think none": ({"think": "none"}, False),
    "think minimal": ({"think": "minimal"}, "low"),
    "think xhigh": ({"think": "xhigh"}, "max"),
    "both": ({"think": True, "reasoning_effort": "none"}, False),
}


def tool(properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": "look", "parameters": parameters}}


@cases(("asks", "think"), THINKING.values(), ids=THINKING)
def test_thinking_is_that_of_the_request(asks: dict[str, Any], think: Any) -> None:
    request = AnswerRequest(model="mochi", **asks)
    assert (
        request.turn(MochiHeaders.model_validate({}), ToolSelection(), limit=None).generation.think
        == think
    )


def test_all_routes_set_thinking(client: openai.OpenAI, stub: StubServer) -> None:
    before, asks = len(chats(stub)), {"reasoning": {"effort": "ultra"}}
    client.completions.create(model="mochi", prompt="Hello!", extra_body=asks)
    client.responses.create(model="mochi", input="Hello!", extra_body=asks)
    Conversation(client, stub).send_message("Hello!", extra_body=asks)
    assert [chat.body.get("think") for chat in chats(stub)[before:]] == ["max"] * 3


def test_model_thinks_by_default(conversation: Conversation) -> None:
    answer: Any = message_of(conversation.send_message(instruct(words(2), reasoning=3)))
    assert answer.reasoning


def test_model_that_cannot_think_answers(tmp_path: Path) -> None:
    models = [Model("plain", capabilities=("completion",))]
    with (
        StubServer(models=models, speed=0) as stub,
        RunningServer(tmp_path, stub.url) as server,
        client_of(server) as client,
    ):
        conversation = Conversation(client, stub, asks={"model": "plain"})
        conversation.send_message("Hello!", reasoning_effort="high")
        conversation.send_message("Hello!")
        assert ["think" in sent for sent in conversation.sent] == [False, False]


def test_session_decides_about_thinking_if_the_request_does_not(
    conversation: Conversation, server: RunningServer
) -> None:
    api = server.api()
    for stored, sent in ((None, None), (False, False), ("low", "low")):
        session_id = api.create_session("mochi", think=stored)["session_id"]
        conversation.send_message("Hello!", extra_headers={"X-Mochi-Session": session_id})
        assert conversation.sent[-1].get("think") == sent
        api.send_message(session_id, "Hello!")
        assert conversation.sent[-1]["think"] == (sent or False)


@cases(
    "image",
    [
        f"data:image/png;base64,{PNG}",
        f"data:;base64,{PNG}",
        {"url": f"data:;base64,{PNG}"},
        f"data:image/png;name=photo.png;charset=utf-8;base64,{PNG}",
    ],
    ids=["text", "no type", "object", "parameters"],
)
def test_images_are_accepted_in_all_forms(conversation: Conversation, image: Any) -> None:
    conversation.send_message([{"type": "image_url", "image_url": image}], model="echo")
    assert conversation.sent[-1]["messages"][0]["images"] == [PNG]


def test_refusals_of_earlier_answers_are_text(conversation: Conversation) -> None:
    refusal = {"type": "refusal", "refusal": "I cannot do that."}
    conversation.messages = [
        {"role": "assistant", "content": [{"type": "text", "text": "Sorry."}, refusal]}
    ]
    conversation.send_message("Why?")
    assert conversation.sent[-1]["messages"][0]["content"] == "Sorry.\nI cannot do that."


def test_refusal_is_the_text_of_an_answer_without_content(conversation: Conversation) -> None:
    conversation.messages = [{"role": "assistant", "content": None, "refusal": "I cannot do that."}]
    conversation.send_message("Why?")
    assert conversation.sent[-1]["messages"][0]["content"] == "I cannot do that."


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_answer_can_have_no_token_limit(conversation: Conversation, field: str) -> None:
    answer = conversation.send_message("Hello!", **{field: -1})
    assert answer.choices[0].finish_reason == "stop"
    assert conversation.refused(**{field: -2}).param == field


def test_options_of_other_servers_are_sent_to_ollama(conversation: Conversation) -> None:
    options = {"top_k": 20, "min_p": 0.1, "repeat_penalty": 1.1}
    conversation.send_message("Hello!", extra_body={**options, "keep_alive": "5m"})
    assert options.items() <= conversation.sent[-1]["options"].items()
    assert conversation.sent[-1]["keep_alive"] == "5m"


@cases(
    ("asks", "param"),
    [
        ({"options": {"num_ctx": 1}}, "options"),
        ({"num_ctx": 8192}, "num_ctx"),
        ({"format": "json"}, "format"),
        ({"think": "very"}, "think"),
        ({"reasoning": {"effort": "wat"}}, "reasoning.effort"),
        ({"reasoning_effort": "wat"}, "reasoning_effort"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"n": 2}, "n"),
        (
            {"messages": [{"role": "assistant", "function_call": {"name": "f"}}]},
            "messages[0].function_call",
        ),
        ({"messages": [{"role": "assistant", "audio": {"id": "a"}}]}, "messages[0].audio"),
        ({"logit_bias": {"1": 2}}, "logit_bias"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"function_call": {"name": "f"}}, "function_call"),
        ({"model": "agent:helper", "logprobs": True}, "logprobs"),
        ({"model": "agent:helper", "response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [tool(5)]}, "tools[0].function.parameters"),
        ({"tools": [tool({}), tool({"at": 5})]}, "tools[1].function.parameters"),
    ],
    ids=str,
)
def test_unsupported_fields_are_refused_by_name(
    conversation: Conversation, asks: dict[str, Any], param: str
) -> None:
    model = asks.pop("model", "mochi")
    refusal = conversation.refused(model=model, extra_body=asks)
    assert (refusal.status_code, refusal.param) == (400, param)
    assert param in refusal.message


@cases(
    ("asks", "param"),
    [
        ({"repeat_penalty": "HUGE"}, "repeat_penalty"),
        ({"tools": [tool({"at": {"maximum": "HUGE"}})]}, "tools[0].function.parameters"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"schema": {"maximum": "HUGE"}},
                }
            },
            "response_format.json_schema.schema",
        ),
    ],
    ids=str,
)
def test_number_that_json_cannot_represent_is_refused(
    server: RunningServer, asks: dict[str, Any], param: str
) -> None:
    body = json.dumps({"model": "mochi", "messages": [{"role": "user", "content": "Hi"}], **asks})
    content = body.replace('"HUGE"', "1e400")
    headers = {"Content-Type": "application/json"}
    response = httpx.post(
        f"{server.url}/v1/chat/completions", content=content, headers=headers, timeout=60
    )
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(("model", "tools"), [("agent:helper", ""), ("mochi-chat", "add")])
def test_error_about_tools_of_the_server_names_the_header(
    conversation: Conversation, model: str, tools: str
) -> None:
    refusal = conversation.refused(model=model, extra_headers={"X-Mochi-Tools": tools})
    assert (refusal.status_code, refusal.param) == (400, "X-Mochi-Tools")


def test_error_names_all_allowed_values_of_a_field(conversation: Conversation) -> None:
    error = conversation.refused(extra_body={"think": "very"}).response.json()["error"]
    assert error["message"] == (
        "think: Input should be a valid boolean; Input should be 'none', 'minimal', 'low', "
        "'medium', 'high', 'xhigh', 'ultra' or 'max'"
    )


def test_unsupported_fields_are_accepted_if_they_change_nothing(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "Hello!"}]
    options: Any = {"options": {}}
    for call in ("none", "auto"):
        asks = options | {"functions": [], "function_call": call}
        client.chat.completions.create(model="mochi", messages=messages, extra_body=asks)
    client.responses.create(model="mochi", input="Hello!", extra_body=options)
    asks = options | {"logprobs": False}
    client.completions.create(model="mochi", prompt="Hello!", extra_body=asks)


def test_refusal_names_all_supported_values(conversation: Conversation) -> None:
    refusal = conversation.refused(extra_body={"function_call": {"name": "f"}})
    assert 'must be "none", "auto", or left out: use `tool_choice`' in refusal.message


def test_several_answers_are_refused_with_the_reason(conversation: Conversation) -> None:
    assert "Ollama gives one answer" in conversation.refused(n=3).message


@pytest.mark.parametrize("top", [None, 2])
def test_log_probabilities_are_those_of_ollama(conversation: Conversation, top: int | None) -> None:
    whole = conversation.send_message(
        "Hello!", logprobs=True, **({} if top is None else {"top_logprobs": top})
    )
    assert (conversation.sent[-1]["logprobs"], conversation.sent[-1]["top_logprobs"]) == (
        True,
        top or 0,
    )
    assert whole.choices[0].logprobs
    tokens = whole.choices[0].logprobs.content or []
    assert "".join(token.token for token in tokens) == message_of(whole).content
    assert all(token.logprob <= 0 and len(token.top_logprobs) == (top or 0) for token in tokens)
    assert all(math.isfinite(token.logprob) for token in tokens)


def test_streamed_log_probabilities_are_beside_their_text(client: openai.OpenAI) -> None:
    request: Any = {
        "model": "mochi",
        "messages": [{"role": "user", "content": instruct(words(9), reasoning=3)}],
    }
    chunks = list(client.chat.completions.create(stream=True, logprobs=True, **request))
    told = [chunk.choices[0] for chunk in chunks if chunk.choices[0].delta.content]
    assert len(told) > 1
    for choice in told:
        assert choice.logprobs
        assert (
            "".join(token.token for token in choice.logprobs.content or ()) == choice.delta.content
        )


def test_answers_have_no_log_probabilities_by_default(conversation: Conversation) -> None:
    assert conversation.send_message("Hello!").choices[0].logprobs is None
    assert "logprobs" not in conversation.sent[-1]


def test_models_and_agents_have_a_creation_time(
    server: RunningServer, client: openai.OpenAI, data_dir: Path
) -> None:
    tags = httpx.get(f"{server.settings.ollama_host}/api/tags").json()["models"]
    created = {model.id: model.created for model in client.models.list()}
    assert all(0 < created[tag["name"]] <= time.time() for tag in tags if tag["name"] in created)
    assert len(created) > 2
    assert client.models.retrieve("mochi").created == created["mochi:latest"]
    skill = data_dir / "agents" / "helper" / "SKILL.md"
    assert created["agent:helper"] == int(skill.stat().st_mtime)


@cases(
    "function",
    [
        {"name": "look"},
        {"name": "look", "parameters": None},
        {"name": "look", "parameters": {}},
        {"name": "look", "parameters": {"type": "object"}},
        {"name": "look", "parameters": {"type": "object", "properties": None, "required": None}},
    ],
)
def test_tool_without_arguments_is_sent_with_properties(
    client: openai.OpenAI, stub: StubServer, function: dict[str, Any]
) -> None:
    """The templates of models fail if `properties` is missing or null."""
    tools: Any = [{"type": "function", "function": function}]
    client.chat.completions.create(
        model="mochi", messages=[{"role": "user", "content": "Hello!"}], tools=tools
    )
    flat: Any = [{"type": "function", **function}]
    client.responses.create(model="mochi", input="Hello!", tools=flat)
    for chat in chats(stub)[-2:]:
        assert chat.body["tools"][0]["function"]["parameters"] == {
            "type": "object",
            "properties": {},
        }


def sent_parameters(
    server: RunningServer, stub: StubServer, parameters: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return what each protocol sends to Ollama of a tool with these parameters."""
    function: Any = {"name": "look", "description": "Look.", "parameters": parameters}
    question: Any = {"role": "user", "content": "Hello!"}
    chat = {"model": "mochi", "messages": [question]}
    session_id = server.client.create_session("mochi")["session_id"]
    run = {"threadId": "t", "runId": "r", "messages": [{"id": "1", **question}]}
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {**chat, "tools": [{"type": "function", "function": function}]},
        "/v1/responses": {
            "model": "mochi",
            "input": "Hello!",
            "tools": [{"type": "function", **function}],
        },
        "/v1/messages": {
            **chat,
            "max_tokens": 100,
            "tools": [{"name": "look", "input_schema": parameters}],
        },
        f"/api/v1/chat/{session_id}/ag-ui": {**run, "tools": [function]},
    }
    for path, body in bodies.items():
        response = httpx.post(f"{server.url}{path}", json=body, timeout=60)
        assert response.status_code == 200, response.text
        assert "RUN_ERROR" not in response.text
    return [chat.body["tools"][0]["function"]["parameters"] for chat in chats(stub)[-len(bodies) :]]


def test_boolean_schemas_are_sent_as_empty_schemas(server: RunningServer, stub: StubServer) -> None:
    """Ollama cannot read boolean schemas, which Rust programs send for any value."""
    nested = {
        "type": "object",
        "properties": {"value": True, "never": False, "items": {"type": "array", "items": True}},
        "anyOf": [True, {"properties": {"value": True}}],
        "additionalProperties": False,
        "default": True,
    }
    parameters = {"type": "object", "properties": {"value": True, "nested": nested}}
    for sent in sent_parameters(server, stub, parameters):
        assert sent["properties"] == {
            "value": {},
            "nested": {
                "type": "object",
                "description": "(default: True)",
                "properties": {"value": {}, "never": {}, "items": {"type": "array", "items": {}}},
                "anyOf": [{}, {"properties": {"value": {}}}],
            },
        }


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    name: str
    colour: Colour
    note: str | None


class Look(BaseModel):
    """Look."""

    place: Place
    target: Annotated[Place, Field(description="Where to look.")]
    kind: Literal["near"]
    zoom: int | None


def test_definitions_in_tools_of_sdks_reach_the_model(
    client: openai.OpenAI, server: RunningServer, stub: StubServer
) -> None:
    """Ollama drops keywords such as `$ref`, `allOf`, `oneOf` and `const`."""
    from openai import pydantic_function_tool

    parameters: Any = pydantic_function_tool(Look)["function"]["parameters"]
    parameters["properties"]["size"] = {"oneOf": [{"type": "integer"}, {"const": "any"}]}
    place = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "colour": {"type": "string", "enum": ["red", "blue"]},
            "note": {"type": ["string", "null"]},
        },
        "required": ["name", "colour", "note"],
    }
    for sent in sent_parameters(server, stub, parameters):
        assert sent == {
            "type": "object",
            "properties": {
                "place": place,
                "target": {**place, "description": "Where to look."},
                "kind": {"type": "string", "enum": ["near"]},
                "zoom": {"type": ["integer", "null"]},
                "size": {"anyOf": [{"type": "integer"}, {"enum": ["any"]}]},
            },
            "required": ["place", "target", "kind", "zoom"],
        }
    tool: Any = {"type": "function", "name": "look", "parameters": parameters}
    response = client.responses.create(model="mochi", input="Hello!", tools=[tool])
    assert response.tools[0].to_dict()["parameters"] == parameters


@cases(
    ("parameters", "sent"),
    [
        ({"type": ["object", "null"], "properties": {}}, {"type": "object", "properties": {}}),
        (
            {"properties": {"a": {"type": "string", "required": True}}},
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        ),
    ],
)
def test_schemas_that_ollama_cannot_read_are_converted(
    server: RunningServer, stub: StubServer, parameters: dict[str, Any], sent: dict[str, Any]
) -> None:
    assert sent_parameters(server, stub, parameters) == [sent] * 4


def doubling(levels: int) -> dict[str, Any]:
    """Return a small schema with more than 2 ** levels nodes after the conversion."""
    definitions = {}
    for number in range(levels):
        reference = {"$ref": f"#/$defs/{number + 1}"}
        definitions[str(number)] = {"properties": {"a": reference, "b": reference}}
    return {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/0"}, "b": True},
        "$defs": definitions,
    }


def test_schema_that_cannot_be_converted_is_sent_as_it_is(
    server: RunningServer, stub: StubServer
) -> None:
    too_large = doubling(20)
    invalid = {"type": "object", "properties": {"a": {"type": "string", "oneOf": "x"}}}
    expected = {**too_large, "properties": {"a": {"$ref": "#/$defs/0"}, "b": {}}}
    assert sent_parameters(server, stub, too_large) == [expected] * 4
    assert sent_parameters(server, stub, invalid) == [invalid] * 4


def test_recursive_schema_is_an_object(server: RunningServer, stub: StubServer) -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Tree"}}}
    parameters = {"$ref": "#/$defs/Tree", "$defs": {"Tree": tree}}
    sent = {"type": "object", "properties": {"next": {"type": "object"}}}
    assert sent_parameters(server, stub, parameters) == [sent] * 4


def test_conversion_does_not_repeat_long_texts() -> None:
    """The definition of a parameter is small, but 2,000 parameters refer to it."""
    properties = {f"p{number}": {"$ref": "#/$defs/text"} for number in range(2000)}
    text = {"type": "string", "description": "x " * 5_000}
    schema = {"type": "object", "properties": properties, "$defs": {"text": text}}
    (tool,) = ollama_tools([FunctionTool(name="look", parameters=schema)])
    assert tool["function"]["parameters"] == schema


def test_conversion_of_many_tools_is_bounded() -> None:
    tools = [FunctionTool(name=f"look{number}", parameters=doubling(9)) for number in range(200)]
    assert ollama_tools(tools[:1])[0]["function"]["parameters"].keys() == {"type", "properties"}
    total = sum(len(json.dumps(tool.parameters)) for tool in tools)
    assert len(json.dumps(ollama_tools(tools))) < 2 * total
