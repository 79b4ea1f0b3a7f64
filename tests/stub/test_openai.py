"""OpenAI's chat and text completions with the official client."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from mochi_stub import Choice, Cut, Failure, Model, Prompt, Reply, StubServer, Text, ToolCall, Usage
from mochi_stub.replies import hash_sized, lorem
from mochi_stub.reply import Part
from tests.stub.clients import openai_client, stub_replying
from tests.stub.requests import send_request
from tests.support.cases import cases
from tests.support.lazy import LazyModule

if TYPE_CHECKING:
    import openai
else:
    openai = LazyModule("openai")


HELLO: Any = [{"role": "user", "content": "hello"}]
TOOLS: Any = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def module_stub() -> Iterator[StubServer]:
    with StubServer(speed=0) as stub:
        yield stub


@pytest.fixture(scope="module")
def client(module_stub: StubServer) -> Iterator[openai.OpenAI]:
    with openai_client(module_stub) as client:
        yield client


def events(stub: StubServer, path: str, body: dict[str, Any]) -> list[Any]:
    """Return the data of a stream's events. The last event must be [DONE]."""
    answer = send_request(stub, "POST", path, {"model": "mochi", "stream": True, **body})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *data, done, rest = answer.body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(one.removeprefix("data: ")) for one in data]


@cases(
    ("path", "body", "name"),
    [
        ("/v1/chat/completions", {"messages": HELLO}, "mochi"),
        ("/v1/completions", {"prompt": "hello"}, "mochi"),
        ("/v1/responses", {"input": "hello"}, "mochi"),
        ("/v1/embeddings", {"input": "hello"}, "mochi-embed"),
    ],
)
def test_absent_model_is_the_first_that_can_reply(
    module_stub: StubServer, path: str, body: dict[str, Any], name: str
) -> None:
    for absent in ({}, {"model": None}):
        answer = send_request(module_stub, "POST", path, {**body, **absent})
        assert (answer.status, answer.json["model"]) == (200, name)


def test_absent_model_without_any_model_is_an_error() -> None:
    with StubServer(models=[], speed=0) as stub:
        refused = send_request(stub, "POST", "/v1/chat/completions", {"messages": HELLO})
    assert (refused.status, refused.json["error"]["message"]) == (
        400,
        "you must provide a model parameter",
    )


def instruction(*messages: Any, **plan: Any) -> Any:
    block = f"<|instruction_start|>{json.dumps({**plan, 'messages': messages})}<|instruction_end|>"
    return [{"role": "user", "content": block}]


def test_chunks_have_the_expected_keys() -> None:
    with stub_replying(Reply.of(("one", " two"), reasoning=("hm",))) as stub:
        chunks = events(stub, "/v1/chat/completions", {"messages": HELLO})
    assert [list(chunk) for chunk in chunks] == [
        ["id", "object", "model", "created", "choices"]
    ] * 4
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    created, id_ = chunks[0]["created"], chunks[0]["id"]
    assert {(chunk["created"], chunk["id"]) for chunk in chunks} == {(created, id_)}
    assert id_.split("-")[:2] == ["gen", str(created)]
    assert [chunk["choices"] for chunk in chunks] == [
        [
            {
                "index": 0,
                "delta": {"role": "assistant", "reasoning": "hm", "reasoning_content": "hm"},
                "finish_reason": None,
            }
        ],
        [{"index": 0, "delta": {"content": "one"}, "finish_reason": None}],
        [{"index": 0, "delta": {"content": " two"}, "finish_reason": None}],
        [{"index": 0, "delta": {}, "finish_reason": "stop"}],
    ]


