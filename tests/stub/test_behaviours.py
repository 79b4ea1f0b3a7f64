"""Packaged models: every behaviour for client tests, on real sockets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from mochi_stub import Message, Pace, Pause, Prompt, Reply, StubServer, Text
from mochi_stub.config import packaged_config
from mochi_stub.replies import lorem
from mochi_stub.replies.chunks import Piece, paced, pieces, planned_end
from mochi_stub.resolver import resolve
from tests.stub.requests import send_message, send_request
from tests.stub.validity import problems
from tests.support.cases import cases
from tests.support.lazy import LazyModule

if TYPE_CHECKING:
    import ollama
else:
    ollama = LazyModule("ollama")

PHRASE = "THIS IS A TEST OF MINI-MEDIATOR'S AUTOCOMPLETE SYSTEM."


def prompt_of(text: str, model: str = "mochi", **fields: Any) -> Prompt:
    return Prompt(model, messages=(Message("user", text),), **fields)


def reply_to(text: str, model: str, **fields: Any) -> Reply:
    return resolve(prompt_of(text, model, **fields), packaged_config())


def test_plain_models_are_listed_before_special_models(stub: StubServer) -> None:
    names = [
        model["name"].removesuffix(":latest")
        for model in send_request(stub, "GET", "/api/tags").json["models"]
    ]
    assert names[:5] == ["mochi", "mochi-chat", "mochi-long", "mochi-native:4b", "mochi-embed"]
    assert names == [model.name for model in packaged_config().models]


def test_mirror_returns_the_request(stub: StubServer) -> None:
    body = {
        "model": "mirror",
        "stream": False,
        "messages": [{"role": "user", "content": "hé"}],
        "unknown": [1],
    }
    places: dict[str, Callable[[Any], str]] = {
        "/api/chat": lambda answer: answer["message"]["content"],
        "/v1/chat/completions": lambda answer: answer["choices"][0]["message"]["content"],
    }
    for path, read in places.items():
        assert json.loads(read(send_request(stub, "POST", path, body).json)) == body


def test_map_answers_configured_messages(stub: StubServer) -> None:
    for said, answer in (
        ("hello", "Hi there!"),
        ("What is 2+2?", "4"),
        ("9+10=", PHRASE),
        ("else", "else"),
    ):
        assert send_message(stub, said, "map", stream=False).json["message"]["content"] == answer


def test_reasoning_is_in_tags_or_in_its_own_field(stub: StubServer) -> None:
    for said, content in (
        ("What is 2+2?", "<think>Two and two make four.</think>\n\n4"),
        ("9+10=", f"<think>The user tests the autocomplete system.</think>\n\n{PHRASE}"),
    ):
        tagged = send_message(stub, said, "think-tags", stream=False).json["message"]
        assert tagged["content"] == content
        assert "thinking" not in tagged
    assert (
        send_message(stub, "hello you", "thinker", stream=False).json["message"]["content"]
        == "hello you"
    )
    assert (
        send_message(stub, "hello you", "thinker", stream=False)
        .json["message"]["thinking"]
        .startswith("I was told")
    )


def test_rate_limit_error_has_retry_after(stub: StubServer) -> None:
    for path in ("/api/chat", "/v1/chat/completions"):
        body = {"model": "rate-limited", "messages": [{"role": "user", "content": "x"}]}
        answer = send_request(stub, "POST", path, body)
        assert (answer.status, answer.headers["retry-after"]) == (429, "2")
        assert answer.headers["x-ratelimit-remaining-requests"] == "0"


def test_rate_limit_can_occur_in_mid_stream(stub: StubServer) -> None:
    lines = send_message(stub, "tell me more", "rate-limited-midway").lines
    assert [len(line["message"]["content"]) for line in lines[:-1]] == [40, 40]
    assert lines[-1] == {"error": "Rate limit exceeded"}
    whole = send_message(stub, "tell me more", "rate-limited-midway", stream=False)
    assert (whole.status, whole.headers["retry-after"]) == (429, "2")


def test_stream_can_end_without_its_last_chunk(stub: StubServer) -> None:
    lines = send_message(stub, "tell me more", "cut-stream").lines
    assert [len(line["message"]["content"]) for line in lines] == [4, 4, 4]
    assert not any(line["done"] for line in lines)


@cases(
    ("model", "ollama_s", "openai_s"),
    [
        ("map", "stop", "stop"),
        ("finish-length", "length", "length"),
        ("finish-content-filter", "content_filter", "content_filter"),
    ],
)
def test_finish_reasons_differ_by_model(
    stub: StubServer, model: str, ollama_s: str, openai_s: str
) -> None:
    assert send_message(stub, "hello", model).lines[-1]["done_reason"] == ollama_s
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
    assert (
        send_request(stub, "POST", "/v1/chat/completions", body).json["choices"][0]["finish_reason"]
        == openai_s
    )


def test_tokens_have_4_and_chunks_40_characters(stub: StubServer) -> None:
    for model, size in (("token-stream", 4), ("chunky-stream", 40)):
        sizes = {
            len(line["message"]["content"])
            for line in send_message(stub, "hello", model).lines[:-2]
        }
        assert sizes <= {size, *range(1, size)}
        assert size in sizes


class Clock:
    """Clock that sleeping advances by slightly more than requested."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds + 0.0004


