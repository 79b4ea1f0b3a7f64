"""Requests of frontend protocols at one server about a turn of another server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from tests.frontends.chats import Frontend, message, of_type, read_chunks, response_to, types, user
from tests.servers.conftest import Start
from tests.support.api import Api
from tests.support.instructions import calls, instruct, words
from tests.support.tools import write_tools

pytestmark = pytest.mark.slow
NOTE = instruct(calls("note", text="milk"), words(1))
TOOLS = """
    def note(text: str) -> str:
        "Write a line."
        return "Noted."

    __all__ = ["note"]
"""


@pytest.fixture
def pair(start: Start, tmp_path: Path) -> Iterator[tuple[Frontend, Frontend]]:
    """Clients of one session at two servers."""
    write_tools(tmp_path, TOOLS)
    with StubServer(speed=0) as stub, Api(start(stub.url).url) as a, Api(start(stub.url).url) as b:
        session = a.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
        yield Frontend(a, session), Frontend(b, session)


def test_ai_sdk_turn_is_resumed_and_approved_at_another_server(
    pair: tuple[Frontend, Frontend],
) -> None:
    a, b = pair
    first = a.ai_sdk(user(NOTE))
    assert read_chunks(b.api.http.get(f"/chat/{b.session}/ai-sdk/any/stream").content) == first
    second = b.ai_sdk(user(NOTE), response_to(of_type(first, "tool-approval-request")))
    assert types(second)[:2] == ["start", "tool-output-available"]
    assert types(second)[-1] == "finish"
    assert b.roles() == ["user", "assistant", "tool", "assistant"]


def test_ag_ui_interrupt_is_answered_at_another_server(pair: tuple[Frontend, Frontend]) -> None:
    a, b = pair
    (interrupt,) = a.ag_ui(message(NOTE))[-1]["outcome"]["interrupts"]
    second = b.ag_ui(
        resume=[{"interruptId": interrupt["id"], "status": "resolved", "payload": True}]
    )
    assert of_type(second, "TOOL_CALL_RESULT")["content"] == "Noted."
    assert second[-1]["outcome"] == {"type": "success"}


@pytest.mark.parametrize(
    ("path", "body", "ending"),
    [
        ("ai-sdk", {"messages": [user("hold")]}, ["error"]),
        ("ag-ui", {"threadId": "t", "runId": "r", "messages": [message("hold")]}, ["RUN_ERROR"]),
    ],
)
def test_stream_of_a_killed_server_ends_with_an_error(
    start: Start, path: str, body: dict[str, Any], ending: list[str]
) -> None:
    killed = start()
    with Api(killed.url) as a, Api(start().url) as b:
        session = a.create_session("mochi")["session_id"]
        a.send_message(session, "Hello")  # requests about the session now go to this server
        with b.http.stream("POST", f"/chat/{session}/{path}", json=body) as response:
            received, data = b"", response.iter_raw()
            while b"three" not in received:
                received += next(data)
            killed.kill()
            ended = read_chunks(b"".join(data))
    assert [chunk["type"] for chunk in ended] == ending
