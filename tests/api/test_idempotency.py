"""A message that is sent again with the same idempotency key is processed once."""

import threading
from pathlib import Path

import httpx
import pytest

from mochi_stub import Cut, Gate, Reply, StubServer, Text, ToolCall, ToolCalls
from tests.support.api import Api, Event, error_of, read_events, text_of, types_of
from tests.support.cases import cases
from tests.support.holding import GatedStub
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.tools import write_tools
from tests.support.waiting import until
from tests.support.webhooks import Receiver

pytestmark = pytest.mark.two_servers


@pytest.fixture
def server(holding: GatedStub, holding_server: RunningServer) -> RunningServer:
    return holding_server


@pytest.fixture
def api(server: RunningServer) -> Api:
    return server.client


TOOL = """
def one() -> str:
    "One."
    return "1"

__all__ = ["one"]
"""
KEY = {"Idempotency-Key": "5f2c-1"}
TOOL_SETTINGS = {"tool_settings": {"tools": ["one"], "execution_policy": "never_confirm"}}


def stream_with_key(
    api: Api, session_id: str, message: str, key: dict[str, str] = KEY, **fields: object
) -> list[Event]:
    body = {"message": message, **fields}
    with api.http.stream("POST", f"/chat/{session_id}/stream", json=body, headers=key) as response:
        assert response.status_code == 200, response.read()
        return list(read_events(response))


def contents(api: Api, session_id: str) -> list[str]:
    return [message["content"] for message in api.messages(session_id)]


