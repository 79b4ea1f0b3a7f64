"""Context windows: no silent truncation and few reloads, against a stub with Ollama's scheduler."""

import itertools
import json
import random
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from mochi_stub.journal import Exchange
from mochi_stub.models import Model
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.reply import Failure, Gate, Reply, Text, Usage
from tests.support.api import Api, Event, error_of, types_of
from tests.support.instructions import calls, instruct, words
from tests.support.raw_ollama import RawOllama, stream_head
from tests.support.server import RunningServer
from tests.support.stub import chats
from tests.support.tools import write_tools
from tests.support.waiting import until

MUCH = '''
    def much(n: int) -> str:
        """Say much."""
        return f"begin {n} " + "x" * 1500 + f" end {n}"

    __all__ = ["much"]
'''
MUCH_UNASKED = {"tools": ["much"], "execution_policy": "never_confirm"}
SMALL_WITH_TOOLS = (Model("small", capabilities=("completion", "tools"), context_length=8192),)


def summaries(stub: StubServer) -> list[Exchange]:
    return [exchange for exchange in chats(stub) if "format" in (exchange.body or {})]


def reloads(stub: StubServer) -> int:
    return sum(exchange.reload for exchange in chats(stub))


def sent_text(exchange: Exchange) -> str:
    assert exchange.body is not None
    return "\n".join(message["content"] for message in exchange.body["messages"])


