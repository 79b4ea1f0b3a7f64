"""The demo model of test mode, as the model of a server: sentences, tool calls and agents."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mochi_server.events import ContentDelta
from mochi_server.testing import ThreadedServer
from mochi_stub import StubServer
from tests.support.cases import cases

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mochi_server(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ThreadedServer]:
    """A server with the sample tools and agents, whose workspace is an empty directory."""
    directories = {"tools_dir": str(ROOT / "tools"), "agents_dir": str(ROOT / "agents")}
    data_dir = str(tmp_path_factory.mktemp("demo"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOCHI_FILES_ROOT", str(tmp_path_factory.mktemp("workspace")))
        with ThreadedServer(
            data_dir=data_dir, ollama_host=shared_stub.url, **directories
        ) as server:
            yield server


def test_named_tool_is_called_and_its_result_is_in_the_answer(mochi_server: ThreadedServer) -> None:
    tools: Any = {"tools": ["add_numbers"], "execution_policy": "never_confirm"}
    session = mochi_server.client.create_session("mochi-demo", tool_settings=tools)["session_id"]
    answer = mochi_server.client.chat(session, "Please use add_numbers with 2 and 3.")
    assert answer["tool_calls_executed"][0]["arguments"] == {"a": 2, "b": 3}
    assert answer["message"] is not None
    assert answer["message"]["content"] == "The result of add_numbers is: 5"


@cases("tool", ["get_current_time", "list_dir", "roll_dice"])
def test_named_sample_tool_succeeds_without_arguments(
    mochi_server: ThreadedServer, tool: str
) -> None:
    tools: Any = {"tools": [tool], "execution_policy": "never_confirm"}
    session = mochi_server.client.create_session("mochi-demo", tool_settings=tools)["session_id"]
    (call,) = mochi_server.client.chat(session, f"Use {tool}.")["tool_calls_executed"]
    assert (call["arguments"], call["success"]) == ({}, True)


def test_agent_plans_acts_and_reports(mochi_server: ThreadedServer) -> None:
    settings: Any = {
        "agent_settings": {"enabled_agents": ["coder"]},
        "tool_settings": {"tools": [], "execution_policy": "never_confirm"},
    }
    session = mochi_server.client.create_session("mochi-demo", **settings)["session_id"]
    with mochi_server.client.stream(session, "Ask the agent coder to use list_dir.") as stream:
        events = list(stream)
    names = list(dict.fromkeys(event.type for event in events if event.type.startswith("agent")))
    assert names[0] == "agent_start"
    assert names[-1] == "agent_complete"
    assert "agent_tool_result" in names
    text = "".join(event.content for event in events if isinstance(event, ContentDelta))
    assert text.startswith("The result of agent is: ")
    assert "The result of list_dir is: " in text
