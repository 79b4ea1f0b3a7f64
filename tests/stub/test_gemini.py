"""Gemini's API with its official client, which uses `/v1beta` by default."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from enum import Enum
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from mochi_stub import Cut, Failure, Model, Prompt, Reply, StubServer, Text, ToolCall, Usage
from mochi_stub.replies import hash_sized
from tests.stub.clients import gemini_client, stub_replying
from tests.stub.requests import send_request
from tests.support.cases import cases
from tests.support.lazy import LazyModule

if TYPE_CHECKING:
    from google import genai
    from google.genai import errors, types
else:
    genai = LazyModule("google.genai")
    errors = LazyModule("google.genai.errors")
    types = LazyModule("google.genai.types")


HELLO = {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
VERSIONS = (None, "v1beta", "v1alpha")


@pytest.fixture(scope="module")
def module_stub() -> Iterator[StubServer]:
    with StubServer(speed=0) as stub:
        yield stub


@pytest.fixture(scope="module")
def client(module_stub: StubServer) -> Iterator[genai.Client]:
    with gemini_client(module_stub) as client:
        yield client


def path(verb: str, model: str = "mochi", version: str = "v1beta") -> str:
    return f"/{version}/models/{model}:{verb}"


@cases("version", VERSIONS)
def test_all_api_versions_give_the_same_answer(
    module_stub: StubServer, version: str | None
) -> None:
    with gemini_client(module_stub, version) as client:
        whole = client.models.generate_content(model="mochi", contents="hello")
        stream = list(client.models.generate_content_stream(model="mochi", contents="hello"))
        assert (
            whole.text
            == "".join(chunk.text or "" for chunk in stream)
            == f"{hash_sized('hello')} hello"
        )
        assert [model.name for model in client.models.list()][:2] == [
            "models/mochi",
            "models/mochi-chat",
        ]
        assert client.models.get(model="mochi").input_token_limit == 40960
        assert client.models.count_tokens(model="mochi", contents="hello").total_tokens == len(
            "hello"
        )
        embedded = client.models.embed_content(model="mochi-embed", contents=["a", "b"])
        assert embedded.embeddings
        assert [len(one.values or ()) for one in embedded.embeddings] == [768, 768]


@pytest.fixture(scope="module")
def five_models() -> Iterator[StubServer]:
    with StubServer(models=[Model(f"m{index}") for index in range(5)], speed=0) as stub:
        yield stub


@cases("size", [1, 2, 5, 0, 9999])
def test_client_reads_all_models(five_models: StubServer, size: int) -> None:
    with gemini_client(five_models) as client:
        pager = client.models.list(config={"page_size": size})
        assert [model.name for model in pager] == [f"models/m{index}" for index in range(5)]


def test_stream_is_a_list_unless_events_are_requested() -> None:
    calls = [ToolCall("read_file", {"path": "/src/main.js"}, id="mine")]
    with stub_replying(Reply.of(("one", " two"), reasoning="hm", tool_calls=calls)) as stub:
        events = send_request(stub, "POST", f"{path('streamGenerateContent')}?alt=sse", HELLO)
        listed = send_request(stub, "POST", path("streamGenerateContent"), HELLO)
    assert events.headers["content-type"] == "text/event-stream"
    assert listed.headers["content-type"] == "application/json; charset=UTF-8"
    *frames, rest = events.body.decode().split("\r\n\r\n")
    assert rest == ""
    chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    assert chunks == listed.json
    assert [chunk["candidates"] for chunk in chunks] == [
        [{"content": {"parts": [{"text": "one"}], "role": "model"}, "index": 0}],
        [{"content": {"parts": [{"text": " two"}], "role": "model"}, "index": 0}],
        [
            {
                "content": {
                    "parts": [
                        {
                            "functionCall": {
                                "id": "mine",
                                "name": "read_file",
                                "args": {"path": "/src/main.js"},
                            }
                        }
                    ],
                    "role": "model",
                },
                "index": 0,
            }
        ],
        [
            {
                "content": {"parts": [{"text": ""}], "role": "model"},
                "finishReason": "STOP",
                "index": 0,
            }
        ],
    ]
    assert [chunk.get("usageMetadata", {}).get("promptTokenCount") for chunk in chunks] == [
        None,
        None,
        None,
        5,
    ]


def test_thoughts_are_sent_only_on_request() -> None:
    with (
        stub_replying(Reply.of("text", reasoning="let me see")) as stub,
        gemini_client(stub) as client,
    ):
        plain = client.models.generate_content(model="mochi", contents="hello")
        config = types.GenerateContentConfig(
            thinking_config=types.ThinkingConfig(include_thoughts=True)
        )
        shown = client.models.generate_content(model="mochi", contents="hello", config=config)
    assert [(part.text, part.thought) for part in plain.parts or ()] == [("text", None)]
    assert [(part.text, part.thought) for part in shown.parts or ()] == [
        ("let me see", True),
        ("text", None),
    ]
    assert plain.usage_metadata == shown.usage_metadata


def test_usage_counts_thoughts_and_candidates() -> None:
    usage = Usage(input=100, output=50, reasoning=25)
    with stub_replying(Reply.of("text", usage=usage)) as stub, gemini_client(stub) as client:
        metadata = client.models.generate_content(model="mochi", contents="hello").usage_metadata
    assert metadata
    assert (
        metadata.prompt_token_count,
        metadata.candidates_token_count,
        metadata.total_token_count,
    ) == (100, 50, 150)


# the client warns about any use outside a chat, and its own chats cause the warning
@pytest.mark.skipif(
    version("google-genai") < "3", reason="chats of older clients leave the calls to their users"
)
@pytest.mark.filterwarnings("ignore:Direct use of automatic function calling")
def test_chat_calls_functions_until_it_has_an_answer(module_stub: StubServer) -> None:
    zones: list[str] = []

    def now(zone: str) -> str:
        """The time."""
        zones.append(zone)
        return "noon"

    plan = {"messages": [{"tool_call": [{"name": "now", "args": {"zone": "UTC"}}]}]}
    config = types.GenerateContentConfig(tools=[now])
    with gemini_client(module_stub) as client:
        chat = client.chats.create(model="mochi", config=config)
        answer = chat.send_message(f"<|instruction_start|>{json.dumps(plan)}<|instruction_end|>")
    assert zones == ["UTC"]
    assert answer.text == f"{hash_sized('noon')} noon"


class Person(BaseModel):
    name: str
    age: int
    tags: list[str]


def test_answer_matches_the_schema(client: genai.Client) -> None:
    config = types.GenerateContentConfig(
        response_mime_type="application/json", response_schema=Person
    )
    answer = client.models.generate_content(model="mochi", contents="hello", config=config)
    assert isinstance(answer.parsed, Person)
    config = types.GenerateContentConfig(response_mime_type="application/json")
    plain = client.models.generate_content(model="mochi", contents="hello", config=config)
    assert isinstance(json.loads(plain.text or ""), dict)


def test_sizes_of_a_schema_can_be_texts(module_stub: StubServer) -> None:
    """JavaScript's client sends them so."""
    names = {"type": "ARRAY", "minItems": "5", "maxItems": "5", "items": {"type": "STRING"}}
    config = {"responseMimeType": "application/json", "responseSchema": names}
    body = {**HELLO, "generationConfig": config}
    answer = send_request(module_stub, "POST", path("generateContent"), body).json
    assert len(json.loads(answer["candidates"][0]["content"]["parts"][0]["text"])) == 5
    city = {"type": "OBJECT", "properties": {"city": {"type": "STRING", "minLength": "3"}}}
    tool = {"name": "get_weather", "parameters": {**city, "required": ["city"]}}
    forced = {"functionCallingConfig": {"mode": "ANY"}}
    body = {**HELLO, "tools": [{"functionDeclarations": [tool]}], "toolConfig": forced}
    answer = send_request(module_stub, "POST", path("generateContent"), body).json
    (part,) = answer["candidates"][0]["content"]["parts"]
    assert len(part["functionCall"]["args"]["city"]) >= 3


