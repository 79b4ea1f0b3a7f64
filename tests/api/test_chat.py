"""Turns: streamed, collected and regenerated; requests to Ollama and stored messages."""

from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Failure, Gate, Reasoning, Reply, Text
from tests.support.api import Api, error_of, text_of, types_of
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.stub import chats

pytestmark = pytest.mark.two_servers


def last_chat(stub: StubServer) -> dict[str, Any]:
    """Return the latest chat request that the stub received."""
    body = chats(stub)[-1].body
    assert isinstance(body, dict)
    return body


@pytest.fixture
def session_id(api: Api) -> str:
    """An empty session."""
    return str(api.create_session("mochi")["session_id"])


def test_stream_ends_with_the_stored_message_and_done(api: Api, session_id: str) -> None:
    events = api.stream_message(session_id, "Hello!")

    kinds = types_of(events)
    assert set(kinds[:-2]) == {"content_delta"}
    assert kinds[-2:] == ["message_complete", "done"]
    assert text_of(events).endswith("Hello!")
    assert events[0].data["role"] == "assistant"
    assert events[-1].data == {"session_id": session_id}
    complete = events[-2].data
    user, assistant = api.messages(session_id)
    assert (user["role"], user["content"]) == ("user", "Hello!")
    assert assistant["content"] == text_of(events)
    assert complete["message_id"] == assistant["message_id"]
    assert complete["model"] == assistant["model"] == "mochi"
    assert complete["eval_count"] == assistant["eval_count"] > 0
    assert complete["prompt_eval_count"] == assistant["prompt_eval_count"] > 0
    assert complete["context_window"] == {
        "current_window": 8192,
        "usage_tokens": assistant["eval_count"] + assistant["prompt_eval_count"],
        "reason": "initial_setup",
    }
    run_id = api.ok(api.http.get(f"/chat/{session_id}/run"))["run_id"]
    assert [event.id for event in events] == [f"{run_id}:{n}" for n in range(1, len(events) + 1)]


def test_collected_answer_equals_the_stored_message(api: Api) -> None:
    session_id = api.create_session("mochi-chat")["session_id"]

    answer = api.send_message(session_id, "What is the capital of France?")

    stored = api.messages(session_id)[-1]
    assert answer["session_id"] == session_id
    assert answer["message"] == stored
    assert answer["tool_calls_executed"] == []
    assert answer["context_window"] == {
        "current_window": 7372,
        "usage_tokens": stored["eval_count"] + stored["prompt_eval_count"],
        "reason": "initial_setup",
    }


def test_streamed_and_collected_turns_store_the_same(api: Api) -> None:
    streamed, collected = (
        api.create_session("mochi", system_prompt="Be brief.")["session_id"] for _ in range(2)
    )

    for message in (
        "Hello!",
        "Why?\nReason: because",
        instruct(words(7), calls("nothing"), words(3), reasoning=4),
    ):
        api.stream_message(streamed, message, think=True)
        api.send_message(collected, message, think=True)

    first, second = api.session(streamed), api.session(collected)
    for session in (first, second):
        session["session_id"] = session["created_at"] = session["updated_at"] = ""
        for stored in session["messages"]:
            stored["message_id"] = stored["timestamp"] = ""
            # Only the first request that needs the model waits for it to load.
            for key in ("tool_calls", "tool_call_id", "load_duration", "total_duration"):
                stored.pop(key, None)
    assert first == second
    assert len(first["messages"]) >= 8


def test_thinking_is_streamed_and_stored_separately(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]

    events = api.stream_message(session_id, instruct(words(6), reasoning=9, label="L"), think=True)

    thought = "".join(event.data["content"] for event in events if event.type == "thinking_delta")
    stored = api.messages(session_id)[-1]
    assert len(thought.split()) == 11
    assert stored["thinking"] == thought
    assert stored["content"] == text_of(events)
    assert len(stored["content"].split()) == 8


def test_thinking_of_earlier_turns_is_not_sent_back(api: Api, stub: StubServer) -> None:
    session_id = api.create_session("mochi")["session_id"]
    api.send_message(session_id, "Why?\nReason: because", think=True)

    api.send_message(session_id, "And?")

    assert all("thinking" not in message for message in last_chat(stub)["messages"])


