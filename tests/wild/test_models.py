"""What a user sees when a model misbehaves. Each case names the misbehaviour and the sentence."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from mochi_stub import Failure, Gate, Prompt, StubServer
from mochi_stub import Reply as StubReply
from tests.support.api import Api, Event, error_of, text_of, types_of
from tests.support.cases import cases
from tests.support.images import GIF, PNG, base64_image
from tests.support.mcp import by_hand, write_mcp
from tests.support.raw_ollama import SHOW, TAGS, RawOllama, stream_head
from tests.support.server import RunningServer
from tests.support.tools import LOOK, write_tools
from tests.support.waiting import until
from tests.wild.fake_ollama import BLIND, MODEL, FakeOllama, Refusal, Reply, call, lines

ADD = '''
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    __all__ = ["add"]
'''
UNASKED = {"tools": ["add"], "execution_policy": "never_confirm"}
ADD_CALL = '{"name": "add", "arguments": {"a": 1, "b": 2}}'
ADDS = lines(calls=[call("add", {"a": 1, "b": 2})])
UNPARSED = "error parsing tool call: raw='{\"a\"', err=unexpected end of JSON input"
SCHEMA = {
    "type": "object",
    "properties": {"sum": {"type": "integer"}},
    "required": ["sum"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def ollama() -> Iterator[FakeOllama]:
    with FakeOllama() as fake:
        yield fake


@pytest.fixture(scope="module")
def server(ollama: FakeOllama, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    data_dir = tmp_path_factory.mktemp("wild")
    write_tools(data_dir, ADD)
    with RunningServer(data_dir, ollama.url, summarization_enabled=False) as running:
        yield running


@pytest.fixture
def api(server: RunningServer) -> Api:
    return server.client


@dataclass(frozen=True)
class Seen:
    """What a user sees of one turn."""

    text: str = ""
    thinking: str = ""
    warnings: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)
    """Results of tool calls."""
    error: str | None = None


def seen(events: list[Event]) -> Seen:
    """Return what a client shows at the end of a stream, which a snapshot replaces."""
    text = ""
    thinking = ""
    error = None
    for event in events:
        match event.type:
            case "content_delta":
                text += event.data["content"]
            case "thinking_delta":
                thinking += event.data["content"]
            case "snapshot":
                text = event.data["content"]
                thinking = event.data["thinking"]
            case "error":
                error = event.data["code"]
    warnings = [event.data["code"] for event in events if event.type == "warning"]
    results = [event.data["result"] for event in events if event.type == "tool_result"]
    return Seen(text, thinking, warnings, results, error)


CASES: dict[str, tuple[list[Reply], Seen]] = {
    "reasoning in tags is reasoning": (
        [lines("<think>", "Hm.", "</th", "ink>", "\n\nHello.")],
        Seen("Hello.", "Hm.", ["ANSWER_REPAIRED"]),
    ),
    "reasoning with only a closing tag is reasoning": (
        [lines("Hm.\n", "</think>\n", "\nHello.")],
        Seen("Hello.", "Hm.\n", ["ANSWER_REPAIRED"]),
    ),
    "an answer that begins with the mention of a tag is text": (
        [lines("<think>", " is the tag that opens reasoning.")],
        Seen("<think> is the tag that opens reasoning."),
    ),
    "the reasoning of such an answer stays reasoning": (
        [lines("<think>", " is the tag that opens reasoning.", thinking="Hm.")],
        Seen("<think> is the tag that opens reasoning.", "Hm."),
    ),
    "reasoning in tags that the limit of tokens cuts stays reasoning": (
        [lines("<think>", " Okay, so", reason="length")],
        Seen("", " Okay, so", ["ANSWER_REPAIRED", "EMPTY_ANSWER"]),
    ),
    "reasoning in longer tags is reasoning": (
        [lines("<thinking>Hm.</thinking>\n", "Hello.")],
        Seen("Hello.", "Hm.", ["ANSWER_REPAIRED"]),
    ),
    "a stream that ends inside a tag shows the held text": (
        [lines("Hello ", "</thi")],
        Seen("Hello </thi"),
    ),
    "an answer that mentions tags stays": (
        [lines("Write `<think>` and ", "`</think>`.")],
        Seen("Write `<think>` and `</think>`."),
    ),
    "Harmony markers do not reach the text": (
        [
            lines(
                "<|channel|>analysis<|message|>Hm.<|end|>",
                "<|start|>assistant<|channel|>final<|message|>",
                "Hello.<|return|>",
            )
        ],
        Seen("Hello.", "Hm.", ["ANSWER_REPAIRED"]),
    ),
    "an answer that mentions Harmony markers stays": (
        [lines("It begins with `<|channel|>final", "<|message|>`, always.")],
        Seen("It begins with `<|channel|>final<|message|>`, always."),
    ),
    "a call as JSON is a call": (
        [lines(*ADD_CALL), lines("It is 3.")],
        Seen("It is 3.", warnings=["ANSWER_REPAIRED"], tools=["3"]),
    ),
    "a call in a code fence is a call": (
        [lines(f"```json\n{ADD_CALL}\n```"), lines("It is 3.")],
        Seen("It is 3.", warnings=["ANSWER_REPAIRED"], tools=["3"]),
    ),
    "a call in tags is a call": (
        [lines(f"<tool_call>\n{ADD_CALL}\n</tool_call>"), lines("It is 3.")],
        Seen("It is 3.", warnings=["ANSWER_REPAIRED"], tools=["3"]),
    ),
    "an answer that mentions a call stays": (
        [lines(f"Send {ADD_CALL} to add.")],
        Seen(f"Send {ADD_CALL} to add."),
    ),
    "the call of a tool that was not offered stays text": (
        [lines('{"name": "subtract", "arguments": {}}')],
        Seen('{"name": "subtract", "arguments": {}}'),
    ),
    "a tool name without its channel is the tool": (
        [lines(calls=[call("add<|channel|>commentary", {"a": 1, "b": 2})]), lines("It is 3.")],
        Seen("It is 3.", warnings=["ANSWER_REPAIRED"], tools=["3"]),
    ),
    "a call that Ollama cannot parse is requested again": (
        [Refusal(500, UNPARSED), lines("Hello.")],
        Seen("Hello.", warnings=["ANSWER_REPEATED"]),
    ),
    "a call that Ollama cannot parse after reasoning is requested again": (
        [[lines(thinking="Hm.")[0], {"error": UNPARSED}], lines("Hello.", thinking="Well.")],
        Seen("Hello.", "Well.", ["ANSWER_REPEATED"]),
    ),
    "a call that Ollama cannot parse after its first words is requested again": (
        [[lines('{"name": "add", "argu')[0], {"error": UNPARSED}], lines("Hello.")],
        Seen("Hello.", warnings=["ANSWER_REPEATED"]),
    ),
    "a call in tags that Ollama cannot parse is requested again": (
        [[lines("<tool_call>")[0], {"error": UNPARSED}], lines("Hello.")],
        Seen("Hello.", warnings=["ANSWER_REPEATED"]),
    ),
    "a call that Ollama cannot parse twice is an error": (
        [Refusal(500, UNPARSED)],
        Seen(warnings=["ANSWER_REPEATED"], error="OLLAMA_ERROR"),
    ),
    "an empty answer is requested again": (
        [lines(), lines("Hello.")],
        Seen("Hello."),
    ),
    "an answer of blanks is requested again": (
        [lines("\n\n"), lines("Hello.")],
        Seen("Hello."),
    ),
    "an answer that stays empty has a warning": (
        [lines()],
        Seen(warnings=["EMPTY_ANSWER"]),
    ),
    "an answer of a model that is only loaded is requested again": (
        [lines(reason="load"), lines("Hello.")],
        Seen("Hello."),
    ),
    "an answer of a model that is unloaded has a warning": (
        [lines(reason="unload")],
        Seen(warnings=["EMPTY_ANSWER"]),
    ),
    "a call inside reasoning has a warning": (
        [lines(thinking=ADD_CALL)],
        Seen(thinking=ADD_CALL, warnings=["EMPTY_ANSWER"]),
    ),
    "reasoning without an answer has a warning": (
        [lines(thinking="Hm.")],
        Seen(thinking="Hm.", warnings=["EMPTY_ANSWER"]),
    ),
    "an empty answer after a tool has a warning": (
        [lines(calls=[call("add", {"a": 1, "b": 2})]), lines()],
        Seen(warnings=["EMPTY_ANSWER"], tools=["3"]),
    ),
    "a call after the limit of tool calls is requested again": (
        [ADDS, ADDS, ADDS, ADDS, lines("It is 3.")],
        Seen("It is 3.", warnings=["TOOL_LIMIT_REACHED"], tools=["3", "3", "3"]),
    ),
    "a call with reasoning after the limit of tool calls is requested again": (
        [
            ADDS,
            ADDS,
            ADDS,
            lines(thinking="Hm.", calls=[call("add", {"a": 1, "b": 2})]),
            lines("3."),
        ],
        Seen("3.", warnings=["TOOL_LIMIT_REACHED"], tools=["3", "3", "3"]),
    ),
    "a model that only calls tools after their limit has a warning": (
        [ADDS],
        Seen(warnings=["TOOL_LIMIT_REACHED", "EMPTY_ANSWER"], tools=["3", "3", "3"]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_user_sees(api: Api, ollama: FakeOllama, name: str) -> None:
    replies, expected = CASES[name]
    ollama.script(*replies)
    session_id = api.create_session(MODEL, tool_settings=UNASKED, think=True)["session_id"]

    events = api.stream_message(session_id, "Hello!")

    assert seen(events) == expected
    assert types_of(events)[-1] == "done"
    answers = [message for message in api.messages(session_id) if message["role"] == "assistant"]
    if expected.error is None:
        assert answers[-1]["content"] == expected.text
        assert answers[-1].get("thinking", "") == expected.thinking
    else:
        assert answers == []


def test_reasoning_in_tags_of_a_broken_stream_stays_reasoning(api: Api, ollama: FakeOllama) -> None:
    ollama.script([*lines("<think>", " Okay, so")[:-1], {"error": "The runner ended."}])
    session_id = api.create_session(MODEL)["session_id"]
    said = seen(api.stream_message(session_id, "Hello!"))
    assert (said.text, said.thinking, said.error) == ("", " Okay, so", "OLLAMA_ERROR")
    assert [message["role"] for message in api.messages(session_id)] == ["user"]


def test_reasoning_whose_tag_ends_the_answer_is_reasoning(api: Api, ollama: FakeOllama) -> None:
    ollama.script(lines("Hm.\n", "</think>", calls=[call("add", {"a": 1, "b": 2})]), lines("3."))
    session_id = api.create_session(MODEL, tool_settings=UNASKED)["session_id"]
    said = seen(api.stream_message(session_id, "Add."))
    assert said == Seen("3.", "Hm.\n", ["ANSWER_REPAIRED"], ["3"])
    answers = [each for each in api.messages(session_id) if each["role"] == "assistant"]
    assert [(each["content"], each.get("thinking")) for each in answers] == [
        ("", "Hm.\n"),
        ("3.", None),
    ]


def test_text_of_the_model_is_stored_and_exported(api: Api, ollama: FakeOllama) -> None:
    text = "<think>Hm.</think>Hello."
    ollama.script(lines(text))
    session_id = api.create_session(MODEL)["session_id"]
    api.send_message(session_id, "Hello!")

    assert api.messages(session_id)[-1]["raw"] == text
    exported = api.ok(api.http.get(f"/sessions/{session_id}/export"))
    assert exported["messages"][-1]["raw"] == text


HARMONY_CALL = "<|start|>assistant<|channel|>commentary to=functions.add<|message|>"


@pytest.mark.parametrize("end", [[], [{"error": "the runner has stopped"}]], ids=["end", "error"])
@pytest.mark.parametrize(
    ("text", "content"),
    [
        (ADD_CALL, ADD_CALL),
        (f"<tool_call>{ADD_CALL}</tool_call>", f"<tool_call>{ADD_CALL}</tool_call>"),
        (f'{HARMONY_CALL}{{"a": 1, "b"', '{"a": 1, "b"'),
        (f'{HARMONY_CALL}{{"a": 1, "b": 2}}<|call|>', '{"a": 1, "b": 2}'),
        (f'{HARMONY_CALL}{{}}<|call|>{HARMONY_CALL}{{"a"', '{}{"a"'),
        (f"Look.\n{HARMONY_CALL}{{}}<|call|>Wait", "Look.\nWait{}"),
    ],
    ids=["JSON", "tags", "begun Harmony", "Harmony", "two Harmony", "Harmony in text"],
)
def test_call_in_a_cut_answer_is_text(
    api: Api, ollama: FakeOllama, text: str, content: str, end: list[dict[str, Any]]
) -> None:
    ollama.script([*lines(text)[:-1], *end])
    session_id = api.create_session(MODEL, tool_settings=UNASKED)["session_id"]

    shown = seen(api.stream_message(session_id, "Add."))

    assert (shown.text, shown.tools, shown.error) == (content, [], "OLLAMA_ERROR")
    answer = api.messages(session_id)[-1]
    assert (answer["content"], answer.get("interrupted")) == (content, True)
    assert answer.get("raw", content) == text
    assert "tool_calls" not in answer


def test_call_in_a_stopped_answer_is_text(tmp_path: Path) -> None:
    def stalls(connection: socket.socket) -> None:
        sent = [lines(ADD_CALL)[0], lines(thinking="Hm.")[0]]  # the call is held, reasoning not
        connection.sendall(stream_head() + b"".join(orjson.dumps(each) + b"\n" for each in sent))
        connection.recv(1)

    write_tools(tmp_path, ADD)
    capabilities = b'"completion","tools"'
    tags = TAGS.replace(b'"completion"', capabilities)
    show = SHOW.replace(b'"completion"', capabilities)
    with (
        RawOllama(stalls, tags=tags, show=show) as raw,
        RunningServer(tmp_path, raw.url, summarization_enabled=False) as running,
    ):
        api = running.client
        session_id = api.create_session("raw", tool_settings=UNASKED)["session_id"]
        with api.open_stream(session_id, "Add.") as events:
            next(event for event in events if event.type == "thinking_delta")
            api.ok(api.http.post(f"/chat/{session_id}/stop"))
            rest = list(events)
        answer = api.messages(session_id)[-1]
    assert text_of(rest) == ADD_CALL
    assert (answer["content"], answer["interrupted"]) == (ADD_CALL, True)


def test_tool_name_of_the_model_is_stored(api: Api, ollama: FakeOllama) -> None:
    ollama.script(lines(calls=[call("add<|channel|>commentary", {"a": 1, "b": 2})]), lines("3."))
    session_id = api.create_session(MODEL, tool_settings=UNASKED)["session_id"]
    api.send_message(session_id, "Add.")
    answer = api.messages(session_id)[1]
    assert answer["tool_calls"][0]["function"]["name"] == "add"
    assert answer["raw"] == '{"name":"add<|channel|>commentary","arguments":{"a":1,"b":2}}'


def test_setting_turns_repairs_off(ollama: FakeOllama, tmp_path: Path) -> None:
    ollama.script(lines("<think>Hm.</think>Hello."))
    with RunningServer(tmp_path, ollama.url, repair_answers=False) as running:
        api = running.client
        session_id = api.create_session(MODEL)["session_id"]
        assert text_of(api.stream_message(session_id, "Hi!")) == "<think>Hm.</think>Hello."


def test_blanks_that_were_sent_are_not_requested_again(ollama: FakeOllama, tmp_path: Path) -> None:
    ollama.script(lines("\n\n"), lines("Hello."))
    with RunningServer(tmp_path, ollama.url, repair_answers=False) as running:
        api = running.client
        session_id = api.create_session(MODEL)["session_id"]
        shown = seen(api.stream_message(session_id, "Hi!"))
        assert (shown.text, shown.warnings) == ("\n\n", ["EMPTY_ANSWER"])
        assert api.messages(session_id)[-1]["content"] == "\n\n"


def test_format_applies_to_the_answer_after_tools(api: Api, ollama: FakeOllama) -> None:
    ollama.script(lines(calls=[call("add", {"a": 1, "b": 2})]), lines("3."), lines('{"sum": 3}'))
    session_id = api.create_session(MODEL, tool_settings=UNASKED)["session_id"]

    answer = api.send_message(session_id, "Add.", format=SCHEMA)

    assert answer["message"]["content"] == '{"sum": 3}'
    assert [request.get("format") for request in ollama.requests] == [None, None, SCHEMA]
    assert "tools" not in ollama.requests[-1]


def test_model_that_refuses_to_think_answers_without(ollama: FakeOllama, tmp_path: Path) -> None:
    ollama.script(Refusal(400, f'"{MODEL}" does not support thinking'), lines("Hello."))
    with RunningServer(tmp_path, ollama.url) as running:  # it remembers the refusal
        api = running.client
        session_id = api.create_session(MODEL, think=True)["session_id"]
        first = seen(api.stream_message(session_id, "Hi!"))
        ollama.script(lines("Hello."))
        again = seen(api.stream_message(session_id, "Hi!"))
    assert first == Seen("Hello.", warnings=["THINKING_NOT_SUPPORTED"])
    assert again.warnings == ["THINKING_NOT_SUPPORTED"]
    assert [request.get("think") for request in ollama.requests] == [None]


def test_simultaneous_turns_answer_if_the_model_refuses_to_think(tmp_path: Path) -> None:
    gate = Gate()

    def resolve(prompt: Prompt) -> StubReply:
        if prompt.requested_thinking:
            return StubReply([gate, Failure('"mochi" does not support thinking', 400)])
        return StubReply.of("Hello.")

    def answer_of(api: Api, session_id: str) -> Seen:
        return seen(api.stream_message(session_id, "Hi!"))

    with StubServer(speed=0, resolve=resolve) as stub, RunningServer(tmp_path, stub.url) as running:
        api = running.client
        sessions = [api.create_session("mochi", think=True)["session_id"] for _ in range(3)]
        with ThreadPoolExecutor(3) as pool:
            answers = [pool.submit(answer_of, api, session_id) for session_id in sessions]
            stub.wait_for(lambda all: [each.path for each in all].count("/api/chat") == 3)
            gate.open()
            said = [answer.result() for answer in answers]
    assert said == [Seen("Hello.", warnings=["THINKING_NOT_SUPPORTED"])] * 3


def test_model_that_refuses_to_think_thinks_as_another_build(tmp_path: Path) -> None:
    with FakeOllama("thinking") as thinks, FakeOllama("refusing") as refuses:
        hosts = [f"thinks={thinks.url}", f"refuses={refuses.url}"]
        thinks.script(lines("Hello.", thinking="Hm."))
        refusal = Refusal(400, f'"{MODEL}" does not support thinking')
        refuses.script(lines("Hello."), refusal, lines("Hello."))
        with RunningServer(tmp_path, thinks.url, ollama_hosts=hosts) as running:
            api = running.client
            session_id = api.create_session(MODEL)["session_id"]
            turn_on(api, session_id, "refuses")
            warnings = []
            for host in (None, "thinks", "refuses"):  # the first continues on `refuses`
                events = turn_on(api, session_id, host, think=True)
                warnings.append(seen(events).warnings)
        assert warnings == [["THINKING_NOT_SUPPORTED"], [], ["THINKING_NOT_SUPPORTED"]]
        assert [request.get("think") for request in thinks.requests] == [True]
        assert [request.get("think") for request in refuses.requests] == [False, True, None, None]


def turn_on(api: Api, session_id: str, host: str | None, **options: Any) -> list[Event]:
    """Send a message after the session was pinned to a host, or to none."""
    api.ok(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": host}))
    return api.stream_message(session_id, "Hi!", **options)


def test_correction_of_a_format_omits_refused_thinking(ollama: FakeOllama, tmp_path: Path) -> None:
    refusal = Refusal(400, f'"{MODEL}" does not support thinking')
    ollama.script(refusal, lines("3."), lines('{"sum": 3}'))
    with RunningServer(tmp_path, ollama.url) as running:
        api = running.client
        session_id = api.create_session(MODEL)["session_id"]
        answer = api.send_message(session_id, "Add.", format=SCHEMA, think=True)
    assert answer["message"]["content"] == '{"sum": 3}'
    assert [request.get("think") for request in ollama.requests] == [True, None, None]


def test_refused_thinking_repeats_no_other_warning(api: Api, ollama: FakeOllama) -> None:
    ollama.script(lines("Hello."))
    session_id = api.create_session(MODEL, think=True)["session_id"]
    api.send_message(session_id, "Look.", images=[base64_image(PNG)])
    api.ok(api.http.patch(f"/sessions/{session_id}", json={"model": BLIND}))
    ollama.script(Refusal(400, f'"{BLIND}" does not support thinking'), lines("Hello."))
    said = seen(api.stream_message(session_id, "Hi!"))
    assert (said.text, said.warnings) == (
        "Hello.",
        ["IMAGES_NOT_SUPPORTED", "THINKING_NOT_SUPPORTED"],
    )


def test_model_that_refuses_tools_is_named(api: Api, ollama: FakeOllama) -> None:
    ollama.script(Refusal(400, f"registry.ollama.ai/library/{MODEL} does not support tools"))
    session_id = api.create_session(MODEL, tool_settings=UNASKED)["session_id"]
    response = api.http.post(f"/chat/{session_id}", json={"message": "Hi!"})
    assert error_of(response) == (422, "TOOLS_NOT_SUPPORTED")
    message = response.json()["error"]["message"]
    assert MODEL in message
    assert "The message is stored: " in message


def test_two_calls_with_one_id_get_two_ids(server: RunningServer, ollama: FakeOllama) -> None:
    calls = [call("look", {"at": "a"}, id="call_1"), call("look", {"at": "b"}, id="call_1")]
    ollama.script(lines(calls=calls))
    body = completion(tools=[LOOK])
    message = post(server, body)["choices"][0]["message"]
    first, second = (each["id"] for each in message["tool_calls"])
    assert first == "call_1"
    assert second != first


@pytest.mark.parametrize("written", ["[1, 2]", "not JSON"])
def test_arguments_reach_a_client_as_they_were_written(
    server: RunningServer, ollama: FakeOllama, written: str
) -> None:
    ollama.script(lines(calls=[call("look", written)]))
    message = post(server, completion(tools=[LOOK]))["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["arguments"] == written


def test_repaired_text_of_v1_loses_nothing(server: RunningServer, ollama: FakeOllama) -> None:
    ollama.script(lines("Hm.\n", "</think>\n", "\nHello."))
    with httpx.stream(
        "POST", f"{server.url}/v1/chat/completions", json=completion(stream=True), timeout=60
    ) as response:
        text = response.read().decode()
    assert "Hello." in text
    assert "</think>" not in text


def test_complete_answer_of_v1_is_the_stored_one(server: RunningServer, ollama: FakeOllama) -> None:
    ollama.script(lines("Hm.\n", "</think>\n", "\nHello."))
    message = post(server, completion())["choices"][0]["message"]
    assert (message["content"], message["reasoning"]) == ("Hello.", "Hm.\n")


def test_usage_counts_both_requests_of_a_required_call(
    server: RunningServer, ollama: FakeOllama
) -> None:
    ollama.script(lines("No."), lines('{"name": "look", "arguments": {"at": "home"}}'))
    usage = post(server, completion(tools=[LOOK], tool_choice="required"))["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (40, 10)


@pytest.mark.parametrize(
    ("replies", "options"),
    [
        ([lines(eval_count=3000), lines("Hello.", eval_count=3000)], {}),
        ([lines("3.", eval_count=3000), lines('{"sum": 3}', eval_count=3000)], {"format": SCHEMA}),
    ],
    ids=["repeated", "corrected"],
)
def test_two_requests_for_one_answer_enlarge_no_window(
    ollama: FakeOllama, tmp_path: Path, replies: list[Reply], options: dict[str, Any]
) -> None:
    ollama.script(*replies)
    with RunningServer(tmp_path, ollama.url, summarization_enabled=False) as running:
        api = running.client
        session_id = api.create_session(MODEL)["session_id"]
        answer = api.send_message(session_id, "Add.", **options)
        status = api.ok(api.http.get(f"/sessions/{session_id}/status"))
        api.send_message(session_id, "Thanks.")
    assert answer["context_window"]["usage_tokens"] == 3020
    assert status["context_window"]["usage_tokens"] == 3020
    assert [request["options"]["num_ctx"] for request in ollama.requests] == [8192] * 3


def test_forced_call_stores_the_counts_of_its_last_request(
    server: RunningServer, api: Api, ollama: FakeOllama
) -> None:
    ollama.script(lines("No."), lines('{"name": "look", "arguments": {"at": "home"}}'))
    session_id = api.create_session(MODEL)["session_id"]
    body = completion(tools=[LOOK], tool_choice="required")
    headers = {"X-Mochi-Session": session_id}
    answer = Api.ok(httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=headers))
    stored = api.messages(session_id)[-1]
    assert (stored["prompt_eval_count"], stored["eval_count"]) == (20, 5)
    assert answer["usage"]["total_tokens"] == 50


def test_repaired_reasoning_before_a_required_call_is_no_text(
    server: RunningServer, ollama: FakeOllama
) -> None:
    ollama.script(lines("Hm.\n", "</think>\n", "Look!", calls=[call("look", {"at": "home"})]))
    body = completion(tools=[LOOK], tool_choice="required", stream=True)
    with httpx.stream(
        "POST", f"{server.url}/v1/chat/completions", json=body, timeout=60
    ) as response:
        chunks = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    deltas = [choice["delta"] for each in chunks[:-1] for choice in json.loads(each)["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Look!"
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == "Hm.\n"
    assert [bool(delta.get("tool_calls")) for delta in deltas].count(True) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_required_call_that_ollama_cannot_parse_after_text_is_requested_again(
    server: RunningServer, ollama: FakeOllama, stream: bool
) -> None:
    broken = [lines("Let me look.")[0], {"error": UNPARSED}]
    ollama.script(broken, lines("I look.", calls=[call("look", {"at": "home"})]))
    body = completion(tools=[LOOK], tool_choice="required", stream=stream)
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
    assert response.status_code == 200
    assert len(ollama.requests) == 2
    assert "I look." in response.text
    assert "Let me look." not in response.text
    assert response.text.count('"name":"look"') == 1


def test_text_before_a_call_that_ollama_cannot_parse_twice_is_kept(
    api: Api, ollama: FakeOllama
) -> None:
    text = '{"name": "add", "argu'
    ollama.script([lines(text)[0], {"error": UNPARSED}])
    session_id = api.create_session(MODEL, tool_settings=UNASKED)["session_id"]
    shown = seen(api.stream_message(session_id, "Add."))
    assert shown == Seen(text, warnings=["ANSWER_REPEATED"], error="OLLAMA_ERROR")
    assert len(ollama.requests) == 2
    assert api.messages(session_id)[-1]["content"] == text


@pytest.mark.parametrize("earlier", [[], [lines("No.")]], ids=["first", "second"])
def test_failed_request_for_a_required_call_stores_no_text(
    server: RunningServer, api: Api, ollama: FakeOllama, earlier: list[Reply]
) -> None:
    broken = [lines('{"name": "look", "argu')[0], {"error": "the runner has stopped"}]
    ollama.script(*earlier, broken)
    session_id = api.create_session(MODEL)["session_id"]
    body = completion(tools=[LOOK], tool_choice="required")
    headers = {"X-Mochi-Session": session_id}
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=headers)
    assert response.status_code == 502
    assert [message["role"] for message in api.messages(session_id)] == ["user"]


def test_session_with_an_empty_format_answers_in_plain_text(api: Api, ollama: FakeOllama) -> None:
    ollama.script(lines("Hello."))
    session_id = api.create_session(MODEL, format={})["session_id"]
    assert api.send_message(session_id, "Hi!")["message"]["content"] == "Hello."


def test_windows_without_memory_are_not_tried_again(tmp_path: Path) -> None:
    with (
        FakeOllama(memory=700) as ollama,
        RunningServer(tmp_path, ollama.url, summarization_enabled=False) as running,
    ):
        ollama.script(lines("Hello."))
        api = running.client
        session_id = api.create_session(MODEL)["session_id"]
        for _ in range(3):
            api.stream_message(session_id, "Hi!")
    windows = [request["options"]["num_ctx"] for request in ollama.requests]
    assert windows == [8192, 4096, 2048, 1024, 512]


def test_image_that_ollama_cannot_decode_does_not_come_back(api: Api, ollama: FakeOllama) -> None:
    ollama.script(Refusal(500, "Failed to load image or audio file"))
    session_id = api.create_session(MODEL)["session_id"]
    response = api.http.post(
        f"/chat/{session_id}", json={"message": "See?", "images": [base64_image(PNG)]}
    )
    assert error_of(response) == (422, "IMAGE_NOT_READABLE")
    assert "image" in response.json()["error"]["message"]

    ollama.script(lines("Hello."))
    api.send_message(session_id, "And now?")
    sent = ollama.requests[0]["messages"]
    assert not any(message.get("images") for message in sent)
    assert "could not decode" in sent[0]["content"]


def test_earlier_image_that_cannot_be_decoded_is_omitted(api: Api, ollama: FakeOllama) -> None:
    ollama.script(lines("A dot."))
    session_id = api.create_session(MODEL)["session_id"]
    api.send_message(session_id, "See?", images=[base64_image(PNG)])

    ollama.script(Refusal(500, "Failed to load image or audio file"), lines("Yes."))
    shown = [seen(api.stream_message(session_id, "And now?")) for _ in range(2)]
    assert shown == [Seen("Yes.", warnings=["IMAGE_NOT_READABLE"]), Seen("Yes.")]
    images = [
        [bool(message.get("images")) for message in each["messages"]] for each in ollama.requests
    ]
    assert [any(each) for each in images] == [True, False, False]
    roles = [message["role"] for message in api.messages(session_id)]
    assert roles == ["user", "assistant"] * 3


UNDECODABLE = Refusal(500, "Failed to load image or audio file")
PICTURED = lines(calls=[call("picture", {})])


@pytest.fixture(scope="module")
def picturing(
    ollama: FakeOllama, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with the MCP tool `picture`, that parks turns at once."""
    data_dir = tmp_path_factory.mktemp("picturing")
    write_mcp(data_dir, hand=by_hand(data_dir, "picture"))
    with RunningServer(
        data_dir, ollama.url, park_seconds=0, summarization_enabled=False
    ) as running:
        until(lambda: "picture" in running.client.ok(running.client.http.get("/tools"))["tools"])
        yield running


