"""A manual window takes effect only after it is stored."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mochi_server.config import MochiServerSettings
from mochi_server.container import Services, build_services
from mochi_server.errors import StorageFailed
from mochi_server.inference.session_window import save_window, turn_allocation
from mochi_server.inference.window_registry import WindowDecision
from mochi_server.services.sessions import SessionService
from mochi_server.sessions import ChatSession, MemorySessionStore, SessionCreationOptions
from mochi_server.sessions.store import FieldChanges
from mochi_stub import StubServer

MODEL = "mochi"


class FailingStore(MemorySessionStore):
    """Store that may have no disk space for metadata, or may receive another change before a change
    of metadata.
    """

    full = False
    earlier: Callable[[], Awaitable[object]] | None = None

    async def patch(
        self,
        session_id: str,
        fields: FieldChanges,
        *,
        revision: str | None = None,
        touch: bool = True,
    ) -> ChatSession:
        if self.full:
            raise StorageFailed("save the session", OSError(28, "No space left on device"))
        earlier, self.earlier = self.earlier, None
        if earlier is not None:
            await earlier()
        return await super().patch(session_id, fields, revision=revision, touch=touch)


@pytest.fixture
def services(private_stub: StubServer, tmp_path: Path) -> Services:
    settings: dict[str, Any] = {"data_dir": str(tmp_path), "ollama_host": private_stub.url}
    return build_services(MochiServerSettings(**settings))


async def create_service(services: Services) -> tuple[SessionService, FailingStore, str]:
    """Return the service over a failing store, and the ID of a session."""
    store = FailingStore()
    sessions = replace(services.sessions, store=store)
    session = await sessions.create(SessionCreationOptions(model=MODEL))
    return sessions, store, session.session_id


async def manual_of(sessions: SessionService, session_id: str) -> int | None:
    return (await sessions.state(session_id)).manual_window


async def test_window_that_cannot_be_stored_is_not_set(services: Services) -> None:
    sessions, store, session_id = await create_service(services)
    store.full = True
    with pytest.raises(StorageFailed):
        await sessions.patch(session_id, {"context_window": {"current_window": 2048}})
    assert await manual_of(sessions, session_id) is None
    await services.fleet.aclose()


async def test_window_whose_release_cannot_be_stored_stays(services: Services) -> None:
    sessions, store, session_id = await create_service(services)
    await sessions.patch(session_id, {"context_window": {"current_window": 2048}})
    store.full = True
    with pytest.raises(StorageFailed):
        await sessions.patch(session_id, {"context_window": None})
    assert await manual_of(sessions, session_id) == 2048
    store.full = False
    released = await sessions.patch(session_id, {"context_window": None})
    assert await manual_of(sessions, session_id) is None
    await services.fleet.aclose()
    assert released.metadata.context_window_config["current_window"] == 8192
    assert released.metadata.context_window_config["manual_override"] is False


async def test_turn_keeps_a_window_that_a_client_sets_while_the_turn_ends(
    services: Services,
) -> None:
    sessions, store, session_id = await create_service(services)
    session = await store.load(session_id)
    turn = turn_allocation(
        services.gateway, await services.fleet.find_model(MODEL), session, session.history
    )
    turn.decision = WindowDecision(16_384, "usage_threshold")
    store.earlier = lambda: sessions.patch(session_id, {"context_window": {"current_window": 2048}})
    await save_window(turn, session, store)
    await services.fleet.aclose()
    config = (await store.load(session_id)).metadata.context_window_config
    assert (config["current_window"], config["manual_override"]) == (2048, True)


async def test_window_that_a_client_sets_during_another_patch_returns_with_its_model(
    services: Services,
) -> None:
    sessions, store, session_id = await create_service(services)
    store.earlier = lambda: sessions.patch(session_id, {"context_window": {"current_window": 2048}})
    await sessions.patch(session_id, {"model": "mochi-chat"})
    assert await manual_of(sessions, session_id) is None
    await sessions.patch(session_id, {"model": MODEL})
    assert await manual_of(sessions, session_id) == 2048
    await services.fleet.aclose()


async def test_window_applies_to_the_model_that_another_patch_sets(services: Services) -> None:
    sessions, store, session_id = await create_service(services)
    store.earlier = lambda: sessions.patch(session_id, {"model": "mochi-chat"})
    await sessions.patch(session_id, {"context_window": {"current_window": 100_000}})
    metadata = (await store.load(session_id)).metadata
    await services.fleet.aclose()
    config = metadata.context_window_config
    model_of_window = (metadata.model, config["current_window"])
    assert model_of_window == ("mochi-chat", 8192)


async def test_patch_keeps_a_window_that_a_turn_stores_meanwhile(services: Services) -> None:
    sessions, store, session_id = await create_service(services)
    session = await store.load(session_id)
    turn = turn_allocation(
        services.gateway, await services.fleet.find_model(MODEL), session, session.history
    )
    turn.decision = WindowDecision(16_384, "usage_threshold")
    store.earlier = lambda: save_window(turn, session, store)
    await sessions.patch(session_id, {"context_window": {"current_window": 2048}})
    await services.fleet.aclose()
    config = (await store.load(session_id)).metadata.context_window_config
    assert [entry["window"] for entry in config["adjustment_history"]] == [16_384, 2048]
