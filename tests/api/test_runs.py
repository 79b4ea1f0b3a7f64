"""Runs: disconnects, stops, conflicts, waiting and shutdown."""

import threading
from pathlib import Path

import httpx
import pytest

from tests.faults.raw_client import RawClient
from tests.support.api import Api, error_of, read_events, text_of, types_of
from tests.support.holding import GatedStub
from tests.support.server import RunningServer

pytestmark = pytest.mark.two_servers


@pytest.fixture
def server(holding: GatedStub, holding_server: RunningServer) -> RunningServer:
    return holding_server


@pytest.fixture
def api(server: RunningServer) -> Api:
    return server.client


def test_disconnect_stops_model_and_stores_partial_answer(api: Api, holding: GatedStub) -> None:
    session_id = api.create_session("mochi")["session_id"]

    with api.open_stream(session_id, "hold") as events:
        assert [next(events).data["content"] for _ in range(3)] == ["one ", "two ", "three "]

    assert len(holding.chats("cancelled", within=2)) == 1
    assert api.send_message(session_id, "Go on", if_busy="wait")["message"]["content"] == "Fine."
    partial = api.messages(session_id)[1]
    assert (partial["content"], partial["interrupted"]) == ("one two three ", True)


@pytest.mark.parametrize("if_busy", ["reject", "wait"])
def test_stream_that_cannot_start_has_an_error_status(api: Api, if_busy: str) -> None:
    response = api.http.post("/chat/0123456789/stream", json={"message": "Hi", "if_busy": if_busy})
    assert error_of(response) == (404, "SESSION_NOT_FOUND")


def test_disconnect_from_collected_turn_stops_model(api: Api, holding: GatedStub) -> None:
    session_id = api.create_session("mochi")["session_id"]

    url = api.http.base_url
    with RawClient((url.host, url.port or 0)) as client:
        client.send_request(f"/chat/{session_id}", {"message": "hold"})
        holding.stub.wait_for(lambda exchanges: any(e.path == "/api/chat" for e in exchanges))
        with api.http.stream("GET", f"/chat/{session_id}/stream") as response:
            events = read_events(response)
            assert [next(events).data["content"] for _ in range(3)] == ["one ", "two ", "three "]

    assert len(holding.chats("cancelled")) == 1
    api.send_message(session_id, "Go on", if_busy="wait")
    assert api.messages(session_id)[1]["content"] == "one two three "


def test_turn_with_on_disconnect_continue_completes(api: Api, holding: GatedStub) -> None:
    session_id = api.create_session("mochi")["session_id"]

    with api.open_stream(session_id, "hold", on_disconnect="continue") as events:
        next(events)
    assert api.ok(api.http.get(f"/chat/{session_id}/run"))["state"] == "running"
    holding.gate.open()

    api.send_message(session_id, "Go on", if_busy="wait")
    answer = api.messages(session_id)[1]
    assert answer["content"] == "one two three four"
    assert "interrupted" not in answer


def test_stop_stores_partial_answer(api: Api, holding: GatedStub) -> None:
    session_id = api.create_session("mochi")["session_id"]

    with api.open_stream(session_id, "hold") as events:
        seen = [next(events) for _ in range(3)]
        stopped = api.ok(api.http.post(f"/chat/{session_id}/stop"))
        seen.extend(events)

    assert stopped["state"] == "stopped"
    assert types_of(seen) == ["content_delta"] * 3 + ["stopped", "done"]
    assert len(holding.chats("cancelled")) == 1
    partial = api.messages(session_id)[-1]
    assert seen[-2].data == {"message_id": partial["message_id"]}
    assert (partial["content"], partial["interrupted"]) == ("one two three ", True)
    assert api.ok(api.http.get(f"/chat/{session_id}/run"))["state"] == "stopped"


def test_stopped_collected_turn_returns_partial_answer(
    api: Api, server: RunningServer, holding: GatedStub
) -> None:
    session_id = api.create_session("mochi")["session_id"]
    answers: list[dict[str, object]] = []
    asking = threading.Thread(target=lambda: answers.append(api.send_message(session_id, "hold")))
    asking.start()
    holding.stub.wait_for(lambda all_: any(e.path == "/api/chat" and e.chunks >= 3 for e in all_))
    other = server.api()
    with other.http.stream("GET", f"/chat/{session_id}/stream") as subscription:
        next(event for event in read_events(subscription) if event.type == "content_delta")

    api.ok(other.http.post(f"/chat/{session_id}/stop"))
    asking.join(60)

    message = answers[0]["message"]
    assert isinstance(message, dict)
    assert message["interrupted"] is True
    assert answers[0]["state"] == "stopped"
    window = {"current_window": 8192, "usage_tokens": None, "reason": "initial_setup"}
    assert answers[0]["context_window"] == window