@cases("think", [None, False])
def test_thinking_is_disabled_by_default(
    api: Api, stub: StubServer, session_id: str, think: bool | None
) -> None:
    events = api.stream_message(
        session_id, "Why?\nReason: because", **({} if think is None else {"think": think})
    )

    assert last_chat(stub)["think"] is False
    assert not [event for event in events if event.type == "thinking_delta"]


@cases("level", [True, "low", "max"])
def test_think_option_is_sent_to_ollama(
    api: Api, stub: StubServer, session_id: str, level: bool | str
) -> None:
    api.send_message(session_id, "Why?", think=level)
    assert last_chat(stub)["think"] == level


def test_model_without_thinking_answers_with_warning(api: Api, stub: StubServer) -> None:
    session_id = api.create_session("mochi-chat")["session_id"]

    events = api.stream_message(session_id, "Why?", think=True)

    assert events[0].type == "warning"
    assert events[0].data["code"] == "THINKING_NOT_SUPPORTED"
    assert text_of(events)
    assert "think" not in last_chat(stub)


def test_upstream_request_sets_num_ctx_and_no_truncation(
    api: Api, stub: StubServer, session_id: str
) -> None:
    api.send_message(session_id, "Hello!")
    sent = last_chat(stub)
    assert sent["options"]["num_ctx"] == 8192
    assert sent["truncate"] is False
    assert sent["stream"] is True


def test_num_ctx_is_not_sent_without_dynamic_windows(stub: StubServer, tmp_path: Path) -> None:
    with RunningServer(tmp_path, stub.url, dynamic_context_window_enabled=False) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        answer = api.send_message(session_id, "Hello!")
    assert "options" not in last_chat(stub)
    assert last_chat(stub)["shift"] is False, (
        "an answer may not push the oldest messages out of an unknown window"
    )
    assert answer["context_window"]["current_window"] is None


def test_request_options_override_session_options(api: Api, stub: StubServer) -> None:
    session_id = api.create_session(
        "mochi", options={"temperature": 0.1, "seed": 1}, keep_alive="5m"
    )["session_id"]

    api.send_message(
        session_id, "Hello!", options={"seed": 2, "stop": ["x"]}, format="json", keep_alive=60
    )

    sent = last_chat(stub)
    # The rest of the window limits the length of an answer.
    assert 0 < sent["options"].pop("num_predict") < 8192
    assert sent["options"] == {"temperature": 0.1, "seed": 2, "stop": ["x"], "num_ctx": 8192}
    assert sent["format"] == "json"
    assert sent["keep_alive"] == 60


@cases("option", ["num_ctx", "num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread"])
def test_options_that_reload_the_model_are_refused(api: Api, session_id: str, option: str) -> None:
    response = api.http.post(
        f"/chat/{session_id}/stream", json={"message": "Hi", "options": {option: 1}}
    )
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert option in response.json()["error"]["message"]
    assert api.messages(session_id) == []


@cases(
    "option",
    [{"temperature": "hot"}, {"seed": True}, {"top_k": [1]}, {"stop": "x"}, {"stop": ["x", 1]}],
    ids=str,
)
def test_options_of_wrong_type_are_refused(
    api: Api, session_id: str, option: dict[str, Any]
) -> None:
    response = api.http.post(f"/chat/{session_id}", json={"message": "Hi", "options": option})
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert next(iter(option)) in response.json()["error"]["message"]
    assert error_of(api.http.patch(f"/sessions/{session_id}", json={"options": option})) == (
        422,
        "VALIDATION_ERROR",
    )
    assert api.messages(session_id) == []


def test_null_options_fall_back_to_model_defaults(api: Api) -> None:
    session_id = api.create_session("mochi", options={"temperature": None, "stop": None})[
        "session_id"
    ]
    api.send_message(session_id, "Hi", options={"seed": None, "top_k": 3.0})


def test_whole_history_is_sent_with_the_next_message(api: Api, stub: StubServer) -> None:
    session_id = api.create_session("mochi", system_prompt="Be brief.")["session_id"]
    first = api.send_message(session_id, "One")["message"]["content"]

    api.send_message(session_id, "Two")

    assert [(m["role"], m["content"]) for m in last_chat(stub)["messages"]] == [
        ("system", "Be brief."),
        ("user", "One"),
        ("assistant", first),
        ("user", "Two"),
    ]