@cases("images", [[], [base64_image(PNG)]])
@pytest.mark.parametrize("old", [[lines("Two dots.")], [PICTURED, lines("Two dots.")]])
def test_tool_image_of_a_regenerated_answer_that_cannot_be_decoded(
    picturing: RunningServer, ollama: FakeOllama, images: list[str], old: list[Reply]
) -> None:
    api, tools = picturing.client, {"tools": ["picture"], "execution_policy": "never_confirm"}
    session_id = api.create_session(MODEL, tool_settings=tools)["session_id"]
    ollama.script(lines("A dot."), *old)
    api.send_message(session_id, "See?", images=images)
    api.send_message(session_id, "Look!")
    before = api.messages(session_id)

    ollama.script(PICTURED, UNDECODABLE)
    response = api.http.post(f"/chat/{session_id}")
    assert error_of(response) == (422, "IMAGE_NOT_READABLE")
    assert api.messages(session_id) == before


def test_tool_image_of_a_continued_turn_that_cannot_be_decoded(
    picturing: RunningServer, ollama: FakeOllama
) -> None:
    api = picturing.client
    session_id = api.create_session(MODEL, tool_settings={"tools": ["picture"]})["session_id"]
    ollama.script(PICTURED, UNDECODABLE)
    with api.open_stream(session_id, "Look!") as events:
        asked = next(e for e in events if e.type == "tool_call_confirmation_required")
        body = {"confirmation_id": asked.data["confirmation_id"], "approved": True}
        until(lambda: not picturing.app.state.services.turns.table.running())
        api.ok(api.http.post(f"/chat/{session_id}/confirm-tool", json=body))
        codes = [event.data["code"] for event in events if event.type == "error"]
    assert codes == ["IMAGE_NOT_READABLE"]
    stored = api.messages(session_id)
    assert [message["role"] for message in stored] == ["user", "assistant", "tool"]
    assert [image["unreadable"] for image in stored[2]["images"]] == [True, True]