async def timed_pieces(reply: Reply) -> list[tuple[float, Piece]]:
    clock = Clock()
    return [
        (clock.time, piece)
        async for batch in paced(pieces(reply), 1, now=clock.now, sleep=clock.sleep)
        for piece in batch
    ]


@cases("model", ["token-stream", "chunky-stream", "slow-stream"])
async def test_pace_follows_the_formula_within_three_percent(model: str) -> None:
    rate = 2 if model == "slow-stream" else 20
    for text in ("short", "a question", "another question that is longer"):
        reply = reply_to(text, model)
        expected = (len(reply.text) / 4) / rate
        assert (await timed_pieces(reply))[-1][0] == pytest.approx(expected, rel=0.03)
        assert planned_end(reply) / 1e9 == pytest.approx(expected, rel=0.001)


def test_jitter_is_deterministic_and_keeps_the_order() -> None:
    steady = Reply([Text(lorem(40))], pace=Pace(4, 80))
    uneven = Reply([Text(lorem(40))], pace=Pace(4, 80, jitter=0.5, seed=1))
    due, moved = ([piece.due for piece in pieces(reply)] for reply in (steady, uneven))
    assert moved == [piece.due for piece in pieces(uneven)]
    assert moved == sorted(moved)
    assert moved[-1] == due[-1]
    assert all(
        0 <= planned - actual <= 25_000_000 for planned, actual in zip(due, moved, strict=True)
    )
    assert len({planned - actual for planned, actual in zip(due, moved, strict=True)}) > 10


async def test_paused_stream_pauses_and_resumes() -> None:
    reply = reply_to("tell me more", "paused-stream")
    moments = [moment for moment, _ in await timed_pieces(reply)]
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert gaps[1] == pytest.approx(10 + 40 / 300, abs=0.01)
    assert max(gaps[:1] + gaps[2:]) < 0.2
    assert (
        "".join(piece.value for _, piece in (await timed_pieces(reply)))
        == reply_to("tell me more", "mochi").text
    )


def test_speed_also_shortens_pauses() -> None:
    with StubServer(speed=0) as stub:
        assert send_message(stub, "tell me more", "paused-stream").lines[-1]["done"]
    assert planned_end(Reply([Pause(2), Text("one two")])) == 2_040_000_000


