"""What a user sees through each API when a model misbehaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
import pytest

from tests.support.cases import cases
from tests.support.server import RunningServer
from tests.wild.fake_ollama import MODEL, FakeOllama, Refusal, Reply, call, lines

CALL = '{"name": "look", "arguments": {"at": "sky"}}'
SKY = '{"at":"sky"}'
UNPARSED = "error parsing tool call: raw='{\"a\"', err=unexpected end of JSON input"
PARAMETERS = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
SUM = {
    "type": "object",
    "properties": {"sum": {"type": "integer"}},
    "required": ["sum"],
    "additionalProperties": False,
}
FUNCTION = {"name": "look", "parameters": PARAMETERS}


@dataclass(frozen=True)
class Shown:
    """What a client has at the end of an answer."""

    text: str = ""
    thinking: str = ""
    calls: list[str] = field(default_factory=list)
    """Arguments of the calls of the client's tool."""
    notices: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list, compare=False)
    """IDs of the calls."""


CASES: dict[str, tuple[list[Reply], Shown]] = {
    "reasoning in tags is reasoning": (
        [lines("<think>", "Hm.", "</th", "ink>", "\n\nHello.")],
        Shown("Hello.", "Hm.", notices=["ANSWER_REPAIRED"]),
    ),
    "Harmony markers do not reach the text": (
        [
            lines(
                "<|channel|>analysis<|message|>Hm.<|end|>",
                "<|start|>assistant<|channel|>final<|message|>Hello.<|return|>",
            )
        ],
        Shown("Hello.", "Hm.", notices=["ANSWER_REPAIRED"]),
    ),
    "a call as JSON is a call of the client's tool": (
        [lines(*CALL)],
        Shown(calls=[SKY], notices=["ANSWER_REPAIRED"]),
    ),
    "a call with parameters in a code fence is a call": (
        [lines(f"```json\n{CALL.replace('arguments', 'parameters')}\n```")],
        Shown(calls=[SKY], notices=["ANSWER_REPAIRED"]),
    ),
    "a tool name without its channel is the client's tool": (
        [lines(calls=[call("look<|channel|>commentary", {"at": "sky"})])],
        Shown(calls=[SKY], notices=["ANSWER_REPAIRED"]),
    ),
    "an answer that mentions tags stays": (
        [lines("Write `<think>` and ", "`</think>`.")],
        Shown("Write `<think>` and `</think>`."),
    ),
    "a stream that ends inside a tag shows the held text": (
        [lines("Hello ", "</thi")],
        Shown("Hello </thi"),
    ),
    "an answer that stays empty has a notice": (
        [lines()],
        Shown(notices=["EMPTY_ANSWER"]),
    ),
    "reasoning without an answer has a notice": (
        [lines(thinking="Hm.")],
        Shown(thinking="Hm.", notices=["EMPTY_ANSWER"]),
    ),
    "an answer of a model that is only loaded is requested again": (
        [lines(reason="load"), lines("Hello.")],
        Shown("Hello."),
    ),
    "a call that Ollama cannot parse is requested again": (
        [Refusal(500, UNPARSED), lines("Hello.")],
        Shown("Hello.", notices=["ANSWER_REPEATED"]),
    ),
}


@pytest.fixture(scope="module")
def ollama() -> Iterator[FakeOllama]:
    with FakeOllama() as fake:
        yield fake


