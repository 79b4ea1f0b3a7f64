"""Resumed streams: from the beginning, after an event, and after events were dropped."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mochi_server.chat import run as run_module
from mochi_server.web import sse
from mochi_stub import Model, StubServer
from mochi_stub.reply import Reply
from tests.support.api import Api, Event, error_of, read_events, text_of, types_of
from tests.support.cases import cases
from tests.support.holding import GatedStub
from tests.support.server import RunningServer
from tests.support.waiting import until


@pytest.fixture
def server(holding: GatedStub, holding_server: RunningServer) -> RunningServer:
    return holding_server


@pytest.fixture
def api(server: RunningServer) -> Api:
    return server.client


@contextmanager
def open_subscription(api: Api, session_id: str, after: str | None = None, **headers: str) -> Iterator[Iterator[Event]]:
    params = {} if after is None else {"after": after}
    with api.http.stream("GET", f"/chat/{session_id}/stream", params=params, headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield read_events(response)


def read_subscription(api: Api, session_id: str, after: str | None = None, **headers: str) -> list[Event]:
    with open_subscription(api, session_id, after, **headers) as events:
        return list(events)


def test_new_subscriber_gets_all_events(api: Api, server: RunningServer, holding: GatedStub) -> None:
    session_id = api.create_session("mochi")["session_id"]
    with api.open_stream(session_id, "hold") as first, open_subscription(server.api(), session_id) as second:
        begun = [next(first) for _ in range(3)]
        assert [next(second) for _ in range(3)] == begun
        holding.gate.open()
        assert list(first) == list(second)


def test_event_source_resumes_after_last_event_id(api: Api, server: RunningServer, holding: GatedStub) -> None:
    session_id = api.create_session("mochi")["session_id"]
    with api.open_stream(session_id, "hold", on_disconnect="continue") as events:
        last = [next(events) for _ in range(2)][-1]
    with open_subscription(server.api(), session_id, **{"Last-Event-ID": last.id}) as events:
        assert next(events).data["content"] == "three "
        holding.gate.open()
        rest = list(events)
    assert types_of(rest) == ["content_delta", "message_complete", "done"]


def test_after_takes_an_id_or_a_number(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    events = api.stream_message(session_id, "Hi")
    run_id = events[0].id.partition(":")[0]
    assert read_subscription(api, session_id) == events
    assert read_subscription(api, session_id, "0") == events
    assert read_subscription(api, session_id, "1") == events[1:]
    assert read_subscription(api, session_id, f"{run_id}:1") == events[1:]


@cases("position", ["nonsense", "-1", "5f5d36ccef:", "5f5d36ccef:2:3", "x:2"])
def test_invalid_position_is_422_in_header_and_query(api: Api, position: str) -> None:
    session_id = api.create_session("mochi")["session_id"]
    path = f"/chat/{session_id}/stream"
    for response in (
        api.http.get(path, headers={"Last-Event-ID": position}),
        api.http.get(path, params={"after": position}),
    ):
        assert error_of(response) == (422, "VALIDATION_ERROR")
        assert "must be the ID or the number of an event" in response.json()["error"]["message"]


def test_last_event_id_overrides_after_parameter(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    events = api.stream_message(session_id, "Hi")
    assert read_subscription(api, session_id, "1", **{"Last-Event-ID": events[1].id}) == events[2:]
    path, header = f"/chat/{session_id}/stream", {"Last-Event-ID": events[-1].id}
    assert api.http.get(path, params={"after": "1"}, headers=header).status_code == 204


def test_no_further_events_is_204(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    path = f"/chat/{session_id}/stream"
    assert api.http.get(path).status_code == 204
    last = api.stream_message(session_id, "Hi")[-1]
    ended = api.http.get(path, headers={"Last-Event-ID": last.id})
    assert (ended.status_code, ended.content) == (204, b"")
    assert api.http.get(path, params={"after": "99"}).status_code == 204


def test_position_beyond_end_gets_later_events(api: Api, server: RunningServer, holding: GatedStub) -> None:
    session_id = api.create_session("mochi")["session_id"]
    with api.open_stream(session_id, "hold") as first:
        next(first)
        with open_subscription(server.api(), session_id, "999999") as second:
            holding.gate.open()
            assert types_of(second)[-1] == "done"


@cases("after", ["", "x", "-1", "1.5", "1:2:3", "9" * 30, "../1", "\u0661"])
def test_malformed_position_is_refused(api: Api, after: str) -> None:
    session_id = api.create_session("mochi")["session_id"]
    response = api.http.get(f"/chat/{session_id}/stream", params={"after": after})
    assert error_of(response) == (422, "VALIDATION_ERROR")


def test_subscribing_to_unknown_session_is_404(api: Api) -> None:
    assert error_of(api.http.get("/chat/0123456789/stream")) == (404, "SESSION_NOT_FOUND")
    session_id = api.create_session("mochi")["session_id"]
    api.stream_message(session_id, "Hi")
    api.http.delete(f"/sessions/{session_id}")
    assert error_of(api.http.get(f"/chat/{session_id}/stream")) == (404, "SESSION_NOT_FOUND")


def test_rest_of_older_run_can_be_read(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    first, second = api.stream_message(session_id, "Hi"), api.stream_message(session_id, "Again")
    assert read_subscription(api, session_id, first[0].id) == first[1:]
    assert read_subscription(api, session_id, "ffffffffff:1") == second


def test_second_subscriber_keeps_turn_running(api: Api, server: RunningServer, holding: GatedStub) -> None:
    session_id = api.create_session("mochi")["session_id"]
    with server.api() as leaving, leaving.open_stream(session_id, "hold") as first:
        next(first)
        with open_subscription(api, session_id) as second:
            next(second)
            leaving.http.close()
            holding.gate.open()
            assert list(second)[-2].type == "message_complete"


def test_turn_can_be_resumed_within_disconnect_grace(tmp_path: Path, holding: GatedStub) -> None:
    with RunningServer(tmp_path, holding.stub.url, disconnect_grace_seconds=30) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "hold") as events:
            last = next(events)
        assert api.ok(api.http.get(f"/chat/{session_id}/run"))["state"] == "running"
        holding.gate.open()
        assert read_subscription(server.api(), session_id, last.id)[-2].type == "message_complete"


@pytest.mark.one_process("inspects the server process")
def test_dropped_events_are_replaced_by_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "MAX_BYTES", 20_000)
    pieces = [f"w{number} " for number in range(500)]
    with (
        StubServer(speed=0, resolve=lambda _: Reply.of(pieces, reasoning=["Let me ", "think. "])) as ollama,
        RunningServer(tmp_path, ollama.url) as server,
    ):
        api = server.api()
        session_id = api.create_session("mochi", think=True)["session_id"]
        answer = api.send_message(session_id, "Hi")["message"]
        events = read_subscription(api, session_id)
        assert read_subscription(api, session_id, events[0].id) == events[1:]
    snapshot, *rest = events
    assert snapshot.type == "snapshot"
    assert snapshot.data["thinking"] == answer["thinking"] == "Let me think. "
    assert snapshot.data["content"] + text_of(rest) == answer["content"] == "".join(pieces)
    numbers = [int(event.id.partition(":")[2]) for event in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(events)))
    assert types_of(rest[-2:]) == ["message_complete", "done"]


@pytest.mark.slow
@pytest.mark.one_process("inspects the server process")
def test_slow_subscriber_blocks_no_other_and_misses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "MAX_BYTES", 100_000)
    pieces = ["0123456789 " * 1_000] * 1_500  # more than the buffers of the sockets hold
    model = Model("mochi", chars_per_token=10_000)
    with (
        StubServer(speed=0, models=[model], resolve=lambda _: Reply.of(pieces)) as ollama,
        RunningServer(tmp_path, ollama.url, summarization_enabled=False) as server,
    ):
        api, other = server.api(), server.api()
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "Hi") as slow:
            seen = [next(slow)]
            assert other.send_message(other.create_session("mochi")["session_id"], "Hi")["message"][
                "content"
            ] == "".join(pieces)
            until(lambda: other.ok(other.http.get(f"/chat/{session_id}/run"))["state"] == "completed")
            seen.extend(slow)
    latest = max(index for index, event in enumerate(seen) if event.type == "snapshot")
    assert seen[latest].data["content"] + text_of(seen[latest:]) == "".join(pieces)
    assert types_of(seen[-2:]) == ["message_complete", "done"]


@pytest.mark.one_process("inspects the server process")
def test_waiting_stream_is_kept_open_by_pings(api: Api, holding: GatedStub, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sse.PING_SECONDS <= 10
    monkeypatch.setattr(sse, "PING_SECONDS", 0.05)
    session_id = api.create_session("mochi")["session_id"]
    with api.http.stream("POST", f"/chat/{session_id}/stream", json={"message": "hold"}) as response:
        data = response.iter_raw()
        seen = b""
        while seen.count(b": ping\n\n") < 3:
            seen += next(data)
        holding.gate.open()
        seen += b"".join(data)
    assert seen.endswith(b"\n\n")
    assert b"event: done\n" in seen


@pytest.mark.one_process("inspects the server process")
@pytest.mark.parametrize("ends", ["answered", "stopped", "deleted"])
def test_request_waiting_for_turn_is_kept_open(
    api: Api, server: RunningServer, holding: GatedStub, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    monkeypatch.setattr(sse, "PING_SECONDS", 0.05)
    session_id = api.create_session("mochi")["session_id"]
    other = server.api()
    with api.open_stream(session_id, "hold") as events:
        next(events)
        # The deletion does not wait for the session, so the second turn must not be able to end before it.
        message = {"message": "hold" if ends == "deleted" else "Next", "if_busy": "wait"}
        with other.http.stream("POST", f"/chat/{session_id}/stream", json=message) as response:
            data = response.iter_raw()
            seen = b""
            while seen.count(b": ping\n\n") < 3:
                seen += next(data)
            match ends:
                case "answered":
                    holding.gate.open()
                case "stopped":
                    api.ok(api.http.post(f"/chat/{session_id}/stop"))
                case "deleted":
                    api.http.delete(f"/sessions/{session_id}").raise_for_status()
            seen += b"".join(data)
    event_names = re.findall(rb"^event: (\w+)$", seen, re.MULTILINE)
    if ends == "deleted":  # it may have started for a moment
        assert event_names[-1] == b"done"
        assert b"message_complete" not in event_names
    else:
        assert event_names == [b"content_delta", b"message_complete", b"done"]
    ids = re.findall(rb"^id: [0-9a-f]{10}:(\d+)$", seen, re.MULTILINE)
    assert [int(number) for number in ids] == [*range(1, len(event_names) + 1)]


@pytest.mark.one_process("inspects the server process")
def test_disconnect_while_waiting_discards_message(
    api: Api, server: RunningServer, holding: GatedStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "PING_SECONDS", 0.05)
    session_id = api.create_session("mochi")["session_id"]
    with api.open_stream(session_id, "hold") as events:
        next(events)
        message = {"message": "Next", "if_busy": "wait"}
        with server.api().http.stream("POST", f"/chat/{session_id}/stream", json=message) as response:
            next(response.iter_raw())
        holding.gate.open()
        list(events)
    api.send_message(session_id, "Last", if_busy="wait")
    assert [m["content"] for m in api.messages(session_id)] == ["hold", "one two three four", "Last", "Fine."]
