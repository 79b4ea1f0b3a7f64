"""Memory of a server that runs for months: nothing remains of deleted sessions and ended turns."""

import asyncio
import gc
import time
from collections import Counter
from pathlib import Path

import pytest
from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider
from starlette.requests import Request

from mochi_stub import StubServer
from mochi_stub.reply import Gate, Reply, Text
from tests.support.api import Api
from tests.support.server import RunningServer

_SESSIONS = 6
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
        "HostOfTurn",
        "HeldPrompt",
        "StoredTurn",
    }
)
"""Types that belong to recently used sessions."""
_RUN = frozenset(
    {
        *("Run", "EventLog", "Conversation", "TurnInput", "ToolSelection", "TurnControl"),
        *("TurnResult", "GenerationOptions", "WindowDecision"),
    }
)
"""Types that belong to turns whose events can still be read."""


@pytest.fixture(autouse=True)
def only_new_objects() -> None:
    """Exclude existing objects from the census, and from garbage collection until the end of the
    tests.
    """
    gc.collect()
    gc.freeze()


def _count_objects(*, collects: bool = True) -> Counter[str]:
    """Count the objects of the server's own types and the tasks, after a garbage collection if
    ``collects``.
    """
    if collects:
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


def _grown_types(
    before: Counter[str], ignored: frozenset[str] = frozenset(), *, collects: bool = True
) -> set[str]:
    """Return the types with more objects than before.

    Wait up to 10 s until there are none, because summaries and connections take a moment to end.
    """
    deadline = time.monotonic() + 10
    while True:
        grown = {
            name
            for name, count in (_count_objects(collects=collects) - before).items()
            if count >= _SESSIONS // 2
        } - ignored
        if not grown or time.monotonic() > deadline:
            return grown
        time.sleep(0.01)


def test_deleted_sessions_leave_no_objects(tmp_path: Path, stub: StubServer) -> None:
    with RunningServer(tmp_path, stub.url, summarization_interval_seconds=0) as server:
        api = server.api()
        for session_id in _stream_messages(api):
            api.http.delete(f"/sessions/{session_id}").raise_for_status()
        before = _count_objects()
        for session_id in _stream_messages(api):
            api.http.delete(f"/sessions/{session_id}").raise_for_status()
        assert _grown_types(before) == set()


@pytest.mark.slow
def test_ended_turn_leaves_its_memory_without_a_garbage_collection(
    tmp_path: Path, stub: StubServer
) -> None:
    with RunningServer(tmp_path, stub.url, summarization_enabled=False) as server:
        api = server.api()
        _stream_messages(api)
        before, was_enabled = _count_objects(), gc.isenabled()
        gc.disable()
        _stream_messages(api)
        grown = _grown_types(before, _RUN | _SESSION, collects=False)
        if was_enabled:
            gc.enable()
        assert grown == set()


@pytest.mark.slow
def test_open_stream_releases_its_request_body(tmp_path: Path) -> None:
    if not isinstance(get_tracer_provider(), ProxyTracerProvider):
        pytest.skip("an earlier test records spans, for which FastAPI keeps requests")
    gate = Gate()
    reply = Reply([Text(["Hi "]), gate, Text(["there."])])
    earlier = requests_in_memory()
    with (
        StubServer(speed=0, resolve=lambda _: reply) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "Hello " * 1000) as events:
            assert next(iter(events)).type == "content_delta"
            bodies = []
            for request in requests_in_memory():
                if not any(request is each for each in earlier):
                    bodies.append(len(vars(request).get("_body", b"")))
            gate.open()
    assert bodies
    assert max(bodies) < 1000


def requests_in_memory() -> list[Request]:
    return [thing for thing in gc.get_objects() if isinstance(thing, Request)]
