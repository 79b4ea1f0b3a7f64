"""Sessions are cached in memory, but the files are authoritative: changes of a file take effect at
once.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from mochi_server.sessions import SessionManager
from mochi_stub import StubServer
from tests.sessions.samples import assistant, file_of, user
from tests.support.api import Api, error_of
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.stub import chats
from tests.support.tools import write_tools

ADD = """
    def add(a: float, b: float) -> float:
        return a + b

    __all__ = ["add"]
"""


def sent_messages(stub: StubServer) -> list[str]:
    """Return the messages of the latest request to the model."""
    body = chats(stub)[-1].body
    assert body is not None
    return [message["content"] for message in body["messages"]]


def test_changes_of_a_manager_reach_the_next_prompt(
    private_api: Api, private_stub: StubServer, tmp_path: Path
) -> None:
    session_id = private_api.create_session("mochi")["session_id"]
    answer = private_api.send_message(session_id, "One?")["message"]["content"]
    SessionManager(tmp_path / "chat_sessions").append_messages(
        session_id, [user("Two?"), assistant("Two.")]
    )
    private_api.send_message(session_id, "Three?")
    assert sent_messages(private_stub) == ["One?", answer, "Two?", "Two.", "Three?"]

    file = file_of(tmp_path / "chat_sessions", session_id)
    file.write_bytes(file.read_bytes().replace(b"Two.", b"2!!!"))
    private_api.send_message(session_id, "Four?")
    assert sent_messages(private_stub)[3] == "2!!!"

    file.unlink()
    assert error_of(private_api.http.post(f"/chat/{session_id}", json={"message": "Five?"})) == (
        404,
        "SESSION_NOT_FOUND",
    )


@pytest.mark.parametrize("turns", [3, pytest.param(40, marks=pytest.mark.nightly)])
def test_messages_match_file_after_every_operation(
    tmp_path: Path, private_stub: StubServer, turns: int
) -> None:
    write_tools(tmp_path, ADD)
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.api()
        tools = {"tools": ["add"], "execution_policy": "never_confirm"}
        session_id = api.create_session("mochi", system_prompt="Be brief.", tool_settings=tools)[
            "session_id"
        ]

        def stored_messages() -> Any:
            return orjson.loads(file_of(tmp_path / "chat_sessions", session_id).read_bytes())[
                "messages"
            ]

        for number in range(turns):
            api.send_message(session_id, f"Question {number}")
        url = f"/sessions/{session_id}"
        steps: list[Callable[[], object]] = [
            lambda: api.send_message(session_id, instruct(calls("add", a=1, b=2), words(3))),
            lambda: api.send_message(session_id),
            lambda: api.send_message(session_id, "Yes?", think=True),
            lambda: api.ok(api.http.post(f"{url}/summarize")),
            lambda: api.ok(api.http.post(f"{url}/fork"), 201),
            lambda: api.ok(api.http.get(f"{url}/export")),
            lambda: api.ok(api.http.put(f"{url}/messages/5", json={"content": "Other words"})),
            lambda: api.ok(api.http.put(f"{url}/system-prompt", json={"content": "Be long."})),
            lambda: api.send_message(session_id, "And now?"),
        ]
        for step in steps:
            step()
            assert api.messages(session_id) == stored_messages()
        assert sent_messages(private_stub) == [
            message["content"] for message in stored_messages()[:-1]
        ]