def test_tool_calls_stream_name_then_arguments() -> None:
    calls = [ToolCall("now"), ToolCall("read_file", {"path": "/src/main.js"}, id="mine")]
    with stub_replying(Reply.of(tool_calls=calls)) as stub:
        chunks = events(stub, "/v1/chat/completions", {"messages": HELLO})
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    items = [item for delta in deltas for item in delta["tool_calls"]]
    assert [item["index"] for item in items] == [0, 0, 1, 1, 1]
    assert items[2] == {
        "index": 1,
        "id": "mine",
        "type": "function",
        "function": {"name": "read_file", "arguments": ""},
    }
    assert "".join(item["function"]["arguments"] for item in items[2:]) == '{"path":"/src/main.js"}'
    assert all("id" not in item and "name" not in item["function"] for item in items[3:])
    assert items[0]["id"].startswith("call_")
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_streamed_entries_are_choices_with_one_finish_reason(module_stub: StubServer) -> None:
    calls = [{"name": "now", "args": {"a": 1}}, {"name": "then", "args": {}}]
    prompt = instruction(
        {"text_message": {"length": 7}},
        {"tool_call": calls},
        {"text_message": {"length": 2}},
        id_message="#1",
        reasoning={"length": 3},
    )
    chunks = events(module_stub, "/v1/chat/completions", {"messages": prompt})
    choices = [chunk["choices"][0] for chunk in chunks]
    indices = [choice["index"] for choice in choices[:-1]]
    assert indices == sorted(indices)
    assert set(indices) == {0, 1, 2}

    def streamed(index: int, key: str) -> str:
        return "".join(
            choice["delta"].get(key, "") for choice in choices if choice["index"] == index
        )

    assert [streamed(index, "reasoning") for index in range(3)] == [
        f"#1 {lorem(3)} #1",
        "",
        f"#1 {lorem(3)} #1",
    ]
    assert [streamed(index, "content") for index in range(3)] == [
        f"#1 {lorem(7)} #1",
        "",
        f"#1 {lorem(2)} #1",
    ]
    items = [item for choice in choices for item in choice["delta"].get("tool_calls", ())]
    assert [item["function"]["name"] for item in items if "id" in item] == ["now", "then"]
    assert [item["index"] for item in items] == [0, 0, 1, 1]
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["stop"]
    assert choices[-1] == {"index": 0, "delta": {}, "finish_reason": "stop"}


def test_entries_are_choices_of_a_whole_reply(client: openai.OpenAI) -> None:
    prompt = instruction({"text_message": {"length": 2}}, {"tool_call": [{"name": "now"}]})
    first, second = client.chat.completions.create(model="mochi", messages=prompt).choices
    assert (first.index, first.message.content, first.finish_reason) == (0, lorem(2), "stop")
    assert (second.index, second.message.content, second.finish_reason) == (1, None, "stop")
    assert second.message.tool_calls


def test_tool_loop_ends(client: openai.OpenAI) -> None:
    messages: Any = instruction({"tool_call": [{"name": "now", "args": {}}]})
    first = (
        client.chat.completions.create(model="mochi", messages=messages, tools=TOOLS)
        .choices[0]
        .message
    )
    assert first.tool_calls
    messages += [first, {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "noon"}]
    last = client.chat.completions.create(model="mochi", messages=messages, tools=TOOLS).choices[0]
    assert (last.message.content, last.finish_reason) == (f"{hash_sized('noon')} noon", "stop")


def test_client_helper_assembles_a_stream() -> None:
    calls = [ToolCall("read_file", {"path": "/src/main.js"})]
    with (
        stub_replying(Reply.of("some text", reasoning="hm", tool_calls=calls)) as stub,
        openai_client(stub) as client,
    ):
        with client.chat.completions.stream(model="mochi", messages=HELLO, n=2) as stream:
            choices = stream.get_final_completion().choices
        assert [choice.message.content for choice in choices] == ["some text"] * 2
        assert [choice.finish_reason for choice in choices] == ["tool_calls"] * 2
        assert choices[1].message.tool_calls
        assert json.loads(choices[1].message.tool_calls[0].function.arguments) == {
            "path": "/src/main.js"
        }


def test_usage_includes_reasoning_and_cached_tokens() -> None:
    usage = Usage(input=100, output=50, reasoning=25, cache_read=10)
    with stub_replying(Reply.of("text", usage=usage)) as stub, openai_client(stub) as client:
        whole = client.chat.completions.create(model="mochi", messages=HELLO).usage
        options: Any = {"include_usage": True}
        chunks = list(
            client.chat.completions.create(
                model="mochi", messages=HELLO, stream=True, stream_options=options
            )
        )
    assert whole
    assert whole.completion_tokens_details
    assert whole.prompt_tokens_details
    assert (whole.prompt_tokens, whole.completion_tokens, whole.total_tokens) == (100, 50, 150)
    assert whole.completion_tokens_details.reasoning_tokens == 25
    assert whole.prompt_tokens_details.cached_tokens == 10
    assert chunks[-1].usage == whole
    assert chunks[-1].choices == []
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)


