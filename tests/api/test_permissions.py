"""File permissions: other users of the machine cannot read stored data."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from mochi_server.services.system_prompts import SystemPromptService
from mochi_server.sessions import SessionCreationOptions, SessionManager
from mochi_server.sessions.usage import Usage, UsageKey
from mochi_server.storage.files.secrets import FileSecretStore
from mochi_server.storage.files.usage import FileUsageStore
from mochi_stub import StubServer
from tests.support.agents import delegate, write_agent
from tests.support.api import Api
from tests.support.instructions import instruct, words
from tests.support.server import RunningServer

pytestmark = pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX systems")


def readable_by_others(directory: Path) -> list[str]:
    return [
        str(path)
        for path in [directory, *directory.rglob("*")]
        if stat.S_IMODE(path.stat().st_mode) & 0o077
    ]


def use_server(api: Api) -> None:
    settings = {"execution_policy": "never_confirm"}
    agents = {"enabled_agents": ["helper"]}
    session_id = api.create_session("mochi", tool_settings=settings, agent_settings=agents)[
        "session_id"
    ]
    with api.open_stream(session_id, instruct(delegate(words(3)), words(3))) as events:
        list(events)
    api.http.get("/sessions")
    api.http.get("/agents/chats")
    api.ok(
        api.http.post("/system-prompts", json={"filename": "mine.md", "content": "Be secret."}), 201
    )


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A mask with which other users can read new files by default."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_created_files_are_private_to_owner(tmp_path: Path, stub: StubServer) -> None:
    write_agent(tmp_path)
    with RunningServer(tmp_path, stub.url) as server:
        use_server(server.api())
    assert list((tmp_path / "agents" / "agent_chats").glob("*.json"))
    for folder in ("chat_sessions", "agents/agent_chats", "system_prompts"):
        assert readable_by_others(tmp_path / folder) == []


@pytest.mark.usefixtures("open_umask")
async def test_missing_parents_and_the_lock_are_private(tmp_path: Path) -> None:
    new = tmp_path / "new"
    await FileSecretStore(new / "b" / "secrets").put("key", b"secret")
    await FileUsageStore(new / "c" / "usage").add({UsageKey("2026-01-31", "ann", "m"): Usage(1)})
    SystemPromptService(new / "d" / "prompts").create("mine.md", "Be secret.")
    with SessionManager(new / "a" / "sessions") as manager:
        manager.create_session(SessionCreationOptions("m"))
        assert (new / "a" / "sessions" / ".lock-owner").is_file()
        assert readable_by_others(new) == []


def test_files_in_open_directory_are_private(tmp_path: Path, stub: StubServer) -> None:
    write_agent(tmp_path)
    folders = [
        tmp_path / name for name in ("chat_sessions", "agents/agent_chats", "system_prompts")
    ]
    for folder in folders:
        folder.mkdir()
        folder.chmod(0o755)
    with RunningServer(tmp_path, stub.url) as server:
        use_server(server.api())
    for folder in folders:
        assert readable_by_others(folder) == [str(folder)]
