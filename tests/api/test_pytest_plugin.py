"""The pytest fixture `mochi_server`, in a test run of another project."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mochi_server.testing import ThreadedServer

OTHER_PROJECT = '''
import pytest
from mochi_stub import ToolCall


@pytest.fixture
def mochi_server_settings(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text(
        "def get_weather(city: str) -> str:\\n"
        '    """Get the weather."""\\n'
        '    return f"Sunny in {city}"\\n'
        '__all__ = ["get_weather"]\\n'
    )
    return {"tools_dir": str(tmp_path / "tools")}


def test_tool_is_called(mochi_server, mochi_stub):
    mochi_stub.script(ToolCall("get_weather", {"city": "Oslo"}), "It is sunny.")
    tools = {"tools": ["get_weather"], "execution_policy": "never_confirm"}
    session = mochi_server.client.create_session("mochi", tool_settings=tools)
    answer = mochi_server.client.chat(session["session_id"], "How is it in Oslo?")
    assert answer["message"]["content"] == "It is sunny."
    assert answer["tool_calls_executed"][0]["result"] == "Sunny in Oslo"
    assert len(mochi_stub.requests) >= 2


def test_each_test_has_its_own_sessions(mochi_server):
    assert mochi_server.client.list_sessions() == []
    assert mochi_server.url.startswith("http://127.0.0.1:")
'''


@pytest.fixture
def mochi_server_settings() -> dict[str, Any]:
    return {"api_keys": ("secret",)}


def test_server_uses_the_stub_of_the_test(mochi_server: ThreadedServer, mochi_stub: Any) -> None:
    mochi_stub.script("Hi.", "Hi again.")
    session = mochi_server.client.create_session("mochi")["session_id"]
    message = mochi_server.client.chat(session, "Hello!")["message"]
    assert message is not None
    assert message["content"] == "Hi."
    with mochi_server.client.stream(session, "Again.") as events:
        assert [*events][-1].type == "done"
        assert events.text == "Hi again."


def test_environment_does_not_change_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mochi_stub: Any
) -> None:
    monkeypatch.setenv("MOCHI_SESSIONS_DIR", str(tmp_path / "mine"))
    monkeypatch.setenv("MOCHI_API_KEYS", "secret")
    with ThreadedServer(data_dir=str(tmp_path / "test"), ollama_host=mochi_stub.url) as server:
        server.client.create_session("mochi")
    assert not (tmp_path / "mine").exists()
    assert (tmp_path / "test").exists()


def test_environment_does_not_change_the_address_of_ollama(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:9")
    with ThreadedServer(data_dir=str(tmp_path)) as server:
        (host,) = server.client.list_hosts()
    assert host["url"] == "http://localhost:11434"


def test_own_agents_have_their_sessions_beside_them(tmp_path: Path, mochi_stub: Any) -> None:
    """Settings that a test does not give follow those that it gives, as on the command line."""
    agents = str(tmp_path / "mine")
    server = ThreadedServer(data_dir=str(tmp_path), ollama_host=mochi_stub.url, agents_dir=agents)
    with server:
        assert server.app.state.settings.agent_chats_dir == str(Path(agents, "agent_chats"))


def test_client_reaches_a_server_on_an_ipv6_address(tmp_path: Path, mochi_stub: Any) -> None:
    with ThreadedServer(data_dir=str(tmp_path), ollama_host=mochi_stub.url, host="::1") as server:
        assert server.url.startswith("http://[::1]:")
        assert server.client.list_sessions() == []


@pytest.mark.slow
def test_fixture_works_in_another_project(tmp_path: Path) -> None:
    (tmp_path / "test_other_project.py").write_text(OTHER_PROJECT)
    plugins = ["-p", "mochi_stub.pytest_plugin", "-p", "mochi_server.pytest_plugin"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        *plugins,
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
    ]
    env = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "MOCHI_API_KEYS": "from-the-environment",
    }
    ran = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, "2 passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr


def test_plugin_imports_no_server_until_the_fixture_is_used() -> None:
    program = (
        "import sys, mochi_server.pytest_plugin; print(sorted(n for n in sys.modules if "
        "n.split('.')[0] in ('uvicorn', 'fastapi', 'mochi_server')))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    assert printed == "['mochi_server', 'mochi_server.pytest_plugin']\n"