class Instrument(Enum):
    BRASS = "Brass"
    STRING = "String instrument"


def test_enum_is_sent_without_quotes(client: genai.Client) -> None:
    config = types.GenerateContentConfig(
        response_mime_type="text/x.enum", response_schema=Instrument
    )
    answer = client.models.generate_content(model="mochi", contents="a trumpet", config=config)
    assert answer.text in {"Brass", "String instrument"}
    assert isinstance(answer.parsed, Instrument)
    stream = client.models.generate_content_stream(
        model="mochi", contents="a trumpet", config=config
    )
    assert "".join(chunk.text or "" for chunk in stream) == answer.text


def test_contents_of_all_kinds_reach_the_model() -> None:
    seen: list[Prompt] = []

    def resolve(prompt: Prompt) -> Reply:
        seen.append(prompt)
        return Reply.of("ok")

    contents: list[Any] = [
        types.Content(
            role="user",
            parts=[
                types.Part(text="look"),
                types.Part.from_bytes(data=b"x", mime_type="image/png"),
            ],
        ),
        types.Content(
            role="model",
            parts=[
                types.Part(text="hm", thought=True),
                types.Part(text="let me"),
                types.Part.from_function_call(name="now", args={"a": 1}),
            ],
        ),
        types.Content(
            role="user",
            parts=[
                types.Part.from_function_response(name="now", response={"result": "noon"}),
                types.Part.from_function_response(name="now", response={"hour": 12, "minute": 0}),
            ],
        ),
    ]
    schema = types.Schema(
        type=types.Type.OBJECT, properties={"zone": types.Schema(type=types.Type.STRING)}
    )
    declared = types.FunctionDeclaration(name="now", description="the time", parameters=schema)
    config = types.GenerateContentConfig(
        system_instruction="be kind",
        tools=[types.Tool(function_declarations=[declared])],
        temperature=0.5,
        top_k=3,
        stop_sequences=["x"],
        max_output_tokens=9,
        thinking_config=types.ThinkingConfig(thinking_budget=0),
    )
    with stub_replying(resolve) as stub, gemini_client(stub) as client:
        client.models.generate_content(model="mochi", contents=contents, config=config)
    (prompt,) = seen
    system, user, assistant, first, second = prompt.messages
    assert (system.role, system.content) == ("system", "be kind")
    assert (user.content, user.images) == ("look", 1)
    assert (assistant.role, assistant.thinking, assistant.content) == ("assistant", "hm", "let me")
    assert [(call.name, call.arguments) for call in assistant.tool_calls] == [("now", {"a": 1})]
    assert [(one.role, one.tool_name, one.content) for one in (first, second)] == [
        ("tool", "now", "noon"),
        ("tool", "now", '{"hour":12,"minute":0}'),
    ]
    function = {"name": "now", "description": "the time"}
    parameters = {"properties": {"zone": {"type": "string"}}, "type": "object"}
    assert prompt.tools == (
        {"type": "function", "function": {**function, "parameters": parameters}},
    )
    expected = {"temperature": 0.5, "top_k": 3, "stop": ["x"], "num_predict": 9}
    assert {name: prompt.options[name] for name in expected} == expected
    assert not prompt.includes_reasoning


