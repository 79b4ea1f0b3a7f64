"""Context windows: no silent truncation and few reloads, against a stub with Ollama's scheduler."""

import itertools
import json
import random
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import Machine, StubServer
from mochi_stub.journal import Exchange
from mochi_stub.models import Model
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.reply import Failure, Gate, Reply, Text, Usage
from tests.frontends.chats import Frontend, user
from tests.support.api import Api, Event, error_of, types_of
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words
from tests.support.raw_ollama import RawOllama, stream_head
from tests.support.server import RunningServer
from tests.support.stub import ModelStub, chats
from tests.support.tools import write_tools
from tests.support.waiting import until

MUCH = '''
    def much(n: int) -> str:
        """Say much."""
        return f"begin {n} " + "x" * 1500 + f" end {n}"

    __all__ = ["much"]
'''
ROLES = ("user", "assistant")
MUCH_UNASKED = {"tools": ["much"], "execution_policy": "never_confirm"}


@pytest.fixture(scope="module")
def shared_stub() -> Iterator[ModelStub]:
    with ModelStub() as stub:
        yield stub


@pytest.fixture(scope="module")
def shared_server(
    shared_stub: ModelStub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with the tool `much`. The models of each test are its own."""
    write_tools(data_dir := tmp_path_factory.mktemp("context"), MUCH)
    with RunningServer(data_dir, shared_stub.url, summarization_enabled=False) as server:
        yield server


def summaries(stub: StubServer) -> list[Exchange]:
    return [exchange for exchange in chats(stub) if "format" in (exchange.body or {})]


def reloads(stub: StubServer) -> int:
    return sum(exchange.reload for exchange in chats(stub))


def sent_text(exchange: Exchange) -> str:
    assert exchange.body is not None
    return "\n".join(message["content"] for message in exchange.body["messages"])


def of_type(events: list[Event], kind: str) -> list[dict[str, Any]]:
    return [event.data for event in events if event.type == kind]


def windows(stub: StubServer) -> list[int]:
    """Return the context windows of the requests for answers."""
    return [(exchange.body or {})["options"]["num_ctx"] for exchange in chats(stub)]


class RandomConversation:
    """Source of turns and answers with random lengths, up to `longest` words."""

    def __init__(self, seed: int, longest: int = 110) -> None:
        self.chance = random.Random(seed)
        self.longest = longest

    def resolve(self, prompt: Prompt) -> Reply | None:
        """Answer turns; the stub's default handles summaries."""
        return Reply.of(self._text("Well. ")) if prompt.user_text.startswith("Turn") else None

    def turn(self, number: int) -> str:
        return self._text(f"Turn {number} says that fact {number} is {number * 7}. ")

    def import_turns(self, api: Api, model: str, turns: int) -> str:
        """Create a session with this many turns, and return its ID."""
        texts = [
            text for number in range(turns) for text in (self.turn(number), self._text("Well. "))
        ]
        messages = [
            {"role": role, "content": text}
            for role, text in zip(itertools.cycle(ROLES), texts, strict=False)
        ]
        file = {"metadata": {"model": model}, "messages": messages}
        return str(
            api.ok(api.http.post("/sessions/import", json=file), 201)["sessions"][0]["session_id"]
        )

    def _text(self, start: str) -> str:
        return start + "word " * self.chance.randint(self.longest // 5, self.longest)


@pytest.mark.parametrize(
    ("seed", "turns", "longest"),
    [
        pytest.param(1, 5, 1320, id="few long turns"),
        *(pytest.param(seed, 60, 110, marks=pytest.mark.nightly) for seed in (1, 2, 3)),
    ],
)
def test_long_conversation_reloads_at_most_three_times(
    tmp_path: Path, seed: int, turns: int, longest: int
) -> None:
    conversation = RandomConversation(seed, longest)
    with (
        StubServer(speed=0, resolve=conversation.resolve) as stub,
        RunningServer(tmp_path, stub.url, summarization_interval_seconds=0) as server,
    ):
        api = server.api()
        session_id = api.create_session("mochi", system_prompt="Be brief.")["session_id"]
        for number in range(turns):
            events = api.stream_message(session_id, conversation.turn(number))
            assert of_type(events, "error") == []
            if number % 5 == 4:
                until(lambda: len(summaries(stub)) > number // 5)  # noqa: B023 - called immediately
        assert reloads(stub) <= 3
        assert not any(exchange.truncated for exchange in chats(stub))
        assert {exchange.status for exchange in chats(stub)} <= {
            200,
            0,
        }  # 0: a summary that was cancelled for a turn
        config = api.session(session_id)["context_window_config"]
        assert [entry["window"] for entry in config["adjustment_history"]] == [16384, 32768, 36864]


@pytest.mark.two_servers
@pytest.mark.parametrize(
    ("turns", "longest"),
    [pytest.param(4, 1000, id="few long turns"), pytest.param(40, 110, marks=pytest.mark.slow)],
)
def test_sessions_of_different_length_share_their_models_window(
    api: Api, stub: ModelStub, turns: int, longest: int
) -> None:
    conversation = RandomConversation(4, longest)
    model = stub.add_model(conversation.resolve)
    sessions = [api.create_session(model)["session_id"] for _ in range(4)]
    for number in range(turns):
        for pace, session_id in enumerate(sessions, 1):
            if number % pace == 0:
                api.stream_message(session_id, conversation.turn(number))
    assert reloads(stub) <= 3


@pytest.mark.two_servers
def test_first_message_survives_compactions_in_a_stable_summary(api: Api, stub: ModelStub) -> None:
    conversation = RandomConversation(5, longest=220)
    model = stub.add_model(conversation.resolve, context_length=4096)
    session_id = conversation.import_turns(api, model, 6)
    compacted = []
    for number in range(6, 14):
        events = api.stream_message(session_id, conversation.turn(number))
        assert of_type(events, "error") == []
        compacted.extend(of_type(events, "context_compacted"))
        if of_type(events, "status"):
            assert of_type(events, "status")[0]["state"] == "compacting"
    assert "fact 0 is 0" in sent_text(chats(stub)[-1])
    assert compacted[-1]["dropped_messages"] > 0
    assert compacted[-1]["summary_used"] is True
    messages = api.messages(session_id)
    assert (len(messages), messages[0]["content"][:6]) == (28, "Turn 0")
    bodies = [exchange.body for exchange in chats(stub)]
    beginnings = [
        body["messages"][0]["content"] for body in bodies if body and len(body["messages"]) > 2
    ]
    changes = sum(a != b for a, b in itertools.pairwise(beginnings))
    assert changes <= 4


def test_editing_covered_message_drops_checkpoint(
    api: Api, server: RunningServer, stub: ModelStub
) -> None:
    conversation = RandomConversation(7, longest=220)
    session_id = conversation.import_turns(
        api, stub.add_model(conversation.resolve, context_length=4096), 6
    )
    api.stream_message(session_id, conversation.turn(6))
    assert "Summary of the earlier" in sent_text(chats(stub)[-1])
    path = server.settings.resolved_sessions_dir / f"{session_id}.json"
    assert "compaction" in json.loads(path.read_bytes())["metadata"]
    api.ok(api.http.put(f"/sessions/{session_id}/messages/2", json={"content": "Turn again"}))
    assert "compaction" not in json.loads(path.read_bytes())["metadata"]
    api.stream_message(session_id)
    assert "Summary of the earlier" not in sent_text(chats(stub)[-1])


@cases("change", ["edit", "fork"])
def test_prompt_has_the_message_to_answer_although_a_checkpoint_covers_it(
    api: Api, stub: ModelStub, change: str
) -> None:
    model = stub.add_model()
    compaction = {"text": "Old facts.", "covers_through_message_id": "b" * 10, "model": model}
    messages = [
        {"role": "user", "content": "Hello!", "message_id": "a" * 10},
        {"role": "user", "content": "Are you there?", "message_id": "b" * 10},
        {"role": "user", "content": "Hi!", "message_id": "c" * 10},
        {"role": "assistant", "content": "Yes.", "message_id": "d" * 10},
    ]
    file = {"metadata": {"model": model, "compaction": compaction}, "messages": messages}
    imported = api.ok(api.http.post("/sessions/import", json=file), 201)
    session_id = imported["sessions"][0]["session_id"]
    if change == "edit":
        sent = [user("Hello!"), user("Are you there?") | {"id": "m2"}]
        edited = sent[1] | {"parts": [{"type": "text", "text": "Anyone?"}]}
        Frontend(api, session_id).ai_sdk(sent[0], edited, messageId="m2")
        asked = ["Hello!", "Anyone?"]
    else:
        fork = api.http.post(f"/sessions/{session_id}/fork", json={"message_id": "b" * 10})
        session_id = api.ok(fork, 201)["session_id"]
        api.send_message(session_id)
        asked = ["Hello!", "Are you there?"]
    (body,) = [exchange.body or {} for exchange in chats(stub)]
    assert [message["content"] for message in body["messages"]] == asked
    api.send_message(session_id, "Fine.")
    is_summarized = "Old facts." in sent_text(chats(stub)[-1])
    assert is_summarized == (change == "fork")


@pytest.mark.two_servers
def test_old_tool_results_are_shortened_first(api: Api, stub: ModelStub) -> None:
    model = stub.add_model(context_length=8192)
    session_id = api.create_session(model, tool_settings=MUCH_UNASKED)["session_id"]
    trimmed = 0
    for number in range(5):
        events = api.stream_message(
            session_id, instruct(calls("much", n=number), words(3), label=f"T{number}")
        )
        assert of_type(events, "error") == []
        trimmed += sum(e["trimmed_tool_results"] for e in of_type(events, "context_compacted"))
    assert trimmed > 0
    for exchange in chats(stub):
        assert exchange.body is not None
        messages = exchange.body["messages"]
        called = [c["id"] for m in messages for c in m.get("tool_calls", ())]
        answered = [m["tool_call_id"] for m in messages if m["role"] == "tool"]
        assert called == answered
    stored = [m["content"] for m in api.messages(session_id) if m["role"] == "tool"]
    assert all(len(content) > 1500 for content in stored)


def test_trimmed_results_change_the_prompt_only_once(api: Api, stub: ModelStub) -> None:
    session_id = api.create_session(
        stub.add_model(context_length=16_384), tool_settings=MUCH_UNASKED
    )["session_id"]
    api.ok(
        api.http.patch(
            f"/sessions/{session_id}", json={"context_window": {"current_window": 16_384}}
        )
    )
    calling = {"tool_call": calls("much", n=1)["tool_call"] * 2}
    for number in range(6):
        api.stream_message(session_id, instruct(calling, words(3), label=f"T{number}"))
    prompts = [(exchange.body or {})["messages"] for exchange in chats(stub)]
    changed = [n for n, (a, b) in enumerate(itertools.pairwise(prompts)) if b[: len(a)] != a]
    assert any("left out" in message["content"] for message in prompts[-1])
    assert 0 < len(changed) <= 2, changed


@pytest.mark.two_servers
def test_new_session_adopts_a_window_only_while_it_is_loaded(api: Api, stub: ModelStub) -> None:
    model = stub.add_model()
    first, second, third = (api.create_session(model)["session_id"] for _ in range(3))
    api.send_message(first, "word " * 3000 + instruct(words(2)))
    window = api.send_message(second, "Hello!")["context_window"]
    assert (window["current_window"], window["reason"]) == (32768, "adopted_loaded")
    assert (
        api.http.post(
            f"{stub.url}/api/generate", json={"model": model, "keep_alive": 0}
        ).status_code
        == 200
    )
    windows = [api.send_message(each, "Hello!")["context_window"] for each in (third, first, third)]
    assert (windows[0]["current_window"], windows[0]["reason"]) == (8192, "initial_setup")
    assert windows[1]["current_window"] >= 16384
    assert (windows[2]["current_window"], windows[2]["reason"]) == (
        windows[1]["current_window"],
        "adopted_loaded",
    )


def test_new_session_keeps_the_window_of_a_request_that_waits_for_a_slot(tmp_path: Path) -> None:
    gate = Gate()
    with (
        ModelStub() as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False, ollama_slots=1) as server,
        ThreadPoolExecutor(2) as threads,
    ):
        api = server.api()
        other = stub.add_model(lambda _: Reply([Text("one "), gate, Text("two")]))
        model = stub.add_model(chars_per_token=4)
        first, second = (api.create_session(model)["session_id"] for _ in range(2))
        with api.open_stream(api.create_session(other)["session_id"], "Hello!") as events:
            next(event for event in events if event.type == "content_delta")
            message = "word " * 12_000 + instruct(words(2))
            long = threads.submit(server.api().send_message, first, message)
            until(lambda: queued(api) == 1)
            short = threads.submit(server.api().send_message, second, "Hi")
            until(lambda: queued(api) == 2)
            gate.open()
            long.result()
            short.result()
        assert windows(stub) == [8192, 32768, 32768]


def queued(api: Api) -> int:
    (host,) = api.ok(api.http.get("/hosts"))["hosts"]
    return int(host["queued"])


def test_window_from_before_a_restart_is_not_that_of_ollama(tmp_path: Path) -> None:
    models = [Model(name, ("completion",), context_length=131_072) for name in ("a", "b")]
    with StubServer(models=models, speed=0) as stub:
        with RunningServer(tmp_path, stub.url, summarization_enabled=False) as server:
            api = server.api()
            session_id = api.create_session("a")["session_id"]
            api.send_message(session_id, "word " * 1500)
            assert (
                api.send_message(session_id, "Hello!")["context_window"]["current_window"] == 16384
            )
        with RunningServer(tmp_path, stub.url, summarization_enabled=False) as server:
            api = server.api()
            api.ok(api.http.get("/models"))
            assert (
                api.send_message(session_id, "Hello!")["context_window"]["current_window"] == 16384
            )
            other = api.create_session("b")["session_id"]
            assert api.send_message(other, "Hello!")["context_window"]["current_window"] == 8192


def test_names_of_one_model_share_its_window(api: Api, stub: ModelStub) -> None:
    model = stub.add_model()
    session_id = api.create_session(model)["session_id"]
    for message in ("word " * 2000, "Hello!"):
        api.send_message(session_id, message)
    grown = windows(stub)[-1]
    before = reloads(stub)
    for name in (f"library/{model}", f"registry.ollama.ai/library/{model}:latest"):
        api.send_message(api.create_session(name)["session_id"], "Hello!")
    assert grown > 8192
    assert (windows(stub)[-2:], reloads(stub)) == ([grown] * 2, before)


@pytest.mark.two_servers
def test_released_window_is_chosen_as_in_a_new_session(api: Api, stub: ModelStub) -> None:
    path = f"/sessions/{api.create_session(stub.add_model())['session_id']}"
    for window, chosen in ((32768, 32768), (None, 8192)):
        body = api.ok(api.http.patch(path, json={"context_window": {"current_window": window}}))
        assert body["context_window_config"]["current_window"] == chosen


@cases(
    ("window", "used", "is_manual"),
    [
        (10**9, 40960, False),
        (10**9, 40960, True),
        (-5, 8192, False),
        (0, 8192, True),
        (True, 8192, False),
        ("8k", 8192, True),
    ],
)
def test_imported_window_is_limited_to_the_model(
    api: Api, stub: ModelStub, window: object, used: int, is_manual: bool
) -> None:
    config = {
        "current_window": window,
        "manual_override": is_manual,
        "last_adjustment": 7,
        "dynamic_enabled": "yes",
    }
    model = stub.add_model()
    messages = [
        {"role": "user", "content": "Hi!"},
        {"role": "assistant", "content": "Hello!", "model": model},
    ]
    file = {"metadata": {"model": model, "context_window_config": config}, "messages": messages}
    session_id = api.ok(api.http.post("/sessions/import", json=file), 201)["sessions"][0][
        "session_id"
    ]
    assert (
        api.ok(api.http.get(f"/sessions/{session_id}/status"))["context_window"]["dynamic_enabled"]
        is True
    )
    assert api.send_message(session_id, "Hello!")["context_window"]["current_window"] == used
    if (
        used > 8192
    ):  # a new session adopts the window that is loaded, unless it is that of another session
        new = api.create_session(model)["session_id"]
        expected = 8192 if is_manual else used
        assert api.send_message(new, "Hello!")["context_window"]["current_window"] == expected


@pytest.mark.two_servers
def test_message_larger_than_the_window_gets_a_larger_window(api: Api, stub: ModelStub) -> None:
    session_id = api.create_session(stub.add_model())["session_id"]
    answer = api.send_message(session_id, "Long: " + "word " * 3000)
    assert answer["context_window"]["current_window"] == 32768
    assert answer["context_window"]["reason"] == "usage_threshold"


@pytest.mark.two_servers
def test_message_larger_than_any_window_is_refused(api: Api, stub: ModelStub) -> None:
    session_id = api.create_session(stub.add_model(context_length=8192))["session_id"]
    message = "word " * 4000
    events = api.stream_message(session_id, message)
    assert types_of(events) == ["error", "done"]
    assert events[0].data["code"] == "CONTEXT_OVERFLOW"
    assert "longer context. The message is stored: " in events[0].data["message"]
    assert api.messages(session_id)[0]["content"] == message
    assert error_of(api.http.post(f"/chat/{session_id}")) == (422, "CONTEXT_OVERFLOW")


@cases(
    ("window", "words_sent", "parts"),
    [
        (2000, 3000, ("session's manual context window of 2000 tokens", "`current_window`")),
        (10**9, 10_000, ("model's context window of 8192 tokens", "longer context")),
        (2000, 10_000, ("model's context window of 8192 tokens", "longer context")),
    ],
)
def test_overflow_names_the_manual_window_only_if_a_larger_one_helps(
    api: Api, stub: ModelStub, window: int, words_sent: int, parts: tuple[str, ...]
) -> None:
    session_id = api.create_session(stub.add_model(context_length=8192))["session_id"]
    manual = {"context_window": {"current_window": window}}
    api.ok(api.http.patch(f"/sessions/{session_id}", json=manual))
    response = api.http.post(f"/chat/{session_id}", json={"message": "word " * words_sent})
    assert error_of(response) == (422, "CONTEXT_OVERFLOW")
    for part in parts:
        assert part in response.json()["error"]["message"]


@pytest.mark.two_servers
def test_message_beyond_the_largest_window_is_refused_without_requests(
    api: Api, stub: ModelStub
) -> None:
    model = stub.add_model()
    session_id, other_id = (api.create_session(model)["session_id"] for _ in range(2))
    for each in (session_id, other_id):
        api.send_message(each, "Hello!")
    requests = len(chats(stub))
    answer = api.http.post(f"/chat/{session_id}", json={"message": "word " * 50_000})
    assert error_of(answer) == (422, "CONTEXT_OVERFLOW")
    assert len(chats(stub)) == requests, "no summary of the earlier turns"
    assert api.send_message(other_id, "Hello!")["context_window"]["current_window"] == 8192
    assert reloads(stub) == 0


@pytest.mark.two_servers
def test_larger_loaded_window_is_adopted(tmp_path: Path, private_stub: StubServer) -> None:
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.api()
        load = {"model": "mochi", "messages": [], "options": {"num_ctx": 20000}}
        assert api.http.post(f"{private_stub.url}/api/chat", json=load).status_code == 200
        session_id = api.create_session("mochi")["session_id"]
        answer = api.send_message(session_id, "Hello!")
        assert answer["context_window"]["current_window"] == 20000
        assert answer["context_window"]["reason"] == "adopted_loaded"
        assert reloads(private_stub) == 0


@pytest.mark.two_servers
def test_answer_with_length_limit_keeps_window(api: Api, stub: ModelStub) -> None:
    model = stub.add_model(lambda _: Reply([Text("cut off")], finish="length"))
    events = api.stream_message(api.create_session(model)["session_id"], "Hello!")
    assert types_of(events) == ["content_delta", "message_complete", "done"]
    assert events[1].data["done_reason"] == "length"
    assert api.create_session(model)["context_window_config"]["current_window"] == 8192


@pytest.mark.two_servers
def test_cut_answer_enlarges_the_window_of_the_next_request(api: Api, stub: ModelStub) -> None:
    session_id = api.create_session(stub.add_model(lambda _: "word " * 2000))["session_id"]
    (warning,) = api.send_message(session_id, "Hello!")["warnings"]
    assert warning["code"] == "ANSWER_CUT"
    window = api.send_message(session_id, "Hello again!")["context_window"]
    assert (window["current_window"], window["reason"]) == (16384, "usage_threshold")


def test_longest_answer_fits_the_window_after_each_prompt(api: Api, stub: ModelStub) -> None:
    for chars, length, turns in ((1, 2048, 6), (1, 40960, 3), (4, 40960, 3)):
        model = stub.add_model(context_length=length, chars_per_token=chars)
        session_id = api.create_session(model)["session_id"]
        for turn in range(turns):
            api.send_message(
                session_id, instruct(words(30)) + f"Fact {turn} is {turn * 7}. " + "word " * 110
            )
    exchanges = chats(stub)
    assert len(exchanges) > 12, "the requests for checkpoints are included"
    for exchange in exchanges:
        options = (exchange.body or {})["options"]
        assert (exchange.prompt_tokens or 0) + options["num_predict"] <= options["num_ctx"], options


def test_checkpoint_in_a_large_window_may_have_its_full_length(api: Api, stub: ModelStub) -> None:
    session_id = api.create_session(stub.add_model(context_length=200_000))["session_id"]
    for message in ("word " * 33_000, "Hello!"):
        api.send_message(session_id, message)
    limits = [(exchange.body or {})["options"]["num_predict"] for exchange in chats(stub)]
    assert limits[-2] == 1500


def test_manual_window_works_without_dynamic_windows(
    tmp_path: Path, private_stub: StubServer
) -> None:
    with RunningServer(tmp_path, private_stub.url, dynamic_context_window_enabled=False) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        path = f"/sessions/{session_id}"
        api.ok(api.http.patch(path, json={"context_window": {"current_window": 5000}}))
        answer = api.send_message(session_id, "Hello!")["context_window"]
        assert (answer["current_window"], answer["reason"]) == (5000, "manual_override")
        assert (chats(private_stub)[-1].body or {})["options"]["num_ctx"] == 5000
        config = api.ok(api.http.patch(path, json={"context_window": {"current_window": None}}))[
            "context_window_config"
        ]
        assert (config["current_window"], config["manual_override"]) == (None, False)
        assert api.send_message(session_id, "Hello!")["context_window"]["current_window"] is None


def test_refused_prompt_is_compacted_without_dynamic_windows(tmp_path: Path) -> None:
    off = {"dynamic_context_window_enabled": False, "summarization_enabled": False}
    machine = Machine(context_length=20_000)
    with (
        StubServer(speed=0, machine=machine) as stub,
        RunningServer(tmp_path, stub.url, **off) as server,
    ):
        session_id = server.client.create_session("mochi")["session_id"]
        events: list[Event] = []
        for _ in range(3):
            message = instruct(words(10)) + "word " * 1400
            events += server.client.stream_message(session_id, message)
        (compacted,) = of_type(events, "context_compacted")
        assert compacted["summary_used"]
        assert types_of(events).count("message_complete") == 3
        for exchange in chats(stub):
            assert "num_ctx" not in (exchange.body or {}).get("options", {})
        too_long = server.client.stream_message(session_id, "word " * 5000)
        (error,) = of_type(too_long, "error")
        assert error["code"] == "CONTEXT_OVERFLOW"
        assert error["details"]["window"] == 20_000


def test_windows_stop_being_dynamic_without_an_adjustment(
    tmp_path: Path, private_stub: StubServer
) -> None:
    url = private_stub.url
    with RunningServer(tmp_path, url) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        server.client.send_message(session_id, "Hello!")
    for is_dynamic in (False, True):
        with RunningServer(tmp_path, url, dynamic_context_window_enabled=is_dynamic) as server:
            api = server.client
            status = api.ok(api.http.get(f"/sessions/{session_id}/status"))
            assert status["context_window"]["dynamic_enabled"] is is_dynamic
            api.send_message(session_id, "Hello again!")
            stored = api.ok(api.http.get(f"/sessions/{session_id}"))
            assert stored["context_window_config"]["adjustment_history"] == []


@pytest.mark.two_servers
def test_manual_window_stays_when_a_client_sets_the_same_model(api: Api, stub: ModelStub) -> None:
    model = stub.add_model()
    path = f"/sessions/{api.create_session(model)['session_id']}"
    api.ok(api.http.patch(path, json={"context_window": {"current_window": 12_000}}))
    for name in (model, f"{model}:latest"):
        config = api.ok(api.http.patch(path, json={"model": name}))["context_window_config"]
        assert (config["current_window"], config["manual_override"]) == (12_000, True)


def test_manual_windows_survive_a_restart(tmp_path: Path) -> None:
    with StubServer(speed=0) as stub:
        with RunningServer(tmp_path, stub.url) as server:
            api = server.api()
            small, large, usual, other = (
                api.create_session("mochi")["session_id"] for _ in range(4)
            )
            for session_id, window in ((small, 4096), (large, 16384), (other, 4096)):
                body = {"context_window": {"current_window": window}}
                api.ok(api.http.patch(f"/sessions/{session_id}", json=body))
            api.ok(api.http.patch(f"/sessions/{other}", json={"model": "mochi-chat"}))
        with RunningServer(tmp_path, stub.url) as server:
            api = server.api()
            status = api.ok(api.http.get(f"/sessions/{small}/status"))["context_window"]
            assert (status["manual_override"], status["manual_override_session_id"]) == (
                True,
                small,
            )
            assert status["current_window"] == 4096
            answers = [
                api.send_message(each, "Hello!")["context_window"] for each in (small, large, usual)
            ]
            assert [answer["current_window"] for answer in answers] == [4096, 16384, 8192]
            config = api.ok(api.http.patch(f"/sessions/{other}", json={"model": "mochi"}))[
                "context_window_config"
            ]
            assert (config["current_window"], config["manual_override"]) == (4096, True)


@cases("chosen", [None, {"current_window": 4096}])
def test_manual_window_of_a_session_is_replaced_after_a_restart(
    tmp_path: Path, chosen: dict[str, int] | None
) -> None:
    with StubServer(speed=0) as stub:
        with RunningServer(tmp_path, stub.url) as server:
            api = server.api()
            session_id = api.create_session("mochi")["session_id"]
            path = f"/sessions/{session_id}"
            body = {"context_window": {"current_window": 32_768}}
            api.ok(api.http.patch(path, json=body))
            api.send_message(session_id, "Hello!")
        with RunningServer(tmp_path, stub.url) as server:
            api = server.api()
            patched = api.ok(api.http.patch(path, json={"context_window": chosen}))
            other = api.create_session("mochi")["session_id"]
            of_other = api.send_message(other, "Hello!")["context_window"]
            own = api.send_message(session_id, "Hello!")["context_window"]
    expected = 8192 if chosen is None else 4096
    assert patched["context_window_config"]["current_window"] == expected
    assert own["current_window"] == expected
    assert of_other["current_window"] == 8192


def test_change_between_different_windows_warns_about_the_reload(api: Api, stub: ModelStub) -> None:
    model = stub.add_model()
    own, other = (api.create_session(model)["session_id"] for _ in range(2))
    patched = api.ok(
        api.http.patch(f"/sessions/{own}", json={"context_window": {"current_window": 16384}})
    )
    assert [warning["code"] for warning in patched["warnings"]] == ["WINDOW_DIFFERS"]
    assert "16384" in patched["warnings"][0]["message"]
    warnings = [
        [event["code"] for event in of_type(api.stream_message(session_id, "Hello!"), "warning")]
        for session_id in (own, own, other, other, own)
    ]
    assert warnings == [[], [], ["WINDOW_DIFFERS"], [], ["WINDOW_DIFFERS"]]
    assert windows(stub) == [16384, 16384, 8192, 8192, 16384]


@pytest.mark.two_servers
def test_manual_window_like_that_of_other_sessions_causes_no_warning(
    api: Api, stub: ModelStub
) -> None:
    path = f"/sessions/{api.create_session(stub.add_model())['session_id']}"
    others = api.ok(api.http.get(f"{path}/status"))["context_window"]["current_window"]
    for body in ({"context_window": {"current_window": others}}, {"context_window": None}):
        assert api.ok(api.http.patch(path, json=body))["warnings"] == []


def test_small_manual_window_of_a_model_with_vision_causes_no_reload(
    api: Api, stub: ModelStub
) -> None:
    model = stub.add_model(capabilities=("completion", "vision"))
    session_id = api.create_session(model)["session_id"]
    path = f"/sessions/{session_id}"
    body = {"context_window": {"current_window": 1024}}
    patched = api.ok(api.http.patch(path, json=body))
    warnings = [
        [event["code"] for event in of_type(api.stream_message(session_id, "Hello!"), "warning")]
        for _ in range(2)
    ]
    status = api.ok(api.http.get(f"{path}/status"))["context_window"]
    assert warnings == [[], []]
    assert patched["context_window_config"]["current_window"] == 2048
    assert (status["current_window"], status["manual_override"]) == (2048, True)
    assert (windows(stub), reloads(stub)) == ([2048, 2048], 0)


def test_out_of_memory_reduces_a_manual_window_for_the_turn(api: Api, stub: ModelStub) -> None:
    model = stub.add_model(out_of_memory_above=10_000)
    session_id = api.create_session(model, tool_settings=MUCH_UNASKED)["session_id"]
    api.ok(
        api.http.patch(
            f"/sessions/{session_id}", json={"context_window": {"current_window": 16384}}
        )
    )
    answer = api.send_message(session_id, instruct(calls("much", n=1), words(3)))["context_window"]
    status = api.ok(api.http.get(f"/sessions/{session_id}/status"))["context_window"]
    assert (answer["current_window"], answer["reason"]) == (8192, "load_failed_step_down")
    assert (status["current_window"], status["manual_override"]) == (16384, True)
    assert windows(stub) == [16384, 8192, 8192]


def test_out_of_memory_reduces_window(api: Api, stub: ModelStub) -> None:
    session_id = api.create_session(stub.add_model(out_of_memory_above=10_000))["session_id"]
    first = api.send_message(session_id, instruct(words(10)) + "word " * 100)
    assert first["context_window"]["current_window"] == 8192
    answer = api.send_message(session_id, instruct(words(10)) + "word " * 1200)["context_window"]
    assert (answer["current_window"], answer["reason"]) == (8192, "load_failed_step_down")


def test_simultaneous_turns_reduce_the_window_once(api: Api, stub: ModelStub) -> None:
    def resolve(prompt: Prompt) -> Reply:
        is_large = prompt.options["num_ctx"] > 8192
        return (
            Reply([gate, Failure("cudaMalloc failed: out of memory")])
            if is_large
            else Reply.of("Fine.")
        )

    gate, number, model = Gate(), 3, stub.add_model(resolve)
    with ThreadPoolExecutor() as pool:
        sessions = [api.create_session(model)["session_id"] for _ in range(number)]
        for session_id in sessions:
            api.send_message(session_id, "x" * 2500)
        stub.clear_exchanges()
        answers = pool.map(lambda session_id: api.send_message(session_id, "x" * 2000), sessions)
        stub.wait_for(
            lambda exchanges: len([e for e in exchanges if e.path == "/api/chat"]) == number
        )
        gate.open()
        assert [answer["context_window"]["current_window"] for answer in answers] == [8192] * number


def test_turn_that_fails_after_the_retry_of_another_turn_begins_below_its_window(
    api: Api, stub: ModelStub
) -> None:
    def resolve(prompt: Prompt) -> Reply:
        if prompt.options["num_ctx"] < 4096:
            return Reply.of("Fine.")
        gate = gates[prompt.user_text]
        return Reply([gate, Failure("cudaMalloc failed: out of memory")])

    gates = {"first": Gate(), "second": Gate()}
    model = stub.add_model(resolve, out_of_memory_above=5000)
    first_id, second_id = (api.create_session(model)["session_id"] for _ in range(2))
    with ThreadPoolExecutor() as pool:
        first = pool.submit(api.stream_message, first_id, "first")
        stub.wait_for(lambda _: windows(stub) == [8192, 4096])
        second = pool.submit(api.stream_message, second_id, "second")
        stub.wait_for(lambda _: windows(stub) == [8192, 4096, 4096])
        gates["first"].open()
        assert types_of(first.result()) == ["error", "done"]
        gates["second"].open()
        (complete,) = of_type(second.result(), "message_complete")
    assert complete["context_window"]["current_window"] == 2048


def test_simultaneous_refusals_enlarge_the_window_once(api: Api, stub: ModelStub) -> None:
    def resolve(prompt: Prompt) -> Reply:
        is_small = prompt.options["num_ctx"] <= 8192
        text = (
            "request (9001 tokens) exceeds the available context size (8192 tokens), try "
            "increasing it"
        )
        return Reply([gate, Failure(text, 400)]) if is_small else Reply.of("Fine.")

    gate, number, model = Gate(), 3, stub.add_model(resolve)
    with ThreadPoolExecutor() as pool:
        sessions = [api.create_session(model)["session_id"] for _ in range(number)]
        answers = pool.map(lambda session_id: api.send_message(session_id, "x" * 2500), sessions)
        stub.wait_for(
            lambda exchanges: len([e for e in exchanges if e.path == "/api/chat"]) == number
        )
        gate.open()
        assert [answer["context_window"]["current_window"] for answer in answers] == [
            16384
        ] * number
        assert reloads(stub) == 1


@pytest.mark.two_servers
def test_lasting_out_of_memory_is_retried_once(api: Api, stub: ModelStub) -> None:
    session_id = api.create_session(stub.add_model(out_of_memory_above=100))["session_id"]
    events = api.stream_message(session_id, "Hello!")
    assert types_of(events) == ["error", "done"]
    assert len(chats(stub)) == 2
    assert (
        api.ok(api.http.get(f"/sessions/{session_id}/status"))["context_window"]["current_window"]
        == 8192
    )


def test_first_window_stays_below_sizes_that_ran_out_of_memory(api: Api, stub: ModelStub) -> None:
    session_id = api.create_session(stub.add_model(out_of_memory_above=3000))["session_id"]
    assert types_of(api.stream_message(session_id, "Hello!")) == ["error", "done"]
    assert api.send_message(session_id)["context_window"]["current_window"] == 2048
    assert windows(stub) == [8192, 4096, 2048]


def test_repeated_out_of_memory_ends_at_a_window_that_fits(api: Api, stub: ModelStub) -> None:
    model = stub.add_model(context_length=131_072, out_of_memory_above=16_384)
    small, grown = (api.create_session(model)["session_id"] for _ in range(2))
    api.send_message(small, "Hello!")
    api.send_message(grown, instruct(words(10)) + "word " * 1500)
    events = api.stream_message(grown, instruct(words(10)) + "word " * 2900)
    assert types_of(events) == ["error", "done"]
    assert api.send_message(small, "Hello!")["context_window"]["current_window"] == 8192
    assert api.send_message(grown)["context_window"]["current_window"] == 16384
    assert api.send_message(grown, "Hello!")["context_window"]["current_window"] == 16384


@pytest.mark.two_servers
def test_many_long_results_in_one_turn_still_end_with_an_answer(api: Api, stub: ModelStub) -> None:
    model = stub.add_model(context_length=8192)
    session_id = api.create_session(model, tool_settings=MUCH_UNASKED)["session_id"]
    events = api.stream_message(
        session_id, instruct(*[calls("much", n=number) for number in range(6)], words(3))
    )
    assert of_type(events, "error") == []
    assert of_type(events, "context_compacted")[-1]["trimmed_tool_results"] > 0
    assert events[-2].type == "message_complete"


@pytest.mark.two_servers
def test_token_count_of_ollama_overrides_estimate(api: Api, stub: ModelStub) -> None:
    model = stub.add_model(lambda _: Reply.of("Fine.", usage=Usage(input=6000, output=3)))
    session_id = api.create_session(model)["session_id"]
    answers = [
        api.send_message(session_id, f"Hello {number}!")["context_window"] for number in range(3)
    ]
    assert [answer["current_window"] for answer in answers] == [8192, 16384, 16384]


@pytest.mark.two_servers
@pytest.mark.parametrize(
    ("message", "counted"), [("Hello!", 4096), ("word " * 2000, 900)], ids=["filled", "too few"]
)
def test_prompt_truncated_by_ollama_causes_warning(
    tmp_path: Path, message: str, counted: int
) -> None:
    def cut(connection: socket.socket) -> None:
        connection.sendall(
            stream_head()
            + b'{"message":{"role":"assistant","content":"Hm"},"done":false}\n'
            + b'{"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":%d,'
            % counted
            + b'"eval_count":1}\n'
        )

    with RawOllama(cut) as ollama, RunningServer(tmp_path, ollama.url) as server:
        api = server.api()
        session_id = api.create_session("raw")["session_id"]
        events = api.stream_message(session_id, message)
    assert [warning["code"] for warning in of_type(events, "warning")] == ["PROMPT_TRUNCATED"]
    assert events[-1].type == "done"


@pytest.mark.two_servers
def test_warning_of_truncated_prompts_is_sent_once_a_turn(api: Api, stub: ModelStub) -> None:
    def count_few(prompt: Prompt) -> Reply:
        usage = Usage(input=100, output=3)
        if len(prompt.messages) > 11:
            return Reply.of("Fine.", usage=usage)
        call = ToolCall("much", {"n": len(prompt.messages)})
        return Reply.of(tool_calls=[call], usage=usage)

    session_id = api.create_session(stub.add_model(count_few), tool_settings=MUCH_UNASKED)[
        "session_id"
    ]
    events = api.stream_message(session_id, "Hello!")
    assert len(of_type(events, "tool_result")) > 4
    assert [warning["code"] for warning in of_type(events, "warning")] == ["PROMPT_TRUNCATED"]


@pytest.mark.two_servers
def test_uncounted_cached_tokens_of_a_tool_round_cause_no_warning(
    api: Api, stub: ModelStub
) -> None:
    def resolve(prompt: Prompt) -> Reply:
        results = sum(message.role == "tool" for message in prompt.messages)
        counts = Usage(input=(1500, 60, 70)[results], output=3)
        calls = [ToolCall("much", {"n": results})] if results < 2 else []
        return Reply.of("" if calls else "Fine.", tool_calls=calls, usage=counts)

    session_id = api.create_session(stub.add_model(resolve), tool_settings=MUCH_UNASKED)[
        "session_id"
    ]
    events = api.stream_message(session_id, "word " * 1000)
    assert of_type(events, "warning") == []
    assert events[-2].type == "message_complete"


@pytest.mark.two_servers
def test_uncounted_cached_tokens_of_another_session_cause_no_warning(
    api: Api, stub: ModelStub
) -> None:
    def resolve(prompt: Prompt) -> Reply:
        counted = {"First": 1150, "Second": 9}[prompt.messages[-1].content]
        return Reply.of("Fine.", usage=Usage(input=counted, output=3))

    model = stub.add_model(resolve)
    instructions = "You are a careful assistant for the support team. " * 100
    for question in ("First", "Second"):
        session = api.create_session(model, system_prompt=instructions)
        events = api.stream_message(session["session_id"], question)
        assert of_type(events, "warning") == []


def test_after_a_restart_the_stored_token_count_limits_the_answer(tmp_path: Path) -> None:
    dense = Model("dense", context_length=8192, chars_per_token=1)
    with StubServer(models=[dense], speed=0) as stub:
        with RunningServer(tmp_path, stub.url, summarization_enabled=False) as server:
            session_id = server.api().create_session("dense")["session_id"]
            server.api().send_message(session_id, instruct(words(5)) + "x" * 3500)
        with RunningServer(tmp_path, stub.url, summarization_enabled=False) as server:
            server.api().send_message(session_id, "And?")
        last = chats(stub)[-1]
    options = (last.body or {})["options"]
    assert (last.prompt_tokens or 0) + options["num_predict"] <= options["num_ctx"], options


@cases(("chars_per_token", "length"), [(1, 5000), (4, 20_000)])
def test_first_answer_of_a_model_fits_the_window_after_a_long_prompt(
    api: Api, stub: ModelStub, chars_per_token: int, length: int
) -> None:
    model = stub.add_model(lambda _: "word " * 10_000, chars_per_token=chars_per_token)
    session_id = api.create_session(model)["session_id"]
    answers = [api.send_message(session_id, "x" * length)["message"] for _ in range(2)]
    answered = [exchange for exchange in chats(stub) if exchange.status == 200]
    for exchange, answer in zip(answered, answers, strict=True):
        options = (exchange.body or {})["options"]
        assert answer["prompt_eval_count"] + answer["eval_count"] <= options["num_ctx"]
        assert (exchange.prompt_tokens or 0) + options["num_predict"] <= options["num_ctx"]