def test_same_post_after_the_end_gets_the_same_events(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    first = stream_with_key(api, session_id, "Hi")
    assert stream_with_key(api, session_id, "Hi") == first
    assert stream_with_key(api, session_id, "Hi", on_disconnect="continue", if_busy="wait") == first
    assert contents(api, session_id) == ["Hi", "Fine."]


def test_same_post_with_another_option_gets_the_same_events(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    first = stream_with_key(api, session_id, "Hi")
    assert stream_with_key(api, session_id, "Hi", options={"seed": 2}, think=True) == first
    assert contents(api, session_id) == ["Hi", "Fine."]


def test_repeated_key_finds_run_before_later_runs(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    first = stream_with_key(api, session_id, "Hi")
    api.send_message(session_id, "Next")
    assert stream_with_key(api, session_id, "Hi") == first
    assert contents(api, session_id) == ["Hi", "Fine.", "Next", "Fine."]


def test_same_post_during_turn_subscribes_to_it(
    api: Api, server: RunningServer, holding: GatedStub
) -> None:
    session_id = api.create_session("mochi")["session_id"]
    other, received = server.api(), list[list[Event]]()
    body = {"message": "hold"}
    with api.http.stream("POST", f"/chat/{session_id}/stream", json=body, headers=KEY) as response:
        events = read_events(response)
        begun = [next(events) for _ in range(3)]
        again = threading.Thread(
            target=lambda: received.append(stream_with_key(other, session_id, "hold"))
        )
        again.start()
        holding.gate.open()
        whole = [*begun, *events]
    again.join(60)
    assert received == [whole]
    assert contents(api, session_id) == ["hold", "one two three four"]


def test_streamed_and_collected_turns_share_their_keys(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    first = stream_with_key(api, session_id, "Hi")
    complete = next(event for event in first if event.type == "message_complete")
    answers = [
        Api.ok(api.http.post(f"/chat/{session_id}", json={"message": "Hi"}, headers=KEY))["message"]
        for _ in range(2)
    ]
    assert [answer["message_id"] for answer in answers] == [complete.data["message_id"]] * 2
    assert contents(api, session_id) == ["Hi", text_of(first)]


def test_same_post_after_restart_gets_same_answer(holding: GatedStub, tmp_path: Path) -> None:
    with RunningServer(tmp_path, holding.stub.url) as server:
        session_id = server.api().create_session("mochi")["session_id"]
        first = stream_with_key(server.api(), session_id, "Hi")
    with RunningServer(tmp_path, holding.stub.url) as server:
        api = server.api()
        again = stream_with_key(api, session_id, "Hi")
        assert text_of(again) == text_of(first)
        assert [
            event.data["message_id"]
            for event in (*first, *again)
            if event.type == "message_complete"
        ] == [api.messages(session_id)[1]["message_id"]] * 2
        assert stream_with_key(api, session_id, "Hi") == again
        collected = Api.ok(
            api.http.post(f"/chat/{session_id}", json={"message": "Hi"}, headers=KEY)
        )
        assert collected["message"] == api.messages(session_id)[1]
        window = collected["context_window"]
        assert window["usage_tokens"] is not None
        assert (window["current_window"], window["reason"]) == (None, None)  # not stored
        for body in ({"message": "Ho"}, {}):
            other = api.http.post(f"/chat/{session_id}", json=body, headers=KEY)
            assert error_of(other) == (422, "IDEMPOTENCY_KEY_REUSED")
        assert contents(api, session_id) == ["Hi", "Fine."]


def reported_runs(receiver: Receiver) -> list[str]:
    """Return the IDs of the runs in the webhooks, each once."""
    return list(dict.fromkeys(webhook["data"]["run_id"] for webhook in receiver.wait(1)))


def test_repetition_after_restart_changes_nothing(stub: StubServer, tmp_path: Path) -> None:
    receiver = Receiver()
    settings = {**receiver.settings, "summarization_enabled": False}
    with RunningServer(tmp_path, stub.url, **settings) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        first = stream_with_key(server.client, session_id, "Hi")
        receiver.wait(1)
    run_id = first[0].id.partition(":")[0]
    path = f"/chat/{session_id}"
    with RunningServer(tmp_path, stub.url, **settings) as server:
        api = server.client
        session = api.ok(api.http.get(f"/sessions/{session_id}"))
        status = api.ok(api.http.get(f"{path}/run"))
        body = {"message": "Hi", "background": True}
        repeated = api.ok(api.http.post(path, json=body, headers=KEY), 202)
        assert repeated == status
        assert repeated["run_id"] == run_id
        again = stream_with_key(api, session_id, "Hi")
        assert {event.id.partition(":")[0] for event in again} == {run_id}
        assert api.ok(api.http.get(f"/sessions/{session_id}")) == session
        assert api.ok(api.http.get(f"{path}/run")) == status
        last_received = {"Last-Event-ID": first[0].id}
        with api.http.stream("GET", f"{path}/stream", headers=last_received) as response:
            resumed = list(read_events(response))
        assert types_of(resumed) == ["snapshot", "message_complete", "done"]
        next_run = stream_with_key(api, session_id, "Next", {})[0].id.partition(":")[0]
        # The webhooks of a session are sent in order. The first one may have been sent again, if the
        # first server stopped before it recorded the response.
        until(lambda: next_run in reported_runs(receiver))
        assert reported_runs(receiver) == [run_id, next_run]
    receiver.close()


def test_same_post_after_restart_gets_the_tool_calls(stub: StubServer, tmp_path: Path) -> None:
    write_tools(tmp_path, TOOL)
    text = instruct(calls("one"), words(2))
    call_types = ("tool_call", "tool_result")
    with RunningServer(tmp_path, stub.url) as server:
        tools = {"tool_settings": {"tools": ["one"], "execution_policy": "never_confirm"}}
        session_id = server.client.create_session("mochi", **tools)["session_id"]
        first = stream_with_key(server.client, session_id, text)
    with RunningServer(tmp_path, stub.url) as server:
        again = stream_with_key(server.client, session_id, text)
    assert types_of(again) == [
        *call_types,
        "tool_continuation_start",
        "content_delta",
        "message_complete",
        "done",
    ]
    first_calls = [event.data for event in first if event.type in call_types]
    assert [event.data for event in again if event.type in call_types] == first_calls


def test_same_regeneration_after_restart_gets_its_answer(tmp_path: Path) -> None:
    replies = iter([Reply.of("One."), Reply.of("Two."), Reply.of("Three.")])
    settings = {"summarization_enabled": False}
    with StubServer(speed=0, resolve=lambda _: next(replies)) as stub:
        with RunningServer(tmp_path, stub.url, **settings) as server:
            api = server.client
            session_id = api.create_session("mochi")["session_id"]
            path = f"/chat/{session_id}"
            api.send_message(session_id, "Hi")
            regenerated = api.ok(api.http.post(path, json={}, headers=KEY))["message"]
            run_id = api.ok(api.http.get(f"{path}/run"))["run_id"]
        with RunningServer(tmp_path, stub.url, **settings) as server:
            api = server.client
            assert api.ok(api.http.post(path, json={}, headers=KEY))["message"] == regenerated
            assert api.ok(api.http.get(f"{path}/run"))["run_id"] == run_id
            assert contents(api, session_id) == ["Hi", "Two."]
            api.ok(api.http.post(path, json={}, headers={"Idempotency-Key": "5f2c-2"}))
            assert contents(api, session_id) == ["Hi", "Three."]


def test_same_regeneration_without_the_system_prompt_gets_its_answer(tmp_path: Path) -> None:
    replies = iter([Reply.of("One."), Reply.of("Two."), Reply.of("Three.")])
    settings = {"summarization_enabled": False}
    with StubServer(speed=0, resolve=lambda _: next(replies)) as stub:
        with RunningServer(tmp_path, stub.url, **settings) as server:
            api = server.client
            session_id = api.create_session("mochi", system_prompt="Be brief.")["session_id"]
            path = f"/chat/{session_id}"
            api.send_message(session_id, "Hi")
            regenerated = api.ok(api.http.post(path, json={}, headers=KEY))["message"]
            assert api.http.delete(f"/sessions/{session_id}/system-prompt").status_code == 204
        with RunningServer(tmp_path, stub.url, **settings) as server:
            api = server.client
            assert api.ok(api.http.post(path, json={}, headers=KEY))["message"] == regenerated
            assert contents(api, session_id) == ["Hi", "Two."]


def test_interrupted_answer_is_regenerated_after_restart(
    holding: GatedStub, tmp_path: Path
) -> None:
    with RunningServer(tmp_path, holding.stub.url) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        with api.http.stream(
            "POST", f"/chat/{session_id}/stream", json={"message": "hold"}, headers=KEY
        ) as response:
            next(read_events(response))
        until(lambda: len(api.messages(session_id)) == 2)
        assert api.messages(session_id)[1]["interrupted"]
    holding.gate.open()
    with RunningServer(tmp_path, holding.stub.url) as server:
        api = server.api()
        other = api.http.post(f"/chat/{session_id}", json={"message": "Hi"}, headers=KEY)
        assert error_of(other) == (422, "IDEMPOTENCY_KEY_REUSED")
        assert text_of(stream_with_key(api, session_id, "hold")) == "one two three four"
        assert contents(api, session_id) == ["hold", "one two three four"]


@cases("first", ["content_delta", None])
def test_stopped_turn_stays_stopped_after_restart(
    holding: GatedStub, tmp_path: Path, first: str | None
) -> None:
    """The stop comes after the event ``first``, or before the answer."""
    body = {"message": "hold", "background": True}
    data_dir = tmp_path / str(first)
    data_dir.mkdir()
    with RunningServer(data_dir, holding.stub.url) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        path = f"/chat/{session_id}"
        run = api.ok(api.http.post(path, json=body, headers=KEY), 202)
        if first is not None:
            with api.http.stream("GET", f"{path}/stream") as response:
                next(event for event in read_events(response) if event.type == first)
        api.ok(api.http.post(f"{path}/stop"))
        stored = api.messages(session_id)
        before = api.ok(api.http.post(path, json={"message": "hold"}, headers=KEY))
    with RunningServer(data_dir, holding.stub.url) as server:
        api = server.api()
        again = api.ok(api.http.post(path, json=body, headers=KEY), 202)
        assert (again["run_id"], again["state"]) == (run["run_id"], "stopped")
        after = api.ok(api.http.post(path, json={"message": "hold"}, headers=KEY))
        assert after["message"] == before["message"]
        streamed = stream_with_key(api, session_id, "hold")
        assert types_of(streamed)[-2:] == ["stopped", "done"]
        assert api.messages(session_id) == stored
        other = api.http.post(path, json={"message": "Hi"}, headers=KEY)
        assert error_of(other) == (422, "IDEMPOTENCY_KEY_REUSED")


def test_stopped_turn_has_its_tool_calls_after_restart(tmp_path: Path) -> None:
    gate = Gate()
    replies = iter([Reply([ToolCalls([ToolCall("one")])]), Reply([Text("It is "), gate])])
    write_tools(tmp_path, TOOL)
    with StubServer(speed=0, resolve=lambda _: next(replies)) as stub:
        with RunningServer(tmp_path, stub.url) as server:
            api = server.api()
            session_id = api.create_session("mochi", **TOOL_SETTINGS)["session_id"]
            path, body = f"/chat/{session_id}", {"message": "Hi"}
            api.ok(api.http.post(path, json={**body, "background": True}, headers=KEY), 202)
            with api.http.stream("GET", f"{path}/stream") as response:
                next(event for event in read_events(response) if "It is" in str(event.data))
            api.ok(api.http.post(f"{path}/stop"))
            before = api.ok(api.http.post(path, json=body, headers=KEY))
        gate.open()
        with RunningServer(tmp_path, stub.url) as server:
            api = server.api()
            after = api.ok(api.http.post(path, json=body, headers=KEY))
            streamed = stream_with_key(api, session_id, "Hi")
    assert [call["tool_name"] for call in before["tool_calls_executed"]] == ["one"]
    for name in ("tool_calls_executed", "message", "state"):
        assert after[name] == before[name]
    assert types_of(streamed) == [
        "tool_call",
        "tool_result",
        "tool_continuation_start",
        "content_delta",
        "stopped",
        "done",
    ]


def test_fork_has_no_idempotency_keys(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    stream_with_key(api, session_id, "Hi")
    fork = Api.ok(api.http.post(f"/sessions/{session_id}/fork", json={}), 201)["session_id"]
    stream_with_key(api, fork, "Hi")
    assert contents(api, fork) == ["Hi", "Fine."] * 2


def test_same_post_after_disconnect_gets_the_rest(
    api: Api, server: RunningServer, holding: GatedStub
) -> None:
    session_id = api.create_session("mochi")["session_id"]
    body = {"message": "hold", "on_disconnect": "continue"}
    with api.http.stream("POST", f"/chat/{session_id}/stream", json=body, headers=KEY) as response:
        next(read_events(response))
    holding.gate.open()
    assert text_of(stream_with_key(server.api(), session_id, "hold")) == "one two three four"
    assert contents(api, session_id) == ["hold", "one two three four"]


def test_concurrent_same_posts_are_one_turn(api: Api, server: RunningServer) -> None:
    session_id = api.create_session("mochi")["session_id"]
    received: list[list[Event]] = []
    clients = [server.api() for _ in range(6)]

    def stream(client: Api) -> None:
        received.append(stream_with_key(client, session_id, "Hi"))

    threads = [threading.Thread(target=stream, args=[client]) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert received == [received[0]] * 6
    assert contents(api, session_id) == ["Hi", "Fine."]


def test_idempotency_key_belongs_to_its_session(api: Api) -> None:
    sessions = [api.create_session("mochi")["session_id"] for _ in range(2)]
    runs = {
        stream_with_key(api, session_id, "Hi")[0].id.partition(":")[0] for session_id in sessions
    }
    assert len(runs) == 2
    assert [contents(api, session_id) for session_id in sessions] == [["Hi", "Fine."]] * 2


def test_key_with_another_message_is_refused(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    run_id = stream_with_key(api, session_id, "Hi")[0].id.partition(":")[0]
    for body in ({"message": "Bye"}, {}):
        response = api.http.post(f"/chat/{session_id}/stream", json=body, headers=KEY)
        assert error_of(response) == (422, "IDEMPOTENCY_KEY_REUSED")
        assert response.json()["error"]["details"]["run_id"] == run_id
    assert contents(api, session_id) == ["Hi", "Fine."]


def test_refused_post_does_not_use_its_key(api: Api, holding: GatedStub) -> None:
    session_id = api.create_session("mochi")["session_id"]
    with api.open_stream(session_id, "hold") as events:
        next(events)
        busy = api.http.post(f"/chat/{session_id}/stream", json={"message": "Hi"}, headers=KEY)
        assert error_of(busy) == (409, "SESSION_BUSY")
        holding.gate.open()
        list(events)
    assert text_of(stream_with_key(api, session_id, "Hi")) == "Fine."


def test_deleting_session_deletes_its_keys(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    stream_with_key(api, session_id, "Hi")
    assert api.http.delete(f"/sessions/{session_id}").status_code == 204
    again = api.http.post(f"/chat/{session_id}/stream", json={"message": "Hi"}, headers=KEY)
    assert error_of(again) == (404, "SESSION_NOT_FOUND")


@cases("key", ["", "two words", "x" * 256, "\u00e4"])
def test_malformed_key_is_refused(api: Api, key: str) -> None:
    headers = httpx.Headers({b"idempotency-key": key.encode("latin-1")})
    response = api.http.post("/chat/0123456789", json={"message": "Hi"}, headers=headers)
    assert error_of(response) == (422, "VALIDATION_ERROR")


def test_failed_turn_is_tried_again_with_the_same_key(tmp_path: Path) -> None:
    replies = [Reply([Text(["one "]), Cut()]), Reply.of("Fine.")]
    with (
        StubServer(speed=0, resolve=lambda _: replies.pop(0)) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        api = server.client
        session_id = api.create_session("mochi")["session_id"]
        failed = stream_with_key(api, session_id, "Hi")
        assert [event.type for event in failed][-2:] == ["error", "done"]
        assert text_of(stream_with_key(api, session_id, "Hi")) == "Fine."
        assert contents(api, session_id) == ["Hi", "Fine."]


@pytest.mark.parametrize("partial", ["", "Well, "])
def test_continued_turn_begins_with_its_first_part(tmp_path: Path, partial: str) -> None:
    write_tools(tmp_path, TOOL)
    called = Reply([Text(["Let me see. "]), ToolCalls([ToolCall("one"), ToolCall("one")])])
    replies = [called, Reply([Text(partial), Cut()]), Reply.of("Fine.")]
    with (
        StubServer(speed=0, resolve=lambda _: replies.pop(0)) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        api = server.client
        session_id = api.create_session("mochi", **TOOL_SETTINGS)["session_id"]
        failed = stream_with_key(api, session_id, "Hi")
        assert [event.type for event in failed][-2:] == ["error", "done"]
        interrupted = api.messages(session_id)
        continued = stream_with_key(api, session_id, "Hi")
        first_part = next(n for n, e in enumerate(failed) if e.type == "tool_continuation_start")
        assert [(event.type, event.data) for event in continued[: first_part + 1]] == [
            (event.type, event.data) for event in failed[: first_part + 1]
        ]
        assert text_of(continued) == "Let me see. Fine."
        answer = api.ok(api.http.post(f"/chat/{session_id}", json={"message": "Hi"}, headers=KEY))
        assert [call["call_index"] for call in answer["tool_calls_executed"]] == [0, 1]
        session = api.session(session_id)
        assert session["messages"][:4] == interrupted[:4]
        assert [message["content"] for message in session["messages"][4:]] == ["Fine."]
        last_id = session["messages"][4]["message_id"]
        assert list(session["versions"]) == ([last_id] if partial else [])


@pytest.mark.parametrize("partial", ["", "Well, "])
def test_turn_that_is_interrupted_twice_continues_with_all_its_calls(
    tmp_path: Path, partial: str
) -> None:
    write_tools(tmp_path, TOOL)
    called = Reply([ToolCalls([ToolCall("one")])])
    cut = Reply([Text(partial), Cut()])
    replies = [called, cut, called, Reply([Cut()]), Reply.of("Fine.")]
    with StubServer(speed=0, resolve=lambda _: replies.pop(0)) as stub:
        with RunningServer(tmp_path, stub.url, summarization_enabled=False) as server:
            session_id = server.client.create_session("mochi", **TOOL_SETTINGS)["session_id"]
            stream_with_key(server.client, session_id, "Hi")
            second = stream_with_key(server.client, session_id, "Hi")
            assert [event.type for event in second].count("tool_result") == 2
            metrics = server.client.http.get("/metrics").text
            assert 'mochi_tool_calls_total{outcome="succeeded",tool="one"} 2.0' in metrics
        with RunningServer(tmp_path, stub.url, summarization_enabled=False) as server:
            api = server.client
            path = f"/chat/{session_id}"
            answer = api.ok(api.http.post(path, json={"message": "Hi"}, headers=KEY))
            calls_executed = answer["tool_calls_executed"]
            assert [call["call_index"] for call in calls_executed] == [0, 1]
            assert contents(api, session_id) == ["Hi", "", "1", "", "1", "Fine."]


def test_continued_background_turn_replaces_its_partial_answer_after_a_restart(
    tmp_path: Path,
) -> None:
    write_tools(tmp_path, TOOL)
    called = Reply([ToolCalls([ToolCall("one")])])
    replies = [called, Reply([Text("Well, "), Cut()]), Reply([Gate()]), Reply.of("Fine.")]
    settings = {"summarization_enabled": False, "shutdown_grace_seconds": 0}
    with StubServer(speed=0, resolve=lambda _: replies.pop(0)) as stub:
        with RunningServer(tmp_path, stub.url, **settings) as server:
            api = server.client
            session_id = api.create_session("mochi", **TOOL_SETTINGS)["session_id"]
            stream_with_key(api, session_id, "Hi")
            body = {"message": "Hi", "background": True}
            api.ok(api.http.post(f"/chat/{session_id}", json=body, headers=KEY), 202)
            until(lambda: len(replies) == 1)
            assert contents(api, session_id) == ["Hi", "", "1", "Well, "]
        with RunningServer(tmp_path, stub.url, **settings) as server:
            api = server.client
            until(lambda: contents(api, session_id) == ["Hi", "", "1", "Fine."])
            session = api.session(session_id)
            assert list(session["versions"]) == [session["messages"][-1]["message_id"]]