def test_embeddings_of_similar_texts_are_similar(stub: StubServer) -> None:
    texts = [
        "the cat sat on the mat",
        "on the mat the cat sat down",
        "quarterly revenue grew again",
    ]
    cat, same, other = send_request(
        stub, "POST", "/api/embed", {"model": "embed", "input": texts}
    ).json["embeddings"]
    assert len(cat) == 768
    near, far = (sum(a * b for a, b in zip(cat, one, strict=True)) for one in (same, other))
    assert near > far + 0.2
    short = send_request(
        stub, "POST", "/v1/embeddings", {"model": "embed", "input": "x", "dimensions": 256}
    ).json
    vector = short["data"][0]["embedding"]
    assert len(vector) == 256
    assert sum(value * value for value in vector) == pytest.approx(1, abs=1e-5)


@cases("length", [8, 64, 256])
def test_truncated_embeddings_keep_similarity(stub: StubServer, length: int) -> None:
    texts = [
        "the cat sat on the mat",
        "on the mat the cat sat down",
        "quarterly revenue grew again",
        "x",
    ]
    request = {"model": "embed", "input": texts, "dimensions": length}
    vectors = send_request(stub, "POST", "/api/embed", request).json["embeddings"]
    assert [len(vector) for vector in vectors] == [length] * 4
    for vector in vectors:
        assert sum(value * value for value in vector) == pytest.approx(1, abs=1e-5)
    near, far = (sum(a * b for a, b in zip(vectors[0], one, strict=True)) for one in vectors[1:3])
    assert near > far + 0.2


def test_embedding_model_can_return_zero_vectors(stub: StubServer) -> None:
    (vector,) = send_request(
        stub, "POST", "/api/embed", {"model": "embed-zero", "input": "x"}
    ).json["embeddings"]
    assert vector == [0] * 768
    data = send_request(stub, "POST", "/v1/embeddings", {"model": "embed-zero", "input": "x"}).json[
        "data"
    ]
    assert data[0]["embedding"] == [0] * 768


@pytest.mark.parametrize("number", [8, pytest.param(100, marks=pytest.mark.nightly)])
def test_concurrent_requests_get_the_same_answers(stub: StubServer, number: int) -> None:
    requests = [
        (f"question {n % 20}", ["map", "thinker", "task", "mirror", "weirdo"][n % 5])
        for n in range(number)
    ]
    alone = [send_message(stub, *one).body for one in requests]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda one: send_message(stub, *one).body, requests)) == alone


OBJECT = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
}


def test_format_shapes_the_reply_on_every_api(stub: StubServer) -> None:
    native = json.loads(
        send_message(stub, "hello", format=OBJECT, stream=False).json["message"]["content"]
    )
    assert problems(OBJECT, native, OBJECT) == []
    messages = [{"role": "user", "content": "hello"}]
    response_format = {"type": "json_schema", "json_schema": {"name": "x", "schema": OBJECT}}
    body = {"model": "mochi", "messages": messages, "response_format": response_format}
    answer = send_request(stub, "POST", "/v1/chat/completions", body).json["choices"][0]["message"][
        "content"
    ]
    assert json.loads(answer) == native
    gemini = {
        "contents": [{"role": "user", "parts": [{"text": "hello"}]}],
        "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": OBJECT},
    }
    answer = send_request(stub, "POST", "/v1beta/models/mochi:generateContent", gemini).json
    assert json.loads(answer["candidates"][0]["content"]["parts"][0]["text"]) == native


def test_json_format_without_schema_returns_an_object(stub: StubServer) -> None:
    answer = send_message(stub, "hello", format="json", stream=False).json["message"]["content"]
    assert json.loads(answer)["response"].endswith(" hello")


def test_ollama_client_reads_a_formatted_reply(stub: StubServer) -> None:
    client = ollama.Client(stub.url)
    try:
        answer = client.chat("mochi", [{"role": "user", "content": "hello"}], format=OBJECT)
    finally:
        client._client.close()
    assert set(json.loads(answer.message.content or "")) == {"name", "age"}


