"""Agents without a server, and the sample agents."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mochi_server.agents import (
    AgentDefinition,
    AgentDiscoveryService,
    AgentExecutionService,
    AgentResult,
    PromptLoader,
)
from mochi_server.chat.turn_input import TurnInput
from mochi_server.events import AgentComplete, AgentStart, ChatEvent
from mochi_server.inference.gateway import ModelGateway
from mochi_server.ollama import AsyncOllamaClient
from mochi_server.sessions import FileSessionStore, ToolExecutionPolicy
from mochi_stub import StubServer
from tests.support.agents import SAMPLES, delegate, nested, notes, write_agent
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.waiting import until


@asynccontextmanager
async def create_service(stub: StubServer, data_dir: Path) -> AsyncIterator[AgentExecutionService]:
    """Create a service that stores its chats in the folder `chats`."""
    client, store = AsyncOllamaClient(stub.url), FileSessionStore(data_dir / "chats")
    try:
        yield AgentExecutionService(ModelGateway(client), store)
    finally:
        await store.aclose()
        await client.aclose()


async def execute(
    stub: StubServer, data_dir: Path, agent: AgentDefinition, task: TurnInput
) -> AgentResult:
    async with create_service(stub, data_dir) as service:
        return await service.execute(agent, task)


async def test_agent_runs_and_publishes_events_without_server(
    stub: StubServer, tmp_path: Path
) -> None:
    write_agent(tmp_path)
    agent = AgentDiscoveryService(tmp_path / "agents").get("helper")
    instruction = instruct(words(1), calls("note", text="alone"), words(2))
    task = TurnInput(instruction, model="mochi", policy=ToolExecutionPolicy.NEVER_CONFIRM)
    events: list[ChatEvent] = []
    async with create_service(stub, tmp_path) as service:
        result = await service.execute(agent, task, publish=events.extend)
    assert (result.error_code, notes(tmp_path)) == (None, ["alone"])
    assert result.output.startswith(f"Session ID: {result.session_id}\n\nID lorem ID\n\n")
    assert (tmp_path / "chats" / f"{result.session_id}.json").is_file()
    first, *_, complete = events
    assert isinstance(first, AgentStart)
    assert isinstance(complete, AgentComplete)
    assert complete.output == result.output


async def test_calls_are_denied_without_approval_handler(stub: StubServer, tmp_path: Path) -> None:
    write_agent(tmp_path)
    agent = AgentDiscoveryService(tmp_path / "agents").get("helper")
    result = await execute(
        stub, tmp_path, agent, TurnInput(instruct(calls("note", text="x"), words(2)), model="mochi")
    )
    assert "denied" in result.output
    assert notes(tmp_path) == []


async def test_unknown_model_is_error_in_result(stub: StubServer, tmp_path: Path) -> None:
    write_agent(tmp_path)
    agent = AgentDiscoveryService(tmp_path / "agents").get("helper")
    result = await execute(stub, tmp_path, agent, TurnInput("Help.", model="gone"))
    assert (result.error_code, result.session_id) == ("MODEL_NOT_FOUND", None)
    assert "ollama pull gone" in result.output


def test_packaged_prompts_replace_unusable_files(tmp_path: Path) -> None:
    packaged = PromptLoader()
    (tmp_path / "empty.md").write_text(" \n")
    (tmp_path / "latin.md").write_bytes(b"caf\xe9")
    for bad in (tmp_path / "none.md", tmp_path / "empty.md", tmp_path / "latin.md", tmp_path):
        loader = PromptLoader(bad, bad)
        assert (loader.planning(), loader.execution()) == (
            packaged.planning(),
            packaged.execution(),
        )
    assert packaged.planning() != packaged.execution()


def test_sample_agents_work_unchanged(
    private_stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "workspace"
    monkeypatch.setenv("MOCHI_FILES_ROOT", str(workspace))
    workspace.mkdir()
    (workspace / "broken").symlink_to("missing")
    monkeypatch.setenv("MOCHI_API_KEYS", "secret")
    does = delegate(
        calls("write_file", path="src/a.py", content="print(1)\n"),
        calls("insert_replace_text", path="src/a.py", old_text="1", new_text="2"),
        calls("insert_replace_text", path="src/a.py", new_text="# two", after_line=0),
        calls("read_file", path="src/a.py"),
        calls("run_cli_command", command="cat src/a.py; echo key $MOCHI_API_KEYS; exit 3"),
        calls("run_cli_command", command="cat", timeout_seconds=5),
        calls("read_file", path="../secret"),
        calls("delete_rename_file", path="src/a.py", new_path="b.py"),
        calls("delete_rename_file", path="b.py"),
        calls("list_dir"),
        words(1),
        agent="coder",
    )
    chats = tmp_path / "chats"
    with RunningServer(
        tmp_path, private_stub.url, agents_dir=SAMPLES, agent_chats_dir=chats, api_keys=()
    ) as server:
        api = server.api()
        enabled = {"enabled_agents": ["coder", "agent_builder"]}
        settings = {"execution_policy": "never_confirm"}
        session_id = api.create_session("mochi", agent_settings=enabled, tool_settings=settings)[
            "session_id"
        ]
        events = api.stream_message(session_id, nested(does, words(1)))
    results = [
        e.data["result"] or e.data["error_message"] for e in events if e.type == "agent_tool_result"
    ]
    assert results == [
        "Wrote 9 characters to src/a.py.",
        "Changed src/a.py.",
        "Changed src/a.py.",
        "# two\nprint(2)\n",
        "Exit code 3\n# two\nprint(2)\nkey",
        "Exit code 0",
        "read_file failed: ValueError: ../secret is outside the workspace",
        "Renamed src/a.py to b.py.",
        "Deleted b.py.",
        "src/\nbroken (7 bytes)",
    ]


def test_changed_file_keeps_other_bytes_and_its_line_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MOCHI_FILES_ROOT", str(tmp_path))
    change = AgentDiscoveryService(SAMPLES).get("coder").tools["insert_replace_text"]
    file = tmp_path / "old.txt"
    file.write_bytes(b"caf\xe9\r\none\r\ntwo\rthree\nlast")

    change("old.txt", old_text="one\ntwo\nthree\n", new_text="1\n2\r\n")
    change("old.txt", new_text="end", after_line=4)
    change("old.txt", new_text="start\n")

    assert file.read_bytes() == b"start\r\ncaf\xe9\r\n1\r\n2\r\nlast\r\nend"


@pytest.mark.slow
async def test_timed_out_command_is_killed_with_its_children(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MOCHI_FILES_ROOT", str(tmp_path))
    run = AgentDiscoveryService(SAMPLES).get("coder").tools["run_cli_command"]

    answer = await run("(while :; do sleep 1; done) & echo $! > child; wait", timeout_seconds=1)

    assert answer == "Killed after 1 seconds."
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    until(lambda: not child.exists() or child.read_text().split()[2] == "Z")


def test_agent_builder_cannot_read_conversations() -> None:
    tools = AgentDiscoveryService(SAMPLES).get("agent_builder").tools
    assert "coder/" in tools["list_dir"]()
    assert "description:" in tools["read_file"]("coder/SKILL.md")
    with pytest.raises(ValueError, match="in a protected folder"):
        tools["read_file"]("agent_chats/0123456789.json")
    with pytest.raises(ValueError, match="outside"):
        tools["list_dir"]("..")