def test_request_without_message_regenerates_last_answer(api: Api, session_id: str) -> None:
    ids = [api.send_message(session_id, "Hello!")["message"]["message_id"]]
    requests: list[dict[str, Any]] = [{}, {"json": {}}, {"json": {"message": None}}]
    for request in requests:
        ids.append(api.ok(api.http.post(f"/chat/{session_id}", **request))["message"]["message_id"])
        assert [m["message_id"] for m in api.messages(session_id)][1:] == ids[-1:]
    assert len(set(ids)) == 4


def test_edited_message_gets_new_answer(api: Api) -> None:
    session_id = api.create_session("mochi", system_prompt="Be brief.")["session_id"]
    api.send_message(session_id, "One")
    api.send_message(session_id, "Two")

    edited = api.ok(api.http.put(f"/sessions/{session_id}/messages/1", json={"content": "Uno"}))
    assert [m["content"] for m in edited["messages"]] == ["Be brief.", "Uno"]

    events = api.stream_message(session_id)
    assert text_of(events).endswith("Uno")
    assert [m["role"] for m in api.messages(session_id)] == ["system", "user", "assistant"]


def test_failed_regeneration_keeps_the_old_answer(tmp_path: Path) -> None:
    def fail_at_the_second_time(prompt: Prompt) -> Reply | None:
        prompts.append(prompt)
        return Reply([Text("Half"), Failure("kaput")]) if len(prompts) > 1 else None

    prompts: list[Prompt] = []
    with (
        StubServer(speed=0, resolve=fail_at_the_second_time) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        old = api.send_message(session_id, "Hello!")["message"]

        events = api.stream_message(session_id)

        assert types_of(events) == ["content_delta", "error", "done"]
        assert api.messages(session_id)[1:] == [old]


def test_stop_before_the_text_of_a_regeneration_keeps_the_old_answer(tmp_path: Path) -> None:
    replies = iter([Reply.of("Old."), Reply([Reasoning("Hm."), Gate(), Text("New.")])])
    with (
        StubServer(speed=0, resolve=lambda _: next(replies)) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        api = server.client
        session_id = api.create_session("mochi")["session_id"]
        old = api.send_message(session_id, "Hello!")["message"]

        with api.open_stream(session_id, think=True) as events:
            assert next(events).type == "thinking_delta"
            assert api.ok(api.http.post(f"/chat/{session_id}/stop"))["state"] == "stopped"
            assert types_of(list(events)) == ["stopped", "done"]

        assert api.messages(session_id)[1:] == [old]


def test_regeneration_of_empty_history_is_refused(api: Api) -> None:
    session_id = api.create_session("mochi", system_prompt="Be brief.")["session_id"]
    assert error_of(api.http.post(f"/chat/{session_id}")) == (400, "EMPTY_HISTORY")
    assert error_of(api.http.post(f"/chat/{session_id}/stream")) == (400, "EMPTY_HISTORY")


def test_call_of_unknown_tool_returns_error_to_model(api: Api, stub: StubServer) -> None:
    session_id = api.create_session("mochi")["session_id"]

    answer = api.send_message(session_id, instruct(calls("get_weather", city="Oslo"), words(5)))

    roles = [message["role"] for message in api.messages(session_id)]
    assert roles == ["user", "assistant", "tool", "assistant"]
    (call,) = answer["tool_calls_executed"]
    assert (call["tool_name"], call["arguments"]) == ("get_weather", {"city": "Oslo"})
    assert (call["success"], call["error_code"]) == (False, "TOOL_NOT_FOUND")
    sent_call, sent_result = last_chat(stub)["messages"][-2:]
    assert sent_call["tool_calls"][0]["id"] == sent_result["tool_call_id"]
    assert answer["message"]["content"].startswith("ID ")


def test_all_line_separators_arrive_unchanged(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    message = "a\u0085b\u2028c\u2029d\r\ne\x0bf <&> \U0001f375 \x7f"
    events = api.stream_message(session_id, message)
    assert text_of(events).endswith(message)
    assert api.messages(session_id)[0]["content"] == message