def test_usage_is_streamed_only_on_request(module_stub: StubServer) -> None:
    assert all(
        "usage" not in chunk
        for chunk in events(module_stub, "/v1/chat/completions", {"messages": HELLO})
    )


def test_reasoning_counts_as_output() -> None:
    with (
        stub_replying(Reply.of("0123456789", reasoning="abcde")) as stub,
        openai_client(stub) as client,
    ):
        usage = client.chat.completions.create(model="mochi", messages=HELLO, n=2).usage
    assert usage
    assert usage.completion_tokens_details
    assert (usage.completion_tokens, usage.completion_tokens_details.reasoning_tokens) == (30, 10)


class Person(BaseModel):
    name: str
    age: int
    tags: list[str]


def test_answer_matches_the_schema(client: openai.OpenAI) -> None:
    parsed = (
        client.chat.completions.parse(model="mochi", messages=HELLO, response_format=Person)
        .choices[0]
        .message.parsed
    )
    assert isinstance(parsed, Person)
    streamed = client.chat.completions.create(
        model="mochi", messages=HELLO, response_format={"type": "json_object"}, stream=True
    )
    assert isinstance(
        json.loads("".join(chunk.choices[0].delta.content or "" for chunk in streamed)), dict
    )


def test_messages_of_all_kinds_reach_the_model() -> None:
    seen: list[Prompt] = []

    def resolve(prompt: Prompt) -> Reply:
        seen.append(prompt)
        return Reply.of("ok")

    image: Any = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    call = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": '{"a": 1}'}}
    broken = {"id": "c2", "type": "function", "function": {"name": "now", "arguments": "{"}}
    custom = {"id": "c3", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
    messages: Any = [
        {"role": "developer", "content": "be brief"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "look"}, image, {"type": "text", "text": "here"}],
        },
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [call, broken, custom],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "noon"}]},
        {"role": "user", "name": "me", "content": "go on"},
    ]
    with stub_replying(resolve) as stub, openai_client(stub) as client:
        client.chat.completions.create(
            model="mochi",
            messages=messages,
            tools=TOOLS,
            temperature=0.5,
            seed=7,
            stop="x",
            max_tokens=9,
        )
        client.chat.completions.create(
            model="mochi", messages=messages, tools=TOOLS, tool_choice="none"
        )
        client.chat.completions.create(model="mochi", messages=HELLO, reasoning_effort="none")
    system, user, assistant, tool, last = seen[0].messages
    assert (system.role, system.content) == ("system", "be brief")
    assert (user.content, user.images) == ("look\nhere", 1)
    assert (assistant.content, assistant.thinking) == ("", "hm")
    assert assistant.tool_calls == (
        ToolCall("now", {"a": 1}, "c1"),
        ToolCall("now", {"arguments": "{"}, "c2"),
        ToolCall("shell", {"input": "ls"}, "c3"),
    )
    assert (tool.role, tool.content, tool.tool_call_id) == ("tool", "noon", "c1")
    assert seen[0].user_text == last.content == "go on"
    assert seen[0].options == {
        **{name: value for name, value in seen[0].options.items() if name in ("top_k", "top_p")},
        **{"temperature": 0.5, "seed": 7, "stop": ["x"], "num_predict": 9},
    }
    assert [len(prompt.tools) for prompt in seen] == [1, 0, 0]
    assert [prompt.includes_reasoning for prompt in seen] == [True, True, False]


def test_errors_are_raised_as_errors_of_the_client() -> None:
    def resolve(prompt: Prompt) -> Reply:
        return Reply([Failure(prompt.user_text, int(prompt.user_text))])

    kinds = {
        "400": openai.BadRequestError,
        "401": openai.AuthenticationError,
        "403": openai.PermissionDeniedError,
        "429": openai.RateLimitError,
        "500": openai.InternalServerError,
        "503": openai.InternalServerError,
    }
    with stub_replying(resolve) as stub, openai_client(stub) as client:
        for text, kind in kinds.items():
            for stream in (True, False):
                with pytest.raises(kind) as caught:
                    client.chat.completions.create(
                        model="mochi", messages=[{"role": "user", "content": text}], stream=stream
                    )
                assert caught.value.body
                assert caught.value.status_code == int(text)
                assert caught.value.response.headers.get("retry-after") == (
                    "1" if text == "429" else None
                )


