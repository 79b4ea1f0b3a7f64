"""Chats of agents in the session files."""

from pathlib import Path

import orjson
import pytest

from tests.api.test_agents import (  # noqa: F401 - fixtures
    agent_chat,
    agent_session_ids,
    roles,
    session_with,
    shared_server,
    shared_stub,
)
from tests.support.agents import delegate, nested
from tests.support.api import Api
from tests.support.instructions import words
from tests.support.server import RunningServer


@pytest.fixture
def data_dir(server: RunningServer) -> Path:
    """The data directory of the server, without notes of agents."""
    data_dir = Path(server.settings.data_dir)
    for file in data_dir.glob("agents/*/notes.txt"):
        file.unlink()
    return data_dir


def test_agent_chats_are_ordinary_session_files(api: Api, data_dir: Path) -> None:
    session_id = session_with(api)
    api.send_message(session_id, nested(delegate(words(2)), words(2)))
    (chat_id,) = agent_session_ids(api, session_id)
    entry = api.ok(api.http.get("/agents/chats"))["sessions"][0]
    assert (entry["session_id"], entry["agent_name"], entry["preview"][:6]) == (
        chat_id,
        "helper",
        "Please",
    )
    # An agent without tool calls gets one more request.
    assert roles(agent_chat(api, chat_id)) == [
        "system",
        "user",
        "assistant",
        "assistant",
        "assistant",
    ]
    file = orjson.loads((data_dir / "agents" / "agent_chats" / f"{chat_id}.json").read_bytes())
    assert set(file) == {"metadata", "messages"}
    assert file["metadata"]["format_version"] == "1.4"
    assert file["metadata"]["agent_name"] == "helper"
    listed = [session["session_id"] for session in api.ok(api.http.get("/sessions"))["sessions"]]
    assert session_id in listed
    assert chat_id not in listed
