"""Live streams of every protocol: the server does not decode the events that it has encoded for the
log.
"""

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from mochi_server.chat.event_log import Batch, decode, encode
from mochi_server.events import ContentDelta
from mochi_stub import StubServer
from tests.frontends.chats import message, user
from tests.frontends.conftest import TOOLS
from tests.support.agents import delegate, nested, write_agent
from tests.support.cases import cases
from tests.support.instructions import calls, words
from tests.support.server import RunningServer
from tests.support.tools import write_tools

TASK = nested(delegate(calls("look"), words(3)), calls("add", a=1, b=2), words(30))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    data_dir = tmp_path_factory.mktemp("data")
    write_tools(data_dir, TOOLS)
    write_agent(data_dir)
    with (
        StubServer(speed=0) as stub,
        RunningServer(data_dir, stub.url, summarization_enabled=False) as server,
    ):
        yield server


@pytest.fixture
def session(server: RunningServer) -> str:
    tools = {"tools": ["add", "note"], "execution_policy": "confirm_destructive"}
    created = server.client.create_session(
        "mochi", tool_settings=tools, agent_settings={"enabled_agents": ["helper"]}
    )
    return str(created["session_id"])


@pytest.fixture
def decoded(server: RunningServer) -> Iterator[list[bytes]]:
    """The lines that the server decodes, as a profiler of its thread sees them."""
    lines = list[bytes]()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is decode.__code__:
            lines.append(frame.f_locals["line"])

    def decode_one() -> None:
        assert Batch(1, [encode(ContentDelta("a"))]).events == [ContentDelta("a")]

    server.call(lambda: sys.setprofile(profile))
    server.call(decode_one)
    assert lines.pop()
    yield lines
    server.call(lambda: sys.setprofile(None))


@cases(
    ("path", "prompt"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": TASK}]}),
        ("completions", {"prompt": TASK}),
        ("responses", {"input": TASK}),
    ],
    ids=["chat", "text", "responses"],
)
def test_turn_under_v1_is_not_decoded(
    server: RunningServer, session: str, decoded: list[bytes], path: str, prompt: dict[str, Any]
) -> None:
    for stream in (True, False):
        body = {"model": "mochi", "stream": stream, **prompt}
        url, headers = f"{server.url}/v1/{path}", {"X-Mochi-Session": session}
        response = server.client.http.post(url, json=body, headers=headers)
        assert (response.status_code, "lorem" in response.text, decoded) == (200, True, [])


@cases(
    ("path", "body"),
    [
        ("", {"message": TASK}),
        ("/stream", {"message": TASK}),
        ("/ai-sdk", {"messages": [user(TASK)]}),
        ("/ag-ui", {"threadId": "t", "runId": "r", "messages": [message(TASK)]}),
    ],
    ids=["native-collected", "native", "ai-sdk", "ag-ui"],
)
def test_turn_in_a_session_is_not_decoded(
    server: RunningServer, session: str, decoded: list[bytes], path: str, body: dict[str, Any]
) -> None:
    response = server.client.http.post(f"/chat/{session}{path}", json=body)
    assert (response.status_code, "lorem" in response.text, decoded) == (200, True, [])
