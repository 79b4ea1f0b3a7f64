"""Example `terminal.py`: a chat in the terminal."""

import subprocess
import sys
from pathlib import Path

import pytest

from mochi_stub import StubServer
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.tools import write_tools

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "terminal.py"
TOOLS = """
    def repeat(text: str) -> str:
        "Repeat a text."
        return f"Repeated {text}."

    __all__ = ["repeat"]
"""

pytestmark = pytest.mark.slow  # each test starts a program


def run(*arguments: str, keyboard: str = "") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(EXAMPLE), *arguments]
    return subprocess.run(
        command, input=keyboard, capture_output=True, text=True, check=False, timeout=60
    )


def test_terminal_answers_and_asks_for_approval(tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    message = instruct(calls("repeat", text="apples"), words(12))
    with StubServer(speed=0) as stub, RunningServer(tmp_path, stub.url) as server:
        done = run(server.url, "mochi", keyboard=f"{message}\ny\n{message}\nn\n")
        sessions = server.api().http.get("/sessions").json()["sessions"]
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Approve repeat({'text': 'apples'})?") == 2
    assert done.stdout.count("[repeat: Repeated apples.]") == 1
    assert [session["message_count"] for session in sessions] == [8]


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "127.0.0.1:8000"])
def test_terminal_reports_a_wrong_address(address: str) -> None:
    done = run(address)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert address in done.stderr


def test_terminal_reports_an_unknown_model(server: RunningServer) -> None:
    done = run(server.url, "no-such-model")
    assert done.returncode == 1
    assert "no-such-model" in done.stderr