SUMMARY = {
    "type": "object",
    "properties": {
        "summary": {"type": "string"},
        "topics": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["summary", "topics"],
}
TURNS = (
    Message("user", "My dog Rex weighs 31 kilograms. What shall he eat?"),
    Message("assistant", "Give him 400 grams a day. Fresh water too."),
    Message("user", "And treats?"),
    Message("assistant", "Few treats."),
)


def test_summary_is_built_from_the_conversation() -> None:
    request = Message("user", "Summarize the conversation above in a few sentences.")
    reply = resolve(Prompt("mochi", messages=(*TURNS, request), format=SUMMARY))
    answer = json.loads(reply.text)
    assert answer["summary"] == (
        "User: My dog Rex weighs 31 kilograms. Assistant: Give him 400 grams a day. User: And "
        "treats? Assistant: Few treats."
    )
    assert "treats" in answer["topics"]
    assert resolve(Prompt("mochi", messages=(*TURNS, request))).text.startswith(
        "User: My dog Rex weighs 31 kilograms."
    )


@pytest.mark.parametrize("limit", [4, 4.0])
def test_summary_keeps_the_limits_of_its_schema(limit: float) -> None:
    limited = {
        "type": "object",
        "properties": {
            "summary": {"type": "string", "maxLength": limit},
            "topics": {"type": "array", "items": {"type": "string"}, "maxItems": limit},
        },
        "required": ["summary", "topics"],
    }
    request = Message("user", "Summarize the conversation above in a few sentences.")
    reply = resolve(Prompt("mochi", messages=(*TURNS, request), format=limited))
    answer = json.loads(reply.text)
    assert answer["summary"] == "User"
    assert len(answer["topics"]) == 4


def test_summary_begins_with_the_first_topic() -> None:
    turns = (Message("user", "Hello!"), Message("assistant", "Lorem ipsum. Hello!"), *TURNS)
    reply = resolve(
        Prompt(
            "mochi",
            messages=(*turns, Message("user", "Summarize our conversation.")),
            format=SUMMARY,
        )
    )
    assert json.loads(reply.text)["summary"].startswith(
        "User: My dog Rex weighs 31 kilograms. Assistant: Give him"
    )
    without_full_stop = Message(
        "user", "Summarize this conversation:\nuser: bread without yeast\nassistant: Use soda."
    )
    text = resolve(Prompt("mochi", messages=(without_full_stop,))).text
    assert text.startswith("User: bread without yeast. Assistant: Use soda.")
    greeting = Message("user", "Summarize this conversation:\nuser: Hello!")
    assert resolve(Prompt("mochi", messages=(greeting,))).text.startswith("User: Hello!")


def test_summary_of_a_conversation_in_one_message() -> None:
    history = "\n".join(f"{one.role}: {one.content}" for one in TURNS)
    messages = (
        Message("system", "You summarise conversations."),
        Message("user", f"<chat>\n{history}\n</chat>"),
    )
    reply = resolve(Prompt("mochi", messages=messages))
    assert (
        "User: My dog Rex weighs 31 kilograms. Assistant: Give him 400 grams a day." in reply.text
    )
    assert reply.rule == "built-in: summary"


def test_summary_of_many_blank_lines_takes_no_long_time() -> None:
    start = time.process_time()
    reply = resolve(prompt_of("Summarize this conversation:\nuser: hello" + "\n" * 20_000))
    assert time.process_time() - start < 2
    assert reply.text == "User: hello.\n\nTopics: hello"


def test_summary_schema_without_conversation_is_filled() -> None:
    reply = resolve(prompt_of("hello", format=SUMMARY))
    assert problems(SUMMARY, json.loads(reply.text), SUMMARY) == []


def test_journal_names_the_rule_that_answered(private_stub: StubServer) -> None:
    send_message(private_stub, "hello", "map")
    send_message(private_stub, "hello", "mochi")
    first, second = private_stub.exchanges()
    assert first.rule == "trigger 'hello' of map"
    assert second.rule == "built-in: lorem and echo"
    assert second.passed_over == (
        "instruction block: no valid block",
        "mochi: no match among its triggers (0)",
        "mochi: no _default",
    )