def test_rate_limited_model_raises_a_rate_limit_error(client: openai.OpenAI) -> None:
    with pytest.raises(openai.RateLimitError, match="Rate limit exceeded"):
        client.chat.completions.create(model="rate-limited", messages=HELLO)


def test_retry_succeeds_after_a_rate_limit() -> None:
    replies = iter([Reply([Failure("slow", 429, (("retry-after-ms", "1"),))]), Reply.of("at last")])
    with stub_replying(lambda _: next(replies)) as stub, openai_client(stub) as client:
        answer = client.with_options(max_retries=1).chat.completions.create(
            model="mochi", messages=HELLO
        )
        assert answer.choices[0].message.content == "at last"
        assert [exchange.status for exchange in stub.exchanges()] == [429, 200]


def test_failure_in_mid_stream_is_raised_after_first_chunks() -> None:
    with (
        stub_replying(Reply([Text(("one",)), Failure("kaput")])) as stub,
        openai_client(stub) as client,
    ):
        stream = iter(client.chat.completions.create(model="mochi", messages=HELLO, stream=True))
        assert next(stream).choices[0].delta.content == "one"
        with pytest.raises(openai.APIError, match="kaput"):
            next(stream)


def test_cut_ends_the_stream_without_a_finish_reason() -> None:
    with stub_replying(Reply([Text(("one",)), Cut()])) as stub:
        answer = send_request(
            stub,
            "POST",
            "/v1/chat/completions",
            {"model": "mochi", "messages": HELLO, "stream": True},
        )
    assert b"[DONE]" not in answer.body
    assert answer.body.count(b"data:") == 1