def test_stop_without_running_turn_succeeds(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    idle = {"run_id": None, "state": "idle", "answer_id": None}
    assert api.ok(api.http.post(f"/chat/{session_id}/stop")) == idle
    assert api.ok(api.http.get(f"/chat/{session_id}/run")) == idle


def test_second_turn_on_busy_session_is_refused(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]

    with api.open_stream(session_id, "hold") as events:
        run_id = next(events).id.partition(":")[0]
        for path in (f"/chat/{session_id}", f"/chat/{session_id}/stream"):
            response = api.http.post(path, json={"message": "Me too"})
            assert error_of(response) == (409, "SESSION_BUSY")
            assert response.json()["error"]["details"]["run_id"] == run_id


def test_turn_waits_for_the_previous_one(
    api: Api, server: RunningServer, holding: GatedStub
) -> None:
    session_id = api.create_session("mochi")["session_id"]
    other = server.api()
    answers: list[dict[str, object]] = []

    with api.open_stream(session_id, "hold") as events:
        next(events)
        waiting = threading.Thread(
            target=lambda: answers.append(other.send_message(session_id, "Next", if_busy="wait"))
        )
        waiting.start()
        holding.gate.open()
        list(events)
    waiting.join(60)

    assert len(answers) == 1
    assert [m["content"] for m in api.messages(session_id)] == [
        "hold",
        "one two three four",
        "Next",
        "Fine.",
    ]


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.nightly)])
def test_session_is_unlocked_once_done_is_read(
    api: Api, server: RunningServer, rounds: int
) -> None:
    session_id = api.create_session("mochi")["session_id"]
    other = server.api()
    for _ in range(rounds):
        with api.open_stream(session_id, "Hi") as events:
            for event in events:
                if event.type == "done":
                    assert (
                        other.http.post(
                            f"/chat/{session_id}", json={"message": "At once"}
                        ).status_code
                        == 200
                    )


def test_timeout_while_waiting_discards_message(
    api: Api, server: RunningServer, holding: GatedStub
) -> None:
    session_id = api.create_session("mochi")["session_id"]
    other = server.api()
    with api.open_stream(session_id, "hold") as events:
        next(events)
        for path in (f"/chat/{session_id}", f"/chat/{session_id}/stream"):
            with pytest.raises(httpx.ReadTimeout):
                other.http.post(path, json={"message": "Never", "if_busy": "wait"}, timeout=0.2)
        holding.gate.open()
        list(events)
    api.send_message(session_id, "Next", if_busy="wait")
    assert [m["content"] for m in api.messages(session_id) if m["role"] == "user"] == [
        "hold",
        "Next",
    ]


def test_history_cannot_be_edited_during_a_turn(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    with api.open_stream(session_id, "hold") as events:
        next(events)
        edits = [
            api.http.put(f"/sessions/{session_id}/messages/0", json={"content": "x"}),
            api.http.put(f"/sessions/{session_id}/system-prompt", json={"content": "x"}),
            api.http.delete(f"/sessions/{session_id}/system-prompt"),
        ]
    assert [error_of(response) for response in edits] == [(409, "SESSION_BUSY")] * 3


def test_patch_during_a_turn_is_stored(tmp_path: Path, holding: GatedStub) -> None:
    with RunningServer(tmp_path, holding.stub.url) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "hold") as events:
            next(events)
            patch = {"title": "Kept", "context_window": {"current_window": 4096}}
            api.ok(api.http.patch(f"/sessions/{session_id}", json=patch))
            holding.gate.open()
            rest = list(events)
        session = api.session(session_id)
    assert rest[-1].type == "done"
    assert session["title"] == "Kept"
    assert session["context_window_config"]["current_window"] == 4096
    assert session["messages"][-1]["content"] == "one two three four"


def test_deleting_a_session_stops_its_turn(api: Api, holding: GatedStub) -> None:
    session_id = api.create_session("mochi")["session_id"]
    with api.open_stream(session_id, "hold") as events:
        assert [next(events).type for _ in range(3)] == ["content_delta"] * 3
        assert api.http.delete(f"/sessions/{session_id}").status_code == 204
        assert types_of(events) == ["stopped", "done"]
    assert len(holding.chats("cancelled")) == 1
    assert error_of(api.http.get(f"/sessions/{session_id}")) == (404, "SESSION_NOT_FOUND")


def test_shutdown_stores_partial_answer_and_sends_error(tmp_path: Path, holding: GatedStub) -> None:
    with RunningServer(tmp_path, holding.stub.url, shutdown_grace_seconds=0) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "hold") as events:
            seen = [next(events) for _ in range(3)]
            leaving = threading.Thread(target=server.stop)
            leaving.start()
            seen.extend(events)
        leaving.join(60)
        assert types_of(seen[-2:]) == ["error", "done"]
        assert seen[-2].data["code"] == "SHUTTING_DOWN"
        assert "ended this answer before it was complete" in seen[-2].data["message"]
    assert text_of(seen) == "one two three "
    with RunningServer(tmp_path, holding.stub.url) as server:
        partial = server.api().messages(session_id)[-1]
    assert (partial["content"], partial["interrupted"]) == ("one two three ", True)