def test_field_names_can_be_snake_case(module_stub: StubServer) -> None:
    body = {
        **HELLO,
        "generation_config": {"max_output_tokens": 5},
        "system_instruction": {"parts": [{"text": "x"}]},
    }
    answer = send_request(module_stub, "POST", path("generateContent"), body).json
    assert answer["candidates"][0]["content"]["parts"] == [{"text": "lorem"}]
    assert answer["candidates"][0]["finishReason"] == "MAX_TOKENS"


def test_schema_in_snake_case_becomes_a_json_schema_with_unchanged_data() -> None:
    seen: list[Prompt] = []

    def resolve(prompt: Prompt) -> Reply:
        seen.append(prompt)
        return Reply.of("ok")

    data = {"postal_code": "1", "type": "HOME", "nullable": False}
    schema = {
        "type": "OBJECT",
        "min_properties": "1",
        "property_ordering": ["zone"],
        "default": data,
        "example": [data],
    }
    config = {"response_mime_type": "application/json", "response_schema": schema}
    body = {**HELLO, "generation_config": config}
    with stub_replying(resolve) as stub:
        send_request(stub, "POST", path("generateContent"), body)
    (prompt,) = seen
    assert prompt.format == {
        "type": "object",
        "minProperties": 1,
        "default": data,
        "example": [data],
    }


def test_one_or_many_texts_are_embedded(module_stub: StubServer, client: genai.Client) -> None:
    texts: Any = ["the cat sat on the mat", "a cat is sitting on the mat", "quarterly revenue grew"]
    found = client.models.embed_content(model="mochi-embed", contents=texts).embeddings or []
    cat, same, other = [one.values or [] for one in found]
    assert sum(value * value for value in cat) == pytest.approx(1, abs=1e-5)
    assert sum(map(float.__mul__, cat, same)) > sum(map(float.__mul__, cat, other)) + 0.2
    single = send_request(
        module_stub,
        "POST",
        path("embedContent", "mochi-embed"),
        {"content": {"parts": [{"text": texts[0]}]}},
    )
    assert single.json["embedding"]["values"] == pytest.approx(cat, abs=1e-6)
    short = client.models.embed_content(
        model="mochi-embed", contents="x", config=types.EmbedContentConfig(output_dimensionality=16)
    )
    assert [len(one.values or ()) for one in short.embeddings or ()] == [16]


