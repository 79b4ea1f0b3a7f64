"""Resumed streams: from the beginning, after an event, and after events were dropped."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.api import Api, Event, error_of, read_events, types_of
from tests.support.cases import cases
from tests.support.holding import GatedStub
from tests.support.server import RunningServer

pytestmark = pytest.mark.two_servers


@pytest.fixture
def server(holding: GatedStub, holding_server: RunningServer) -> RunningServer:
    return holding_server


@pytest.fixture
def api(server: RunningServer) -> Api:
    return server.client


@contextmanager
def open_subscription(
    api: Api, session_id: str, after: str | None = None, **headers: str
) -> Iterator[Iterator[Event]]:
    params = {} if after is None else {"after": after}
    with api.http.stream(
        "GET", f"/chat/{session_id}/stream", params=params, headers=headers
    ) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield read_events(response)


def read_subscription(
    api: Api, session_id: str, after: str | None = None, **headers: str
) -> list[Event]:
    with open_subscription(api, session_id, after, **headers) as events:
        return list(events)


def test_new_subscriber_gets_all_events(
    api: Api, server: RunningServer, holding: GatedStub
) -> None:
    session_id = api.create_session("mochi")["session_id"]
    with (
        api.open_stream(session_id, "hold") as first,
        open_subscription(server.api(), session_id) as second,
    ):
        begun = [next(first) for _ in range(3)]
        assert [next(second) for _ in range(3)] == begun
        holding.gate.open()
        assert list(first) == list(second)


def test_event_source_resumes_after_last_event_id(
    api: Api, server: RunningServer, holding: GatedStub
) -> None:
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


def test_position_beyond_end_gets_later_events(
    api: Api, server: RunningServer, holding: GatedStub
) -> None:
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


def test_second_subscriber_keeps_turn_running(
    api: Api, server: RunningServer, holding: GatedStub
) -> None:
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
