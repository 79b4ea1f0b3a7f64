"""What a server that runs for months must not keep: anything of sessions that are gone, or of turns that are over."""

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.requests import Request

from mochi_stub import StubServer
from mochi_stub.reply import Gate, Reply, Text
from tests.support.api import Api
from tests.support.server import RunningServer

pytestmark = pytest.mark.one_process("it looks into the process")
_SESSIONS = 10
_SESSION = frozenset(
    {
        "FileSnapshot",
        "SessionRecord",
        "Signature",
        "History",
        "SessionMetadata",
        "ToolSettings",
        "AgentSettings",
        "ChatSession",
    }
)
"""Of sessions that were used lately."""
_RUN = frozenset({"Run", "EventLog", "TurnRequest", "TurnResult", "GenerationOptions", "WindowDecision"})
"""Of turns that can still be listened to."""
_SUMMARY = frozenset({"_SummaryTask"})
"""What is known of a session's summary."""


@pytest.fixture(autouse=True)
def only_new_objects() -> Iterator[None]:
    """Exclude from the census, and from garbage collection, what there was before the test."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def _census() -> Counter[str]:
    """How many objects there are of the server's own types, and how many tasks."""
    gc.collect()
    kinds = (type(thing) for thing in gc.get_objects())
    return Counter(
        kind.__qualname__
        for kind in kinds
        if issubclass(kind, asyncio.Task) or str(kind.__module__).startswith("mochi_server.")
    )


def _stream_messages(api: Api) -> list[str]:
    session_ids = [api.create_session("mochi")["session_id"] for _ in range(_SESSIONS)]
    for session_id in session_ids:
        with api.open_stream(session_id, "Hello there!") as events:
            assert list(events)[-1].type == "done"
    return session_ids


def _grown_since(before: Counter[str], but_for: frozenset[str] = frozenset()) -> set[str]:
    """What there is more of, as soon as there is nothing; summaries and connections take a moment to end."""
    deadline = time.monotonic() + 10
    while True:
        grown = {name for name, count in (_census() - before).items() if count >= _SESSIONS // 2} - but_for
        if not grown or time.monotonic() > deadline:
            return grown


def test_deleted_sessions_leave_no_objects(tmp_path: Path, stub: StubServer) -> None:
    with RunningServer(tmp_path, stub.url, summarization_interval_seconds=0) as server:
        api = server.api()
        for session_id in _stream_messages(api):
            api.http.delete(f"/sessions/{session_id}").raise_for_status()
        before = _census()
        for session_id in _stream_messages(api):
            api.http.delete(f"/sessions/{session_id}").raise_for_status()
        assert _grown_since(before) == set()


def test_ended_turn_keeps_messages_but_no_task(tmp_path: Path, stub: StubServer) -> None:
    with RunningServer(tmp_path, stub.url, summarization_interval_seconds=0) as server:
        api = server.api()
        _stream_messages(api)
        before = _census()
        _stream_messages(api)
        assert _grown_since(before, _RUN | _SESSION | _SUMMARY) == set()


def test_open_stream_does_not_keep_the_body_of_its_request(tmp_path: Path) -> None:
    gate = Gate()
    reply = Reply([Text(["Hi "]), gate, Text(["there."])])
    with StubServer(speed=0, resolve=lambda _: reply) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "Hello " * 1000) as events:
            assert next(iter(events)).type == "content_delta"
            bodies = [len(vars(thing).get("_body", b"")) for thing in gc.get_objects() if isinstance(thing, Request)]
            gate.open()
    assert bodies
    assert max(bodies) < 1000
