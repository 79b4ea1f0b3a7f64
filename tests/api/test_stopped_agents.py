"""A stop that meets the last write of an agent ends the turn that has called the agent."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mochi_server.config import MochiServerSettings
from mochi_server.container import Components
from mochi_server.sessions import Change, FileSessionStore
from mochi_server.storage.files.store import FileStores
from mochi_stub import StubServer
from tests.support.agents import delegate, nested, write_agent
from tests.support.instructions import words
from tests.support.server import RunningServer
from tests.support.waiting import until

WAIT_SECONDS = 60


class HeldAnswers(FileSessionStore):
    """Store in which the write of a last answer waits until ``released``."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_writing, self.released = threading.Event(), threading.Event()

    async def write(self, session_id: str, change: Change) -> int:
        if change.ends_turn:
            self.is_writing.set()
            await asyncio.to_thread(self.released.wait, WAIT_SECONDS)
        return await super().write(session_id, change)


def held_agent_stores(settings: MochiServerSettings) -> FileStores:
    stores = FileStores(
        settings.resolved_sessions_dir,
        settings.resolved(settings.agent_chats_dir),
        settings.resolved("mcp_authorizations"),
    )
    stores.agents = HeldAnswers(stores.agents.path)
    return stores


def test_stop_during_the_last_write_of_an_agent_ends_the_turn(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_agent(tmp_path)
    message = nested(delegate(words(1), words(2)), words(3))
    components = Components(stores=held_agent_stores)
    with (
        RunningServer(tmp_path, private_stub.url, components) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        api, agents = server.client, server.app.state.services.stores.agents
        settings = {"agent_settings": {"enabled_agents": ["helper"]}}
        session_id = api.create_session("mochi", **settings)["session_id"]
        body = {"message": message, "background": True}
        api.ok(api.http.post(f"/chat/{session_id}", json=body), 202)
        assert agents.is_writing.wait(WAIT_SECONDS)
        stopping = pool.submit(server.api().http.post, f"/chat/{session_id}/stop")
        table = server.app.state.services.turns.table
        until(lambda: table.find(session_id).control.is_stopped)
        agents.released.set()
        assert api.ok(stopping.result(WAIT_SECONDS))["state"] == "stopped"
        roles = [stored["role"] for stored in api.messages(session_id)]
        assert roles == ["user", "assistant", "tool"]
