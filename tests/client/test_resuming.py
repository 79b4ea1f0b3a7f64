"""Connections that break in mid-stream: no event is lost or repeated."""

from pathlib import Path
from typing import Any

import pytest

from mochi_server.chat.limits import RunLimits
from mochi_server.client import ApiError, ConnectionFailed, MochiClient
from mochi_server.container import Components
from mochi_server.events import ContentDelta, Snapshot, ToolConfirmationRequired, TurnWarning
from mochi_stub import StubServer
from mochi_stub.reply import Gate, Reply, Text
from tests.client.conftest import Connect
from tests.support.cases import cases
from tests.support.holding import GatedStub
from tests.support.instructions import calls, instruct, words
from tests.support.relay import CuttingRelay
from tests.support.server import RunningServer
from tests.support.tools import write_tools
from tests.support.waiting import until

LONG = instruct(words(200))
ADDING = """
    def add(a: int, b: int) -> int:
        '''Add two numbers.'''
        return a + b

    __all__ = ["add"]
"""


@cases("cuts", [(900,), (2000, 700, 3001), (0,), (100,), (0, 0, 2000, 0, 0, 600)])
def test_cut_stream_resumes_without_lost_or_repeated_events(
    client: MochiClient, connect: Connect, server: RunningServer, cuts: tuple[int, ...]
) -> None:
    session_id = client.create_session("mochi")["session_id"]
    with (
        CuttingRelay(server.url, *cuts) as relay,
        connect(relay.url) as cut,
        cut.stream(session_id, LONG) as stream,
    ):
        received = list(stream)
        assert relay.connections == len(cuts) + 1
    with client.listen(session_id) as whole:
        assert received == list(whole)
    messages = client.get_session(session_id)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert stream.text == messages[-1]["content"]


def test_cut_answer_is_requested_again_but_stored_once(
    client: MochiClient, connect: Connect, server: RunningServer
) -> None:
    session_id = client.create_session("mochi")["session_id"]
    with CuttingRelay(server.url, 0, 50) as relay, connect(relay.url) as cut:
        answer = cut.chat(session_id, LONG)
    messages = client.get_session(session_id)["messages"]
    assert (len(messages), messages[-1]) == (2, answer["message"])


def test_repeated_cuts_raise_connection_failed(
    client: MochiClient, connect: Connect, server: RunningServer
) -> None:
    session_id = client.create_session("mochi")["session_id"]
    with CuttingRelay(server.url, 900, 0, 0, 0) as relay, connect(relay.url) as cut:
        stream = cut.stream(session_id, LONG)
        with pytest.raises(ConnectionFailed):
            list(stream)
    with (
        client.listen(session_id, stream.last_event_id) as rest,
        client.listen(session_id) as whole,
    ):
        events, behind = list(whole), list(rest)
    assert events[-len(behind) :] == behind
    assert stream.text + rest.text == whole.text


def test_second_client_continues_from_an_event_id(
    connect: Connect, holding: GatedStub, tmp_path: Path
) -> None:
    with RunningServer(tmp_path, holding.stub.url) as server, connect(server.url) as client:
        session_id = client.create_session("mochi")["session_id"]
        with client.stream(session_id, "hold") as first:
            next(first)
        with client.listen(session_id, first.last_event_id) as second:
            assert next(second) == ContentDelta("two ")
            holding.gate.open()
            assert [event.type for event in second][-1] == "done"
        assert first.text + second.text == "one two three four"


def test_same_idempotency_key_is_the_same_message(client: MochiClient) -> None:
    session_id = client.create_session("mochi")["session_id"]
    with client.stream(session_id, "Hello!", idempotency_key="1") as one:
        events = list(one)
    with client.stream(session_id, "Hello!", idempotency_key="1") as two:
        assert list(two) == events
    with pytest.raises(ApiError, match="IDEMPOTENCY_KEY_REUSED"):
        client.chat(session_id, "Something else", idempotency_key="1")
    assert len(client.get_session(session_id)["messages"]) == 2


def test_dropped_events_are_replaced_by_a_snapshot(connect: Connect, tmp_path: Path) -> None:
    components = Components(runs=RunLimits(log_bytes=2000))
    gate = Gate()
    reply = Reply([Text(["one "]), gate, Text([f"{number} " for number in range(200)])])
    with (
        StubServer(speed=0, resolve=lambda _: reply) as stub,
        RunningServer(tmp_path, stub.url, components) as server,
        connect(server.url) as client,
    ):
        session_id = client.create_session("mochi")["session_id"]
        with (
            CuttingRelay(server.url, 520) as relay,
            connect(relay.url) as cut,
            cut.stream(session_id, "Go") as stream,
        ):
            assert next(stream) == ContentDelta("one ")
            gate.open()
            with client.listen(session_id) as other:
                for _ in other:
                    pass
            rest: list[Any] = list(stream)
        assert any(isinstance(event, Snapshot) for event in rest)
        assert stream.text == client.get_session(session_id)["messages"][-1]["content"]


def test_stream_resumes_a_suspended_turn_that_has_continued(
    connect: Connect, shared_stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, ADDING)
    with (
        RunningServer(tmp_path, shared_stub.url, park_seconds=0) as server,
        connect(server.url) as client,
        CuttingRelay(server.url) as relay,
        connect(relay.url) as cut,
    ):
        tools = {"tools": ["add", "absent"]}
        session_id = client.create_session("mochi", tool_settings=tools)["session_id"]
        with cut.stream(session_id, instruct(calls("add", a=1, b=2), words(3))) as stream:
            asked = next(event for event in stream if isinstance(event, ToolConfirmationRequired))
            table = server.app.state.services.turns.table
            until(table.all_suspended)
            relay.cut()
            client.confirm(session_id, asked, approved=True)
            until(lambda: not table.all_suspended() and not table.running())
            codes = [event.code for event in stream if isinstance(event, TurnWarning)]
        assert codes == ["TOOL_NOT_FOUND"]
        assert stream.text == client.get_session(session_id)["messages"][-1]["content"]


def test_resume_of_an_unknown_turn_fails(
    connect: Connect, holding: GatedStub, tmp_path: Path
) -> None:
    with RunningServer(tmp_path, holding.stub.url) as first:
        with connect(first.url) as client:
            session_id = client.create_session("mochi")["session_id"]
        with CuttingRelay(first.url, 700) as relay, connect(relay.url) as cut:
            stream = cut.stream(session_id, "hold")
            next(stream)
            with RunningServer(tmp_path, holding.stub.url) as second, connect(second.url) as client:
                holding.gate.open()
                first.stop()
                relay.set_target(second.url)
                client.chat(session_id, "Hello!")
                with pytest.raises(ConnectionFailed, match="no longer has this turn"):
                    list(stream)