@cases(
    ("fields", "message", "param", "code"),
    [
        (
            {"messages": None},
            "Invalid value for messages: expected a value, found nothing",
            "messages",
            None,
        ),
        (
            {"tool_choice": 3},
            "Invalid value for tool_choice: expected object, found 3",
            "tool_choice",
            None,
        ),
        (
            {"model": 3},
            "Invalid value for model: expected string, found 3",
            "model",
            None,
        ),
        (
            {"messages": []},
            "Invalid value for messages: expected at least 1 item, found []",
            "messages",
            None,
        ),
        (
            {"messages": [{"role": "boss", "content": "x"}]},
            "Invalid value for messages[0].role: expected one of system, assistant, user, function, tool, developer, "
            'found "boss"',
            "messages[0].role",
            None,
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": None}]}]},
            "Invalid value for messages[0].content[0].text: expected a value, found nothing",
            "messages[0].content[0].text",
            None,
        ),
        (
            {"reasoning_effort": "much"},
            "Invalid value for reasoning_effort: expected one of none, minimal, low, medium, high, xhigh, max, "
            'found "much"',
            "reasoning_effort",
            None,
        ),
        (
            {"tools": [{"type": "search"}]},
            'Invalid value for tools[0].type: expected one of function, custom, found "search"',
            "tools[0].type",
            None,
        ),
        (
            {"n": 0},
            "Invalid value for n: expected integer from 1 to 128, found 0",
            "n",
            None,
        ),
    ],
)
def test_invalid_fields_are_named(
    module_stub: StubServer, fields: dict[str, Any], message: str, param: Any, code: Any
) -> None:
    answer = send_request(
        module_stub, "POST", "/v1/chat/completions", {"model": "mochi", "messages": HELLO, **fields}
    )
    assert answer.status == 400
    assert answer.json == {
        "error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    }


def test_text_completion_has_a_choice_for_each_prompt(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="mochi", prompt=["a", "b"], n=2, echo=True)
    texts = [f"{one}{hash_sized(one)} {one}" for one in ("a", "a", "b", "b")]
    assert [choice.text for choice in whole.choices] == texts
    assert [choice.finish_reason for choice in whole.choices] == ["stop"] * 4
    assert whole.usage
    assert whole.usage.prompt_tokens == len("ab")
    completions, reasons = [""] * 4, [""] * 4
    for chunk in client.completions.create(
        model="mochi", prompt=["a", "b"], n=2, echo=True, stream=True
    ):
        for choice in chunk.choices:
            completions[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason
    assert (completions, reasons) == (texts, ["stop"] * 4)


@pytest.mark.parametrize("stream", [True, False])
def test_text_completion_without_tokens_echoes_the_prompt(
    client: openai.OpenAI, stream: bool
) -> None:
    answer: Any = client.completions.create(
        model="mochi", prompt="hello", max_tokens=0, echo=True, stream=stream
    )
    choices = [chunk.choices[0] for chunk in (answer if stream else [answer])]
    assert ("".join(choice.text for choice in choices), choices[-1].finish_reason) == (
        "hello",
        "length",
    )


def test_text_completion_counts_tokens_and_stops(
    module_stub: StubServer, client: openai.OpenAI
) -> None:
    answer = client.completions.create(model="mochi", prompt="hello", max_tokens=5)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("lorem", "length")
    assert answer.usage
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len("hello"), 5)
    chunks = events(
        module_stub,
        "/v1/completions",
        {"prompt": [1, 2], "stream_options": {"include_usage": True}},
    )
    assert chunks[-1]["usage"]["prompt_tokens"] == len("1 2")
    assert chunks[-1]["choices"] == []


def test_models_have_their_declared_names() -> None:
    models = [Model("gpt-4", modified_at="2026-01-01T00:00:00Z"), Model("org/fine:tuned")]
    with StubServer(models=models, speed=0) as stub, openai_client(stub) as client:
        listed = client.models.list().data
        assert [(model.id, model.object) for model in listed] == [
            ("gpt-4", "model"),
            ("org/fine:tuned", "model"),
        ]
        assert listed[0].created == 1_767_225_600
        assert client.models.retrieve("org/fine:tuned") == listed[1]
        with pytest.raises(openai.NotFoundError, match="The model 'nope' does not exist"):
            client.models.retrieve("nope")


def test_texts_are_embedded(client: openai.OpenAI) -> None:
    texts = ["the cat sat on the mat", "a cat is sitting on the mat", "quarterly revenue grew"]
    answer = client.embeddings.create(model="mochi-embed", input=texts)
    cat, same, other = [one.embedding for one in answer.data]
    assert len(cat) >= 256
    assert sum(value * value for value in cat) == pytest.approx(1, abs=1e-5)
    assert sum(map(float.__mul__, cat, same)) > sum(map(float.__mul__, cat, other)) + 0.2
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(map(len, texts))
    plain = client.embeddings.create(model="mochi-embed", input=texts[0], encoding_format="float")
    assert plain.data[0].embedding == pytest.approx(cat, abs=1e-6)
    short = client.embeddings.create(model="mochi-embed", input=[1, 2, 3], dimensions=16)
    assert len(short.data[0].embedding) == 16


def test_embeddings_need_an_input_and_can_fail(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="for input"):
        client.embeddings.create(model="mochi-embed", input=[])
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="nope", input="x")
    failing = Reply([Failure("slow down", 429)])
    with (
        stub_replying(failing) as stub,
        openai_client(stub) as other,
        pytest.raises(openai.RateLimitError, match="slow down"),
    ):
        other.embeddings.create(model="mochi-embed", input="x")


@pytest.mark.parametrize("number", [5, pytest.param(50, marks=pytest.mark.nightly)])
async def test_concurrent_streams_of_the_async_client_do_not_mix(
    module_stub: StubServer, number: int
) -> None:
    async with openai.AsyncOpenAI(base_url=f"{module_stub.url}/v1", api_key="x") as client:

        async def stream_message(text: str) -> None:
            messages: Any = [{"role": "user", "content": text}]
            stream = await client.chat.completions.create(
                model="mochi", messages=messages, stream=True
            )
            answer = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            assert answer == f"{hash_sized(text)} {text}"

        await asyncio.gather(*(stream_message(f"question {index}") for index in range(number)))