def of_type(events: list[Event], kind: str) -> list[dict[str, Any]]:
    return [event.data for event in events if event.type == kind]


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

    def _text(self, start: str) -> str:
        return start + "word " * self.chance.randint(self.longest // 5, self.longest)


@pytest.mark.one_process("each server has its own windows")
@pytest.mark.parametrize(
    ("seed", "turns", "longest"),
    [
        pytest.param(1, 20, 330, id="few long turns"),
        *(pytest.param(seed, 60, 110, marks=pytest.mark.slow) for seed in (1, 2, 3)),
    ],
)
def test_long_conversation_reloads_at_most_three_times(tmp_path: Path, seed: int, turns: int, longest: int) -> None:
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
        assert {exchange.status for exchange in chats(stub)} <= {200, 0}  # 0: a summary that was cancelled for a turn
        config = api.session(session_id)["context_window_config"]
        assert [entry["window"] for entry in config["adjustment_history"]] == [16384, 32768, 36864]


@pytest.mark.parametrize(
    ("turns", "longest"), [pytest.param(13, 330, id="few long turns"), pytest.param(40, 110, marks=pytest.mark.slow)]
)
def test_sessions_of_different_length_share_their_models_window(tmp_path: Path, turns: int, longest: int) -> None:
    conversation = RandomConversation(4, longest)
    with StubServer(speed=0, resolve=conversation.resolve) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        sessions = [api.create_session("mochi")["session_id"] for _ in range(4)]
        for number in range(turns):
            for pace, session_id in enumerate(sessions, 1):
                if number % pace == 0:
                    api.stream_message(session_id, conversation.turn(number))
        assert reloads(stub) <= 3


def test_first_message_survives_compaction_in_summary(tmp_path: Path) -> None:
    conversation = RandomConversation(5, longest=220)
    models = (Model("small", capabilities=("completion",), context_length=4096),)
    with (
        StubServer(speed=0, models=models, resolve=conversation.resolve) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api = server.api()
        session_id = api.create_session("small")["session_id"]
        length, compacted = 0, []
        for number in range(20):
            message = conversation.turn(number)
            length += len(message)
            events = api.stream_message(session_id, message)
            assert of_type(events, "error") == []
            compacted.extend(of_type(events, "context_compacted"))
            if of_type(events, "status"):
                assert of_type(events, "status")[0]["state"] == "compacting"
        assert length > 2 * 4096
        assert "fact 0 is 0" in sent_text(chats(stub)[-1])
        assert compacted[-1]["dropped_messages"] > 0
        assert compacted[-1]["summary_used"] is True
        assert len(api.messages(session_id)) == 40
        assert api.messages(session_id)[0]["content"].startswith("Turn 0")


def test_prompt_prefix_stays_stable_for_many_turns(tmp_path: Path) -> None:
    conversation = RandomConversation(6, longest=220)
    models = (Model("small", capabilities=("completion",), context_length=4096),)
    with (
        StubServer(speed=0, models=models, resolve=conversation.resolve) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api = server.api()
        session_id = api.create_session("small")["session_id"]
        for number in range(15):
            api.stream_message(session_id, conversation.turn(number))
        bodies = [exchange.body for exchange in chats(stub)]
        beginnings = [body["messages"][0]["content"] for body in bodies if body and len(body["messages"]) > 2]
    changes = sum(a != b for a, b in itertools.pairwise(beginnings))
    assert changes <= 8


@pytest.mark.one_process("checks the server's files")
def test_editing_covered_message_drops_checkpoint(tmp_path: Path) -> None:
    conversation = RandomConversation(7, longest=220)
    models = (Model("small", capabilities=("completion",), context_length=4096),)
    with (
        StubServer(speed=0, models=models, resolve=conversation.resolve) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api = server.api()
        session_id = api.create_session("small")["session_id"]
        for number in range(7):
            api.stream_message(session_id, conversation.turn(number))
        assert "Summary of the earlier" in sent_text(chats(stub)[-1])
        path = tmp_path / "chat_sessions" / f"{session_id}.json"
        assert "compaction" in json.loads(path.read_bytes())["metadata"]
        api.ok(api.http.put(f"/sessions/{session_id}/messages/2", json={"content": "Turn again"}))
        assert "compaction" not in json.loads(path.read_bytes())["metadata"]
        api.stream_message(session_id)
        assert "Summary of the earlier" not in sent_text(chats(stub)[-1])


def test_old_tool_results_are_shortened_first(tmp_path: Path) -> None:
    write_tools(tmp_path, MUCH)
    with StubServer(speed=0, models=SMALL_WITH_TOOLS) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = api.create_session("small", tool_settings=MUCH_UNASKED)["session_id"]
        trimmed = 0
        for number in range(6):
            events = api.stream_message(session_id, instruct(calls("much", n=number), words(3), label=f"T{number}"))
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


@pytest.mark.one_process("each server knows which results it has trimmed")
def test_trimmed_results_change_the_prompt_only_once(tmp_path: Path) -> None:
    write_tools(tmp_path, MUCH)
    models = (Model("small", capabilities=("completion", "tools"), context_length=16_384),)
    with StubServer(speed=0, models=models) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = api.create_session("small", tool_settings=MUCH_UNASKED)["session_id"]
        api.ok(api.http.patch(f"/sessions/{session_id}", json={"context_window": {"current_window": 16_384}}))
        for number in range(12):
            api.stream_message(session_id, instruct(calls("much", n=number), words(3), label=f"T{number}"))
        prompts = [(exchange.body or {})["messages"] for exchange in chats(stub)]
    changed = [n for n, (a, b) in enumerate(itertools.pairwise(prompts)) if b[: len(a)] != a]
    assert any("left out" in message["content"] for message in prompts[-1])
    assert 0 < len(changed) <= 2, changed


def test_new_session_adopts_a_larger_loaded_window(private_api: Api) -> None:
    first, second = (private_api.create_session("mochi")["session_id"] for _ in range(2))
    private_api.send_message(first, "word " * 3000 + instruct(words(2)))
    window = private_api.send_message(second, "Hello!")["context_window"]
    assert (window["current_window"], window["reason"]) == (32768, "adopted_loaded")


def test_new_session_begins_small_after_the_model_was_unloaded(private_api: Api, private_stub: StubServer) -> None:
    first, second = (private_api.create_session("mochi")["session_id"] for _ in range(2))
    private_api.send_message(first, "word " * 3000 + instruct(words(2)))
    unload = {"model": "mochi", "keep_alive": 0}
    assert private_api.http.post(f"{private_stub.url}/api/generate", json=unload).status_code == 200
    windows = [private_api.send_message(each, "Hello!")["context_window"] for each in (second, first, second)]
    assert (windows[0]["current_window"], windows[0]["reason"]) == (8192, "initial_setup")
    assert windows[1]["current_window"] >= 16384
    assert (windows[2]["current_window"], windows[2]["reason"]) == (windows[1]["current_window"], "adopted_loaded")


@pytest.mark.one_process("each server has its own windows")
def test_window_from_before_a_restart_is_not_that_of_ollama(tmp_path: Path) -> None:
    models = [Model(name, ("completion",), context_length=131_072) for name in ("a", "b")]
    with StubServer(models=models, speed=0) as stub:
        with RunningServer(tmp_path, stub.url, summarization_enabled=False) as server:
            api = server.api()
            session_id = api.create_session("a")["session_id"]
            api.send_message(session_id, "word " * 1500)
            assert api.send_message(session_id, "Hello!")["context_window"]["current_window"] == 16384
        with RunningServer(tmp_path, stub.url, summarization_enabled=False) as server:
            api = server.api()
            api.ok(api.http.get("/models"))
            assert api.send_message(session_id, "Hello!")["context_window"]["current_window"] == 16384
            other = api.create_session("b")["session_id"]
            assert api.send_message(other, "Hello!")["context_window"]["current_window"] == 8192


def test_released_window_is_chosen_as_in_a_new_session(private_api: Api) -> None:
    session_id = private_api.create_session("mochi")["session_id"]
    for window, chosen in ((32768, 32768), (None, 8192)):
        body = private_api.ok(
            private_api.http.patch(f"/sessions/{session_id}", json={"context_window": {"current_window": window}})
        )
        assert body["context_window_config"]["current_window"] == chosen


@pytest.mark.one_process("each server has its own windows")
@pytest.mark.parametrize("is_manual", [False, True])
@pytest.mark.parametrize(("window", "used"), [(10**9, 40960), (-5, 8192), (0, 8192), (True, 8192), ("8k", 8192)])
def test_imported_window_is_limited_to_the_model(
    tmp_path: Path, private_stub: StubServer, window: object, used: int, is_manual: bool
) -> None:
    config = {"current_window": window, "manual_override": is_manual, "last_adjustment": 7, "dynamic_enabled": "yes"}
    messages = [{"role": "user", "content": "Hi!"}, {"role": "assistant", "content": "Hello!", "model": "mochi"}]
    file = {"metadata": {"model": "mochi", "context_window_config": config}, "messages": messages}
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.api()
        session_id = api.ok(api.http.post("/sessions/import", json=file), 201)["sessions"][0]["session_id"]
        assert api.ok(api.http.get(f"/sessions/{session_id}/status"))["context_window"]["dynamic_enabled"] is True
        new = api.create_session("mochi")["session_id"]
        for each, expected in ((session_id, used), (new, 8192 if is_manual else used)):
            assert api.send_message(each, "Hello!")["context_window"]["current_window"] == expected


def test_message_larger_than_the_window_gets_a_larger_window(private_api: Api, private_stub: StubServer) -> None:
    session_id = private_api.create_session("mochi")["session_id"]
    answer = private_api.send_message(session_id, "Long: " + "word " * 3000)
    assert answer["context_window"]["current_window"] == 32768
    assert answer["context_window"]["reason"] == "usage_threshold"


@pytest.mark.parametrize("stream", [True, False])
def test_message_larger_than_any_window_is_refused(api: Api, stream: bool) -> None:
    session_id = api.create_session("mochi-chat")["session_id"]
    message = "word " * 4000
    if stream:
        events = api.stream_message(session_id, message)
        assert types_of(events) == ["error", "done"]
        assert events[0].data["code"] == "CONTEXT_OVERFLOW"
    else:
        assert error_of(api.http.post(f"/chat/{session_id}", json={"message": message})) == (422, "CONTEXT_OVERFLOW")
    assert api.messages(session_id)[0]["content"] == message
    assert error_of(api.http.post(f"/chat/{session_id}"))[1] == "CONTEXT_OVERFLOW"


def test_message_beyond_the_largest_window_is_refused_without_requests(
    tmp_path: Path, private_stub: StubServer
) -> None:
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.api()
        session_id, other_id = (api.create_session("mochi")["session_id"] for _ in range(2))
        for each in (session_id, other_id):
            api.send_message(each, "Hello!")
        requests = len(chats(private_stub))
        answer = api.http.post(f"/chat/{session_id}", json={"message": "word " * 100_000})
        assert error_of(answer) == (422, "CONTEXT_OVERFLOW")
        assert len(chats(private_stub)) == requests, "no summary of the earlier turns"
        assert api.send_message(other_id, "Hello!")["context_window"]["current_window"] == 8192
        assert reloads(private_stub) == 0


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


def test_answer_with_length_limit_keeps_window(tmp_path: Path) -> None:
    def resolve(_: Prompt) -> Reply:
        return Reply([Text("cut off")], finish="length")

    with StubServer(speed=0, resolve=resolve) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        events = api.stream_message(api.create_session("mochi")["session_id"], "Hello!")
        assert types_of(events) == ["content_delta", "message_complete", "done"]
        assert events[1].data["done_reason"] == "length"
        assert api.create_session("mochi")["context_window_config"]["current_window"] == 8192


def test_cut_answer_enlarges_the_window_of_the_next_request(tmp_path: Path) -> None:
    with StubServer(speed=0, resolve=lambda _: "word " * 2000) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        (warning,) = api.send_message(session_id, "Hello!")["warnings"]
        assert warning["code"] == "ANSWER_CUT"
        window = api.send_message(session_id, "Hello again!")["context_window"]
        assert (window["current_window"], window["reason"]) == (16384, "usage_threshold")


@pytest.mark.one_process("each server has its own windows")
@pytest.mark.parametrize("chars_per_token", [1, 2, 3, 4])
def test_longest_answer_fits_the_window_after_each_prompt(tmp_path: Path, chars_per_token: int) -> None:
    models = tuple(
        Model(f"model-{length}", context_length=length, chars_per_token=chars_per_token) for length in (2048, 40960)
    )
    with (
        StubServer(speed=0, models=models) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        api = server.api()
        for model in models:
            session_id = api.create_session(model.name)["session_id"]
            for turn in range(12):
                api.send_message(session_id, instruct(words(30)) + f"Fact {turn} is {turn * 7}. " + "word " * 55)
        exchanges = chats(stub)
    assert len(exchanges) > 24, "the requests for checkpoints are included"
    for exchange in exchanges:
        options = (exchange.body or {})["options"]
        assert (exchange.prompt_tokens or 0) + options["num_predict"] <= options["num_ctx"], options


@pytest.mark.one_process("each server has its own windows")
def test_checkpoint_in_a_large_window_may_have_its_full_length(tmp_path: Path) -> None:
    models = (Model("large", context_length=200_000),)
    with (
        StubServer(speed=0, models=models) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        api = server.api()
        session_id = api.create_session("large")["session_id"]
        for message in ("word " * 33_000, "Hello!"):
            api.send_message(session_id, message)
        limits = [(exchange.body or {})["options"]["num_predict"] for exchange in chats(stub)]
    assert limits[-2] == 1500


@pytest.mark.one_process("each server has its own windows")
def test_manual_window_works_without_dynamic_windows(tmp_path: Path, private_stub: StubServer) -> None:
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


@pytest.mark.one_process("each server has its own windows")
def test_status_names_the_session_of_the_manual_window_after_a_restart(tmp_path: Path) -> None:
    with StubServer(speed=0) as stub:
        with RunningServer(tmp_path, stub.url) as server:
            session_id = server.api().create_session("mochi")["session_id"]
            body = {"context_window": {"current_window": 4096}}
            server.api().ok(server.api().http.patch(f"/sessions/{session_id}", json=body))
        with RunningServer(tmp_path, stub.url) as server:
            status = server.api().ok(server.api().http.get(f"/sessions/{session_id}/status"))["context_window"]
    assert (status["manual_override"], status["manual_override_session_id"]) == (True, session_id)
    assert status["current_window"] == 4096


@pytest.mark.parametrize("model", ["mochi", "mochi:latest"])
def test_manual_window_stays_when_a_client_sets_the_same_model(private_api: Api, model: str) -> None:
    path = f"/sessions/{private_api.create_session('mochi')['session_id']}"
    private_api.ok(private_api.http.patch(path, json={"context_window": {"current_window": 12_000}}))
    config = private_api.ok(private_api.http.patch(path, json={"model": model}))["context_window_config"]
    assert (config["current_window"], config["manual_override"]) == (12_000, True)


@pytest.mark.one_process("each server has its own windows")
def test_manual_windows_of_two_sessions_survive_a_restart(tmp_path: Path) -> None:
    with StubServer(speed=0) as stub:
        with RunningServer(tmp_path, stub.url) as server:
            api = server.api()
            sessions = [api.create_session("mochi")["session_id"] for _ in range(3)]
            for session_id, window in zip(sessions, (4096, 16384), strict=False):
                body = {"context_window": {"current_window": window}}
                api.ok(api.http.patch(f"/sessions/{session_id}", json=body))
        with RunningServer(tmp_path, stub.url) as server:
            api = server.api()
            answers = [api.send_message(session_id, "Hello!")["context_window"] for session_id in sessions]
            assert [answer["current_window"] for answer in answers] == [4096, 16384, 8192]


@pytest.mark.one_process("each server has its own windows")
def test_change_between_different_windows_warns_about_the_reload(private_api: Api, private_stub: StubServer) -> None:
    own, other = (private_api.create_session("mochi")["session_id"] for _ in range(2))
    body = {"context_window": {"current_window": 16384}}
    patched = private_api.ok(private_api.http.patch(f"/sessions/{own}", json=body))
    assert [warning["code"] for warning in patched["warnings"]] == ["WINDOW_DIFFERS"]
    assert "16384" in patched["warnings"][0]["message"]
    warnings = [
        [event["code"] for event in of_type(private_api.stream_message(session_id, "Hello!"), "warning")]
        for session_id in (own, own, other, other, own)
    ]
    assert warnings == [[], [], ["WINDOW_DIFFERS"], [], ["WINDOW_DIFFERS"]]
    assert [(exchange.body or {})["options"]["num_ctx"] for exchange in chats(private_stub)] == [
        *(16384, 16384, 8192, 8192, 16384)
    ]


def test_manual_window_like_that_of_other_sessions_causes_no_warning(api: Api) -> None:
    path = f"/sessions/{api.create_session('mochi-chat')['session_id']}"
    others = api.ok(api.http.get(f"{path}/status"))["context_window"]["current_window"]
    for body in ({"context_window": {"current_window": others}}, {"context_window": None}):
        assert api.ok(api.http.patch(path, json=body))["warnings"] == []


@pytest.mark.one_process("each server has its own windows")
def test_out_of_memory_reduces_a_manual_window_for_the_turn(tmp_path: Path) -> None:
    models = (Model("big", capabilities=("completion", "tools"), context_length=40960, out_of_memory_above=10_000),)
    write_tools(tmp_path, MUCH)
    with StubServer(speed=0, models=models) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = api.create_session("big", tool_settings=MUCH_UNASKED)["session_id"]
        api.ok(api.http.patch(f"/sessions/{session_id}", json={"context_window": {"current_window": 16384}}))
        answer = api.send_message(session_id, instruct(calls("much", n=1), words(3)))["context_window"]
        status = api.ok(api.http.get(f"/sessions/{session_id}/status"))["context_window"]
        windows = [(exchange.body or {})["options"]["num_ctx"] for exchange in chats(stub)]
    assert (answer["current_window"], answer["reason"]) == (8192, "load_failed_step_down")
    assert (status["current_window"], status["manual_override"]) == (16384, True)
    assert windows == [16384, 8192, 8192]


@pytest.mark.one_process("each server has its own windows")
def test_manual_window_of_the_previous_model_survives_a_restart(tmp_path: Path) -> None:
    with StubServer(speed=0) as stub:
        with RunningServer(tmp_path, stub.url) as server:
            api = server.api()
            path = f"/sessions/{api.create_session('mochi')['session_id']}"
            for body in ({"context_window": {"current_window": 4096}}, {"model": "mochi-chat"}):
                api.ok(api.http.patch(path, json=body))
        with RunningServer(tmp_path, stub.url) as server:
            api = server.api()
            config = api.ok(api.http.patch(path, json={"model": "mochi"}))["context_window_config"]
    assert (config["current_window"], config["manual_override"]) == (4096, True)


@pytest.mark.one_process("each server has its own windows")
def test_out_of_memory_reduces_window(tmp_path: Path) -> None:
    models = (Model("big", context_length=40960, out_of_memory_above=10_000),)
    with StubServer(speed=0, models=models) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = api.create_session("big")["session_id"]
        first = api.send_message(session_id, instruct(words(10)) + "word " * 100)
        assert first["context_window"]["current_window"] == 8192
        answer = api.send_message(session_id, instruct(words(10)) + "word " * 1200)
        assert answer["context_window"] | {"usage_tokens": 0} == {
            "current_window": 8192,
            "usage_tokens": 0,
            "reason": "load_failed_step_down",
        }


@pytest.mark.one_process("each server has its own windows")
def test_simultaneous_turns_reduce_the_window_once(tmp_path: Path) -> None:
    gate, number = Gate(), 4

    def resolve(prompt: Prompt) -> Reply:
        is_large = prompt.options["num_ctx"] > 8192
        return Reply([gate, Failure("cudaMalloc failed: out of memory")]) if is_large else Reply.of("Fine.")

    models = (Model("big", context_length=40960),)
    with (
        StubServer(speed=0, models=models, resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
        ThreadPoolExecutor() as pool,
    ):
        api = server.api()
        sessions = [api.create_session("big")["session_id"] for _ in range(number)]
        for session_id in sessions:
            api.send_message(session_id, "x" * 2500)
        stub.clear_exchanges()
        answers = pool.map(lambda session_id: api.send_message(session_id, "x" * 2000), sessions)
        stub.wait_for(lambda exchanges: len([e for e in exchanges if e.path == "/api/chat"]) == number)
        gate.open()
        assert [answer["context_window"]["current_window"] for answer in answers] == [8192] * number


@pytest.mark.one_process("each server has its own windows")
def test_simultaneous_refusals_enlarge_the_window_once(tmp_path: Path) -> None:
    gate, number = Gate(), 4

    def resolve(prompt: Prompt) -> Reply:
        is_small = prompt.options["num_ctx"] <= 8192
        text = "request (9001 tokens) exceeds the available context size (8192 tokens), try increasing it"
        return Reply([gate, Failure(text, 400)]) if is_small else Reply.of("Fine.")

    with (
        StubServer(speed=0, resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
        ThreadPoolExecutor() as pool,
    ):
        api = server.api()
        sessions = [api.create_session("mochi")["session_id"] for _ in range(number)]
        answers = pool.map(lambda session_id: api.send_message(session_id, "x" * 2500), sessions)
        stub.wait_for(lambda exchanges: len([e for e in exchanges if e.path == "/api/chat"]) == number)
        gate.open()
        assert [answer["context_window"]["current_window"] for answer in answers] == [16384] * number
        assert reloads(stub) == 1


def test_lasting_out_of_memory_is_retried_once(tmp_path: Path) -> None:
    models = (Model("big", context_length=40960, out_of_memory_above=100),)
    with StubServer(speed=0, models=models) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = api.create_session("big")["session_id"]
        events = api.stream_message(session_id, "Hello!")
        assert types_of(events) == ["error", "done"]
        assert len(chats(stub)) == 2
        assert api.ok(api.http.get(f"/sessions/{session_id}/status"))["context_window"]["current_window"] == 8192


@pytest.mark.one_process("each server has its own windows")
def test_first_window_stays_below_sizes_that_ran_out_of_memory(tmp_path: Path) -> None:
    models = (Model("big", context_length=40960, out_of_memory_above=3000),)
    with StubServer(speed=0, models=models) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = api.create_session("big")["session_id"]
        assert types_of(api.stream_message(session_id, "Hello!")) == ["error", "done"]
        assert api.send_message(session_id)["context_window"]["current_window"] == 2048
        windows = [(exchange.body or {})["options"]["num_ctx"] for exchange in chats(stub)]
    assert windows == [8192, 4096, 4096, 2048]


@pytest.mark.one_process("each server has its own windows")
def test_repeated_out_of_memory_ends_at_a_window_that_fits(tmp_path: Path) -> None:
    models = (Model("big", context_length=131072, out_of_memory_above=16_384),)
    with StubServer(speed=0, models=models) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        small, grown = (api.create_session("big")["session_id"] for _ in range(2))
        api.send_message(small, "Hello!")
        api.send_message(grown, instruct(words(10)) + "word " * 1500)
        events = api.stream_message(grown, instruct(words(10)) + "word " * 2900)
        assert types_of(events) == ["error", "done"]
        assert api.send_message(small, "Hello!")["context_window"]["current_window"] == 8192
        assert api.send_message(grown)["context_window"]["reason"] == "load_failed_step_down"
        assert api.send_message(grown, "Hello!")["context_window"]["current_window"] == 16384


def test_many_long_results_in_one_turn_still_end_with_an_answer(tmp_path: Path) -> None:
    write_tools(tmp_path, MUCH)
    with StubServer(speed=0, models=SMALL_WITH_TOOLS) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = api.create_session("small", tool_settings=MUCH_UNASKED)["session_id"]
        events = api.stream_message(session_id, instruct(*[calls("much", n=number) for number in range(8)], words(3)))
        assert of_type(events, "error") == []
        assert of_type(events, "context_compacted")[-1]["trimmed_tool_results"] > 0
        assert events[-2].type == "message_complete"


def test_token_count_of_ollama_overrides_estimate(tmp_path: Path) -> None:
    reply = Reply.of("Fine.", usage=Usage(input=6000, output=3))
    with StubServer(speed=0, resolve=lambda _: reply) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        windows = [
            api.send_message(session_id, f"Hello {number}!")["context_window"]["current_window"] for number in range(5)
        ]
    assert windows == [8192] + [16384] * 4


@pytest.mark.parametrize(("message", "counted"), [("Hello!", 4096), ("word " * 2000, 900)], ids=["filled", "too few"])
def test_prompt_truncated_by_ollama_causes_warning(tmp_path: Path, message: str, counted: int) -> None:
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


def test_uncounted_cached_tokens_of_a_tool_round_cause_no_warning(tmp_path: Path) -> None:
    write_tools(tmp_path, MUCH)

    def resolve(prompt: Prompt) -> Reply:
        results = sum(message.role == "tool" for message in prompt.messages)
        counts = Usage(input=(1500, 60, 70)[results], output=3)
        calls = [ToolCall("much", {"n": results})] if results < 2 else []
        return Reply.of("" if calls else "Fine.", tool_calls=calls, usage=counts)

    with StubServer(speed=0, resolve=resolve) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = api.create_session("mochi", tool_settings=MUCH_UNASKED)["session_id"]
        events = api.stream_message(session_id, "word " * 1000)
    assert of_type(events, "warning") == []
    assert events[-2].type == "message_complete"


@pytest.mark.one_process("each server has its own windows")
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


@pytest.mark.one_process("each server has its own windows")
@pytest.mark.parametrize(("chars_per_token", "length"), [(1, 5000), (2, 9000), (3, 5000), (3, 16_000), (4, 20_000)])
def test_first_answer_of_a_model_fits_the_window_after_a_long_prompt(
    tmp_path: Path, chars_per_token: int, length: int
) -> None:
    model = Model("dense", context_length=40_960, chars_per_token=chars_per_token)
    with (
        StubServer(models=[model], speed=0, resolve=lambda _: "word " * 50_000) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        api = server.api()
        session_id = api.create_session("dense")["session_id"]
        answers = [api.send_message(session_id, "x" * length)["message"] for _ in range(2)]
        answered = [exchange for exchange in chats(stub) if exchange.status == 200]
    for exchange, answer in zip(answered, answers, strict=True):
        options = (exchange.body or {})["options"]
        assert answer["prompt_eval_count"] + answer["eval_count"] <= options["num_ctx"]
        assert (exchange.prompt_tokens or 0) + options["num_predict"] <= options["num_ctx"]
