"""Resumed streams inside the server: dropped events, slow subscribers and pings."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mochi_server.chat.limits import RunLimits
from mochi_server.constants import PING_SECONDS
from mochi_server.container import Components
from mochi_stub import Model, StubServer
from mochi_stub.reply import Reply
from tests.api.test_resume import read_subscription
from tests.support.api import Api, text_of, types_of
from tests.support.holding import GatedStub
from tests.support.server import RunningServer
from tests.support.waiting import until


@pytest.fixture(scope="module")
def pinging(
    shared_holding: GatedStub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server for the module that sends pings often."""
    data_dir, components = tmp_path_factory.mktemp("pinging"), Components(ping_seconds=0.05)
    with RunningServer(
        data_dir, shared_holding.stub.url, components, summarization_enabled=False
    ) as server:
        yield server


@pytest.fixture
def server(holding: GatedStub, pinging: RunningServer) -> RunningServer:
    """The server `pinging`, in front of `holding`."""
    return pinging


@pytest.fixture
def api(server: RunningServer) -> Api:
    return server.client


def with_log_of(max_bytes: int) -> Components:
    """Return the default components with another size of the event log of a run."""
    return Components(runs=RunLimits(log_bytes=max_bytes))


def test_dropped_events_are_replaced_by_snapshot(tmp_path: Path) -> None:
    pieces = [f"w{number} " for number in range(500)]
    with (
        StubServer(
            speed=0, resolve=lambda _: Reply.of(pieces, reasoning=["Let me ", "think. "])
        ) as ollama,
        RunningServer(tmp_path, ollama.url, with_log_of(20_000)) as server,
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
def test_slow_subscriber_blocks_no_other_and_misses_nothing(tmp_path: Path) -> None:
    pieces = ["0123456789 " * 1_000] * 1_500  # more than the buffers of the sockets hold
    model = Model("mochi", chars_per_token=10_000)
    with (
        StubServer(speed=0, models=[model], resolve=lambda _: Reply.of(pieces)) as ollama,
        RunningServer(
            tmp_path, ollama.url, with_log_of(100_000), summarization_enabled=False
        ) as server,
    ):
        api, other = server.api(), server.api()
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "Hi") as slow:
            seen = [next(slow)]
            assert other.send_message(other.create_session("mochi")["session_id"], "Hi")["message"][
                "content"
            ] == "".join(pieces)
            until(
                lambda: other.ok(other.http.get(f"/chat/{session_id}/run"))["state"] == "completed"
            )
            seen.extend(slow)
    latest = max(index for index, event in enumerate(seen) if event.type == "snapshot")
    assert seen[latest].data["content"] + text_of(seen[latest:]) == "".join(pieces)
    assert types_of(seen[-2:]) == ["message_complete", "done"]


def test_waiting_stream_is_kept_open_by_pings(api: Api, holding: GatedStub) -> None:
    assert Components().ping_seconds == PING_SECONDS <= 10
    session_id = api.create_session("mochi")["session_id"]
    with api.http.stream(
        "POST", f"/chat/{session_id}/stream", json={"message": "hold"}
    ) as response:
        data = response.iter_raw()
        seen = b""
        while seen.count(b": ping\n\n") < 3:
            seen += next(data)
        holding.gate.open()
        seen += b"".join(data)
    assert seen.endswith(b"\n\n")
    assert b"event: done\n" in seen


@pytest.mark.parametrize("ends", ["answered", "stopped", "deleted"])
def test_request_waiting_for_turn_is_kept_open(
    api: Api, server: RunningServer, holding: GatedStub, ends: str
) -> None:
    session_id = api.create_session("mochi")["session_id"]
    other = server.api()
    with api.open_stream(session_id, "hold") as events:
        next(events)
        # The deletion does not wait for the session, so the second turn must not be able to end
        # before it.
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


def test_disconnect_while_waiting_discards_message(
    api: Api, server: RunningServer, holding: GatedStub
) -> None:
    session_id = api.create_session("mochi")["session_id"]
    with api.open_stream(session_id, "hold") as events:
        next(events)
        message = {"message": "Next", "if_busy": "wait"}
        with server.api().http.stream(
            "POST", f"/chat/{session_id}/stream", json=message
        ) as response:
            next(response.iter_raw())
        holding.gate.open()
        list(events)
    api.send_message(session_id, "Last", if_busy="wait")
    assert [m["content"] for m in api.messages(session_id)] == [
        "hold",
        "one two three four",
        "Last",
        "Fine.",
    ]