def test_models_list_their_supported_actions(client: genai.Client) -> None:
    models = {model.name: model.supported_actions for model in client.models.list()}
    assert models["models/mochi"] == ["generateContent", "streamGenerateContent", "countTokens"]
    assert models["models/mochi-embed"] == ["embedContent", "batchEmbedContents"]
    with pytest.raises(
        errors.ClientError, match="Model is not found: models/nope for api version v1"
    ):
        client.models.get(model="nope")


def test_model_names_with_colons_and_slashes_are_found() -> None:
    with StubServer(models=[Model("org/model:4b")], speed=0) as stub:
        for name in ("org/model:4b", "org%2Fmodel:4b"):
            assert send_request(stub, "POST", path("generateContent", name), HELLO).status == 200


def test_repeated_prefix_of_a_model_name_is_ignored(module_stub: StubServer) -> None:
    plain, repeated = [
        send_request(module_stub, "POST", path("generateContent", name), HELLO)
        for name in ("mirror", "models/mirror")
    ]
    assert repeated.status == 200
    assert repeated.json == plain.json


def test_errors_are_raised_as_errors_of_the_client() -> None:
    def resolve(prompt: Prompt) -> Reply:
        return Reply([Failure("no", int(prompt.user_text))])

    statuses = {
        400: "INVALID_ARGUMENT",
        429: "RESOURCE_EXHAUSTED",
        500: "INTERNAL",
        503: "UNAVAILABLE",
    }
    with stub_replying(resolve) as stub, gemini_client(stub) as client:
        for code, status in statuses.items():
            for ask_for in (client.models.generate_content, client.models.generate_content_stream):
                with pytest.raises(
                    errors.ServerError if code >= 500 else errors.ClientError
                ) as caught:
                    list(ask_for(model="mochi", contents=str(code)))
                assert (caught.value.code, caught.value.status, caught.value.message) == (
                    code,
                    status,
                    "no",
                )
        limited = send_request(
            stub, "POST", path("generateContent"), {"contents": [{"parts": [{"text": "429"}]}]}
        )
    assert limited.headers["retry-after"] == "1"
    assert limited.json["error"]["details"] == [
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1s"}
    ]


def test_failure_in_mid_stream_is_raised_after_first_chunks() -> None:
    with (
        stub_replying(Reply([Text(("one",)), Failure("kaput", 503)])) as stub,
        gemini_client(stub) as client,
    ):
        stream = iter(client.models.generate_content_stream(model="mochi", contents="hello"))
        assert next(stream).text == "one"
        with pytest.raises(errors.ServerError, match="kaput"):
            next(stream)


def test_cut_ends_the_stream_without_a_finish_reason() -> None:
    with stub_replying(Reply([Text(("one",)), Cut()])) as stub, gemini_client(stub) as client:
        (chunk,) = client.models.generate_content_stream(model="mochi", contents="hello")
    assert chunk.candidates
    assert chunk.candidates[0].finish_reason is None


@cases(
    ("fields", "message"),
    [
        ({"contents": None}, "Invalid value for contents: expected a value, found nothing"),
        ({"contents": []}, "Invalid value for contents: expected at least 1 item, found []"),
        ({"contents": "hello"}, 'Invalid value for contents: expected array, found "hello"'),
        (
            {"contents": [{"parts": [{"text": 3}]}]},
            "Invalid value for contents[0].parts[0].text: expected string, found 3",
        ),
        (
            {"generationConfig": {"maxOutputTokens": "many"}},
            'Invalid value for generationConfig.maxOutputTokens: expected integer, found "many"',
        ),
    ],
)
def test_invalid_fields_are_named(
    module_stub: StubServer, fields: dict[str, Any], message: str
) -> None:
    for verb in ("generateContent", "streamGenerateContent?alt=sse"):
        answer = send_request(module_stub, "POST", path(verb), {**HELLO, **fields})
        assert answer.json["error"] == {
            "code": 400,
            "message": message,
            "status": "INVALID_ARGUMENT",
        }
        assert answer.status == 400


# the client itself derives a class from aiohttp's session
@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
@pytest.mark.parametrize("number", [5, pytest.param(20, marks=pytest.mark.nightly)])
async def test_concurrent_streams_of_the_async_client_do_not_mix(
    module_stub: StubServer, number: int
) -> None:
    with gemini_client(module_stub) as both:
        async with both.aio as client:

            async def stream_message(text: str) -> None:
                stream = await client.models.generate_content_stream(model="mochi", contents=text)
                answer = "".join([chunk.text or "" async for chunk in stream])
                assert answer == f"{hash_sized(text)} {text}"

            await asyncio.gather(*(stream_message(f"question {index}") for index in range(number)))
