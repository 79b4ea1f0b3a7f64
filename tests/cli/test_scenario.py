"""Recorded sessions as tests: `mochi-server export-scenario` and `mochi-server replay`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mochi_server.client import MochiClient
from mochi_server.testing import ThreadedServer, check_scenario
from mochi_stub import Machine, Reply, StubServer, ToolCall
from mochi_stub.config import validate_config
from mochi_stub.reply import Cut, Failure, Text, Usage
from mochi_stub.server import ScriptedStub
from tests.support.process import run
from tests.support.tools import write_tools

TOOLS = '''
    from itertools import count
    _numbers = count(1)

    def next_number(step: int = 1) -> int:
        """Return another number each time."""
        return step * next(_numbers)

    def find_person(name: str, phone: int = 0) -> str:
        """Find a person."""
        if name == "Nobody":
            raise LookupError(name)
        return f"{name} lives in Oslo."

    __all__ = ["next_number", "find_person"]
    __read_only__ = ["next_number"]
'''


class Recorder:
    """A server whose model is a scripted stub. Its sessions are in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stub = ScriptedStub()
        self.stub.machine = Machine(parallel=1)
        write_tools(directory, TOOLS)

    def record(self, turns: list[Any], policy: str = "never_confirm", **settings: Any) -> str:
        """Create a session. A turn is a message and its replies, and maybe the options of the request."""
        tools = {"tools": ["next_number", "find_person"], "execution_policy": policy}
        with self.stub, ThreadedServer(ollama_host=self.stub.url, data_dir=str(self.directory)) as server:
            session_id: str = server.client.create_session("mochi", tool_settings=tools, **settings)["session_id"]
            for message, replies, *options in turns:
                self.stub.script(*replies)
                with server.client.stream(session_id, message, **(options or [{}])[0]) as events:
                    list(events)
        return session_id

    def export(self, session_id: str, *arguments: str) -> Path:
        code, text = run("mochi_server", "export-scenario", session_id, *arguments, cwd=self.directory)
        assert code == 0, text
        return self.directory / "scenario.yaml"


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


def check(scenario: Path, directory: Path) -> None:
    with StubServer(config=scenario, speed=0) as stub:
        check_scenario(scenario, ollama_host=stub.url, data_dir=str(directory / "replay"))


def ten_turns() -> list[Any]:
    call = ToolCall("next_number", {"step": 2})
    return [
        ("Hello!", ["Hi, how are you?"]),
        ("Yes", [Reply.of("First yes.", reasoning="Is it a yes?")], {"think": True}),
        ("Yes", [call, Reply.of("Two, and", tool_calls=[call]), "four."]),
        ("And now?", [call, "The number is six."]),
        ("Who is Ana?", [ToolCall("find_person", {"name": "Ana"}), "Ana lives in Oslo."]),
        ("Who is Nobody?", [ToolCall("find_person", {"name": "Nobody"}), "There is no such person."]),
        ("Yes", ["Third yes.\nIt has two lines: and a colon, 'quotes' and #."]),
        ("Long?", [Reply.of("It is lo", finish="length", usage=Usage(output=5))]),
        ("Both", [Reply.of("Both.", tool_calls=[call, ToolCall("find_person", {"name": "Bo"})]), "Eight and Bo."]),
        ("Bye", [Reply.of("123", usage=Usage(input=777, output=99, cache_read=700))]),
    ]


def test_replayed_session_of_ten_turns_passes_and_a_changed_answer_fails(recorder: Recorder, tmp_path: Path) -> None:
    scenario = recorder.export(recorder.record(ten_turns(), system_prompt="Be brief."))
    assert validate_config(scenario) == []
    passed = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_scenario.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert passed.returncode == 0, passed.stdout
    assert "1 passed" in passed.stdout

    text = scenario.read_text()
    scenario.write_text(text.replace("The number is six.", "The number is seven."))
    assert scenario.read_text() != text
    failed = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_scenario.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert failed.returncode == 1
    assert "turn 4 differs from the recorded session:" in failed.stdout
    assert "-  content: The number is six.\n" in failed.stdout.replace("E   ", "").replace("    ", "")