@pytest.fixture(scope="module")
def http(ollama: FakeOllama, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with (
        RunningServer(tmp_path_factory.mktemp("doors"), ollama.url) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        yield client


def streamed(response: httpx.Response) -> list[dict[str, Any]]:
    """Return the JSON data of a stream's events."""
    assert response.status_code == 200, response.text
    data = [line[6:] for line in response.text.splitlines() if line.startswith("data: {")]
    return [orjson.loads(each) for each in data]


def whole(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()


def codes(answer: dict[str, Any]) -> list[str]:
    return [notice["code"] for notice in answer["mochi"]["notices"]]


# One pair of functions for each API: send a request, and read its answer.


def chat(http: httpx.Client, stream: bool, schema: Any = None) -> Shown:
    body: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Hello!"}],
        "tools": [{"type": "function", "function": FUNCTION}],
        "stream": stream,
    }
    if schema:
        json_schema = {"name": "sum", "schema": schema}
        body["response_format"] = {"type": "json_schema", "json_schema": json_schema}
    response = http.post("/v1/chat/completions", json=body)
    answers = streamed(response) if stream else [whole(response)]
    text, thinking = "", ""
    calls: list[Any] = []
    notices: list[str] = []
    for answer in answers:
        for choice in answer["choices"]:
            message = choice["delta" if stream else "message"]
            text += message.get("content") or ""
            thinking += message.get("reasoning") or ""
            calls += message.get("tool_calls") or []
        if "mochi" in answer:
            notices += codes(answer)
    arguments = [each["function"]["arguments"] for each in calls]
    return Shown(text, thinking, arguments, notices, ids=[each["id"] for each in calls])


def responses(http: httpx.Client, stream: bool, schema: Any = None) -> Shown:
    tool = {"type": "function", **FUNCTION}
    body: dict[str, Any] = {"model": MODEL, "input": "Hello!", "tools": [tool], "stream": stream}
    if schema:
        body["text"] = {"format": {"type": "json_schema", "name": "sum", "schema": schema}}
    response = http.post("/v1/responses", json=body)
    answer = streamed(response)[-1]["response"] if stream else whole(response)
    shown: dict[str, list[str]] = {"message": [], "reasoning": [], "function_call": []}
    for item in answer["output"]:
        parts = item.get("content") or item.get("summary") or ()
        texts = [part["text"] for part in parts] or [item.get("arguments", "")]
        shown[item["type"]] += texts
    text, thinking = "".join(shown["message"]), "".join(shown["reasoning"])
    ids = [item["call_id"] for item in answer["output"] if item["type"] == "function_call"]
    return Shown(text, thinking, shown["function_call"], codes(answer), ids)


def messages(http: httpx.Client, stream: bool, schema: Any = None) -> Shown:
    body: dict[str, Any] = {
        "model": MODEL,
        "max_tokens": 1000,
        "messages": [{"role": "user", "content": "Hello!"}],
        "tools": [{"name": "look", "input_schema": PARAMETERS}],
        "stream": stream,
    }
    if schema:
        body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    response = http.post("/v1/messages", json=body)
    if not stream:
        answer = whole(response)
        return _shown_blocks(answer["content"], codes(answer))
    blocks: list[Any] = []
    notices: list[str] = []
    for event in streamed(response):
        match event:
            case {"content_block": block}:
                blocks.append(block)
            case {"delta": {"type": "input_json_delta", "partial_json": text}}:
                blocks[-1]["input"] = orjson.loads(text)
            case {"delta": {"type": "text_delta" | "thinking_delta"} as delta}:
                kind = blocks[-1]["type"]
                blocks[-1][kind] += delta[kind]
            case {"mochi": _}:
                notices = codes(event)
    return _shown_blocks(blocks, notices)


def _shown_blocks(blocks: list[Any], notices: list[str]) -> Shown:
    texts = {"text": "", "thinking": ""}
    uses = [block for block in blocks if block["type"] == "tool_use"]
    for block in blocks:
        if block["type"] != "tool_use":
            texts[block["type"]] += block[block["type"]]
    calls = [orjson.dumps(use["input"]).decode() for use in uses]
    return Shown(**texts, calls=calls, notices=notices, ids=[use["id"] for use in uses])


DOORS: list[Callable[..., Shown]] = [chat, responses, messages]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
@pytest.mark.parametrize("name", CASES)
def test_client_sees(
    http: httpx.Client, ollama: FakeOllama, name: str, door: Callable[..., Shown], stream: bool
) -> None:
    replies, expected = CASES[name]
    ollama.script(*replies)
    assert door(http, stream) == expected


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_format_with_tools_applies_to_the_last_answer(
    http: httpx.Client, ollama: FakeOllama, door: Callable[..., Shown], stream: bool
) -> None:
    ollama.script(lines("3."), lines('{"sum": 3}'))
    assert door(http, stream, SUM) == Shown('{"sum": 3}')
    assert [request.get("format") for request in ollama.requests] == [None, SUM]
    assert ["tools" in request for request in ollama.requests] == [True, False]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_model_that_refuses_tools_is_an_error_that_names_it(
    http: httpx.Client, ollama: FakeOllama, door: Callable[..., Shown]
) -> None:
    ollama.script(Refusal(400, f"registry.ollama.ai/library/{MODEL} does not support tools"))
    with pytest.raises(AssertionError, match=f"Model '{MODEL}' does not support tools"):
        door(http, stream=False)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_calls_with_one_id_have_two_ids(
    http: httpx.Client, ollama: FakeOllama, door: Callable[..., Shown], stream: bool
) -> None:
    calls = [call("look", {"at": place}, id="call_same") for place in ("sky", "sea")]
    ollama.script(lines(calls=calls))
    shown = door(http, stream)
    assert shown.calls == [SKY, '{"at":"sea"}']
    assert len({*shown.ids}) == 2


def with_logprobs(reply: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines with the log probability of each text."""
    sent = []
    for line in reply:
        token = line.get("message", {}).get("content")
        sent.append(line | {"logprobs": [{"token": token, "logprob": -0.5}]} if token else line)
    return sent


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@cases(
    ("replies", "tokens"),
    [
        (
            [with_logprobs(lines("<tool_call>", CALL, "</tool_call>"))],
            ["<tool_call>", CALL, "</tool_call>"],
        ),
        (
            [
                [with_logprobs(lines("<tool_call>"))[0], {"error": UNPARSED}],
                with_logprobs(lines("Hello.")),
            ],
            ["Hello."],
        ),
    ],
    ids=["call in tags", "repeated answer"],
)
def test_log_probabilities_are_those_of_the_answer(
    http: httpx.Client, ollama: FakeOllama, replies: list[Reply], tokens: list[str], stream: bool
) -> None:
    ollama.script(*replies)
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Hello!"}],
        "tools": [{"type": "function", "function": FUNCTION}],
        "logprobs": True,
        "stream": stream,
    }
    response = http.post("/v1/chat/completions", json=body)
    shown: list[str] = []
    for answer in streamed(response) if stream else [whole(response)]:
        for choice in answer["choices"]:
            logprobs = choice.get("logprobs") or {"content": []}
            shown += [token["token"] for token in logprobs["content"]]
    assert shown == tokens
