"""Session stores for servers under test that are slow or fail, built from the real stores."""

from collections.abc import Callable
from pathlib import Path

from mochi_server.config import MochiServerSettings
from mochi_server.container import Components
from mochi_server.sessions import FileSessionStore
from mochi_server.storage.files.store import FileStores


class GivenStores(FileStores):
    """File stores of a server, whose store for the sessions of users is given."""

    def __init__(self, settings: MochiServerSettings, chats: FileSessionStore) -> None:
        super().__init__(
            chats.path,
            settings.resolved(settings.agent_chats_dir),
            settings.resolved("mcp_authorizations"),
        )
        self.chats = chats


def with_store(make: Callable[[Path], FileSessionStore]) -> Components:
    """Return components with the store that ``make`` returns for a sessions directory."""
    return Components(
        stores=lambda settings: GivenStores(settings, make(settings.resolved_sessions_dir))
    )