@cases("stream", [True, False])
@cases("model", ["mochi", "token-stream"])  # of one and of four characters per token
def test_chat_has_log_probabilities_of_its_tokens(
    stub: StubServer, model: str, stream: bool
) -> None:
    messages = [{"role": "user", "content": "hé\nReason: be polite"}]
    body = {
        "model": model,
        "messages": messages,
        "logprobs": True,
        "top_logprobs": 2,
        "stream": stream,
    }
    answer = send_request(stub, "POST", "/v1/chat/completions", body)
    lines = (
        [line[6:] for line in answer.body.split(b"\n\n") if line.startswith(b"data: {")]
        if stream
        else [answer.body]
    )
    choices = [json.loads(line)["choices"][0] for line in lines]
    text = "".join(
        choice.get("delta", choice.get("message")).get("content", "") for choice in choices
    )
    entries = [
        entry
        for choice in choices
        for entry in (choice.get("logprobs") or {"content": []})["content"]
    ]
    assert "".join(entry["token"] for entry in entries) == text
    assert len(entries) == -(-len(text) // (4 if model == "token-stream" else 1))
    assert all(
        entry["bytes"] == list(entry["token"].encode()) and entry["logprob"] <= 0
        for entry in entries
    )
    assert {len(entry["top_logprobs"]) for entry in entries} == {2}


@cases("stream", [True, False])
def test_completion_has_log_probabilities_of_its_tokens(
    module_stub: StubServer, stream: bool
) -> None:
    body = {"model": "mochi", "prompt": ["hé", "ab"], "logprobs": 2, "echo": True}
    path = "/v1/completions"
    chunks = (
        events(module_stub, path, body)
        if stream
        else [send_request(module_stub, "POST", path, body).json]
    )
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    for index, prompt in enumerate(("hé", "ab")):
        sent = [choice for choice in choices if choice["index"] == index]
        text = "".join(choice["text"] for choice in sent)
        parts = [choice["logprobs"] for choice in sent if choice["logprobs"]]
        tokens = [token for part in parts for token in part["tokens"]]
        assert text.startswith(prompt)
        assert "".join(tokens) == text
        assert len(tokens) == len(text)
        offsets = [offset for part in parts for offset in part["text_offset"]]
        assert offsets == list(accumulate(map(len, tokens[:-1]), initial=0))
        assert all(value <= 0 for part in parts for value in part["token_logprobs"])
        assert {len(top) for part in parts for top in part["top_logprobs"]} <= {1, 2}


def test_log_probabilities_are_sent_only_on_request(stub: StubServer) -> None:
    body = {"model": "mochi", "messages": [{"role": "user", "content": "hi"}]}
    assert (
        send_request(stub, "POST", "/v1/chat/completions", body).json["choices"][0]["logprobs"]
        is None
    )
    assert (
        b"logprobs"
        not in send_request(stub, "POST", "/v1/chat/completions", {**body, "stream": True}).body
    )
    plain = send_request(stub, "POST", "/v1/completions", {"model": "mochi", "prompt": "hi"})
    assert plain.json["choices"][0]["logprobs"] is None
    assert (
        send_request(stub, "POST", "/v1/completions", {"model": "mochi", "logprobs": 6}).status
        == 400
    )
    wrong = {**body, "logprobs": True, "top_logprobs": 21}
    assert send_request(stub, "POST", "/v1/chat/completions", wrong).status == 400


@cases("stream", [False, True])
def test_log_probabilities_of_each_choice_start_anew(stream: bool) -> None:
    choices: list[Part] = [Choice(0), Text("hello"), Choice(1), Text("hello")]
    body = {"model": "token-stream", "messages": HELLO, "logprobs": True}
    with stub_replying(Reply(choices)) as stub:
        tokens: dict[int, list[str]] = {0: [], 1: []}
        if stream:
            sent = events(stub, "/v1/chat/completions", body)
        else:
            sent = [send_request(stub, "POST", "/v1/chat/completions", body).json]
        for choice in chain.from_iterable(chunk["choices"] for chunk in sent):
            logprobs = choice.get("logprobs") or {"content": []}
            tokens[choice["index"]] += [entry["token"] for entry in logprobs["content"]]
    assert tokens == {0: ["hell", "o"], 1: ["hell", "o"]}


def test_each_response_has_a_request_id(stub: StubServer) -> None:
    body = {"model": "mochi", "messages": [{"role": "user", "content": "hi"}]}
    answers = [
        send_request(stub, "GET", "/v1/models"),
        send_request(stub, "POST", "/v1/chat/completions", body),
        send_request(stub, "POST", "/v1/chat/completions", {**body, "stream": True}),
        send_request(stub, "POST", "/v1/responses", {"model": "nope", "input": "hi"}),
        send_request(stub, "POST", "/v1/chat/completions", b"no JSON"),
    ]
    assert len({answer.headers["x-request-id"] for answer in answers}) == len(answers)
    assert all(
        re.fullmatch("req_[a-z0-9]{32}", answer.headers["x-request-id"]) for answer in answers
    )
    assert "x-request-id" not in send_request(stub, "GET", "/api/tags").headers