def test_client_without_a_session_gets_past_an_image(
    server: RunningServer, ollama: FakeOllama
) -> None:
    url = {"url": f"data:image/png;base64,{base64_image(PNG)}"}
    content = [{"type": "text", "text": "See?"}, {"type": "image_url", "image_url": url}]
    messages = [{"role": "user", "content": content}, {"role": "user", "content": "And now?"}]
    ollama.script(Refusal(500, "Failed to load image or audio file"), lines("Yes."))
    answer = post(server, completion(messages=messages))
    assert answer["choices"][0]["message"]["content"] == "Yes."
    assert [each["code"] for each in answer["mochi"]["notices"]] == ["IMAGE_NOT_READABLE"]
    assert "could not decode" in ollama.requests[-1]["messages"][0]["content"]


def test_text_arguments_of_an_mcp_tool_are_converted(ollama: FakeOllama, tmp_path: Path) -> None:
    write_mcp(tmp_path, list=by_hand(tmp_path, "listed"))
    ollama.script(lines(calls=[call("listed", {"text": "7", "page": "7"})]), lines("Done."))
    tools = {"tools": ["listed"], "execution_policy": "never_confirm"}
    with RunningServer(tmp_path, ollama.url, summarization_enabled=False) as running:
        api = running.client
        until(lambda: "listed" in api.ok(api.http.get("/tools"))["tools"])
        session_id = api.create_session(MODEL, tool_settings=tools)["session_id"]
        events = api.stream_message(session_id, "List.")
    assert seen(events) == Seen("Done.", tools=["7"])  # other arguments would be an error


