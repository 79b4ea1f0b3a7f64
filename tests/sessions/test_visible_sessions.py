"""The view of one caller's sessions: sessions of other owners do not exist in it."""

from collections.abc import Iterator

import pytest

from mochi_server.errors import SessionNotFound
from mochi_server.sessions import ChatSession, MemorySessionStore, SessionCreationOptions
from mochi_server.sessions.caller import CALLER, Caller
from mochi_server.sessions.store import SessionStore, VisibleSessions


@pytest.fixture
def other_caller() -> Iterator[None]:
    token = CALLER.set(Caller(key="other", owner="other", sees_all=False))
    yield
    CALLER.reset(token)


@pytest.fixture
def store() -> MemorySessionStore:
    return MemorySessionStore()


@pytest.fixture
def view(store: MemorySessionStore) -> SessionStore:
    return VisibleSessions(store)


def session_of_owner(owner: str) -> ChatSession:
    session = ChatSession.create(SessionCreationOptions(model="llama3:8b"))
    session.metadata.owner = owner
    return session


@pytest.mark.usefixtures("other_caller")
async def test_session_of_another_owner_cannot_be_replaced(
    store: MemorySessionStore, view: SessionStore
) -> None:
    stored = await store.create(session_of_owner("first"))
    with pytest.raises(SessionNotFound):
        await view.put(stored)


@pytest.mark.usefixtures("other_caller")
async def test_session_of_another_owner_cannot_be_locked(
    store: MemorySessionStore, view: SessionStore
) -> None:
    stored = await store.create(session_of_owner("first"))
    with pytest.raises(SessionNotFound):
        async with view.hold(stored.session_id):
            pass


@pytest.mark.usefixtures("other_caller")
async def test_only_the_server_finds_due_turns() -> None:
    class DueStore(MemorySessionStore):
        async def due_turns(self, until: float) -> dict[str, float]:
            return {"a1b2c3d4e5": until}

    assert await VisibleSessions(DueStore()).due_turns(1.0) == {}