def test_edit_replaces_an_image_that_cannot_be_read(api: Api, ollama: FakeOllama) -> None:
    ollama.script(Refusal(500, "Failed to load image or audio file"))
    session_id = api.create_session(MODEL)["session_id"]
    api.http.post(f"/chat/{session_id}", json={"message": "See?", "images": [base64_image(PNG)]})
    edit = {"content": "See?", "images": [base64_image(GIF)]}
    api.ok(api.http.put(f"/sessions/{session_id}/messages/0", json=edit))

    ollama.script(lines("A dot."))
    api.send_message(session_id)
    assert ollama.requests[0]["messages"][0]["images"] == [base64_image(GIF)]


def test_reasoning_that_fills_the_window_gets_a_larger_one(
    ollama: FakeOllama, tmp_path: Path
) -> None:
    thought = lines(thinking="Hm." * 3000, reason="length", prompt_eval_count=20, eval_count=9000)
    ollama.script(thought, lines("Hello.", thinking="Hm."))
    with RunningServer(tmp_path, ollama.url, summarization_enabled=False) as running:
        api = running.client
        session_id = api.create_session(MODEL, think=True)["session_id"]
        shown = seen(api.stream_message(session_id, "Hello!"))
    assert (shown.text, shown.thinking) == ("Hello.", "Hm.")
    assert [request["options"]["num_ctx"] for request in ollama.requests] == [8192, 16384]


def test_first_window_of_v1_has_room_for_an_answer(ollama: FakeOllama, tmp_path: Path) -> None:
    ollama.script(lines("Hello."))
    text = "word " * 4000
    with RunningServer(tmp_path, ollama.url, summarization_enabled=False) as running:
        post(running, completion(messages=[{"role": "user", "content": text}]))
    assert ollama.requests[0]["options"]["num_ctx"] == 16_384


@pytest.mark.parametrize("words", [1000, 1400, 2800, 4000])
def test_first_answer_of_v1_is_not_cut_before_4096_tokens(
    ollama: FakeOllama, tmp_path: Path, words: int
) -> None:
    ollama.script(lines("Hello."))
    message = {"role": "user", "content": "word " * words}
    with RunningServer(tmp_path, ollama.url, summarization_enabled=False) as running:
        post(running, completion(messages=[message]))
    assert ollama.requests[0]["options"]["num_predict"] >= 4096


def completion(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "Hello!"}], **fields}


def post(server: RunningServer, body: dict[str, Any]) -> dict[str, Any]:
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
    return Api.ok(response)
