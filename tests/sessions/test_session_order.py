"""Tags, pins, the archive and temporary sessions in all stores."""

import time
from typing import Any

import pytest

from mochi_server.sessions import SessionManager, SessionQuery, SessionStore
from mochi_server.sessions.change import Change
from mochi_server.sessions.session import ChatSession, forked
from mochi_server.util.clock import as_datetime, as_text, timestamp
from tests.sessions.samples import assistant, new_session, read_count, stored_session, user
from tests.support.cases import cases

AN_HOUR = 3600.0


async def created(store: SessionStore, title: str, **fields: Any) -> str:
    """Store a session with these metadata fields, and return its ID."""
    session = new_session()
    session.metadata.title = title
    for name, value in fields.items():
        setattr(session.metadata, name, value)
    return (await store.create(session)).session_id


async def titles(store: SessionStore, query: SessionQuery) -> list[str]:
    page = await store.list(query)
    if query.limit is None:
        assert page.total == len(page.entries)
    return [entry["title"] for entry in page.entries]


@pytest.fixture
async def filled(store: SessionStore) -> SessionStore:
    """A store with four sessions. `D` is the newest one."""
    await created(store, "A bread", tags=["work", "home"], pinned=True)
    await created(store, "B bread", tags=["work"], archived=True)
    await created(store, "C soup", pinned=True, archived=True, owner="ann")
    await created(store, "D soup", tags=["work"], temporary=True)
    return store


@cases(
    ("query", "expected"),
    [
        (SessionQuery(), "DCBA"),
        (SessionQuery(tags=("work",)), "DBA"),
        (SessionQuery(tags=("home",)), "A"),
        (SessionQuery(tags=("Work",)), ""),
        (SessionQuery(tags=("work", "home")), "A"),
        (SessionQuery(tags=("work", "work")), "DBA"),
        (SessionQuery(tags=("work", "play")), ""),
        (SessionQuery(archived=True), "CB"),
        (SessionQuery(archived=False), "DA"),
        (SessionQuery(temporary=True), "D"),
        (SessionQuery(temporary=False), "CBA"),
        (SessionQuery(pinned_first=True), "CADB"),
        (SessionQuery(pinned_first=True, limit=2, offset=1), "AD"),
        (SessionQuery(tags=("work",), archived=False, temporary=False), "A"),
        (SessionQuery(text="bread", archived=True), "B"),
        (SessionQuery(text="soup", pinned_first=True, temporary=False), "C"),
        (SessionQuery(owner="ann", archived=True), "C"),
        (SessionQuery(owner="ann", tags=("work",)), ""),
    ],
)
async def test_filters_and_pins_of_a_list(
    filled: SessionStore, query: SessionQuery, expected: str
) -> None:
    assert "".join(title[0] for title in await titles(filled, query)) == expected


async def test_list_after_changes(filled: SessionStore) -> None:
    ids = {
        entry["title"][0]: entry["session_id"]
        for entry in (await filled.list(SessionQuery())).entries
    }
    await filled.patch(ids["A"], {"tags": ["home"], "archived": True})
    await filled.patch(ids["D"], {"temporary": None, "tags": None})
    await filled.delete(ids["B"])
    assert await titles(filled, SessionQuery(tags=("work",))) == []
    assert await titles(filled, SessionQuery(tags=("home",), archived=True)) == ["A bread"]
    assert await titles(filled, SessionQuery(temporary=True)) == []
    assert await filled.count_tags(SessionQuery()) == {"home": 1}


async def test_tags_are_counted(filled: SessionStore) -> None:
    assert await filled.count_tags(SessionQuery()) == {"work": 3, "home": 1}
    assert await filled.count_tags(SessionQuery(archived=True)) == {"work": 1}
    assert await filled.count_tags(SessionQuery(temporary=False)) == {"work": 2, "home": 1}
    assert await filled.count_tags(SessionQuery(owner="ann")) == {}
    assert await filled.count_tags(SessionQuery(tags=("home",))) == {"work": 1, "home": 1}


async def test_fields_are_stored_and_reset(store: SessionStore) -> None:
    expires_at = "2027-01-31T12:00:00+00:00"
    changes = {
        "tags": ["a, b", "ÄÖ"],
        "pinned": True,
        "archived": True,
        "temporary": True,
        "expires_at": expires_at,
    }
    session_id = await created(store, "A")
    await store.patch(session_id, changes)
    entry = (await store.load(session_id)).summary_object()
    assert {name: entry[name] for name in changes} == changes
    await store.patch(session_id, dict.fromkeys(changes))
    entry = (await store.load(session_id)).summary_object()
    assert {name: entry[name] for name in changes} == {
        "tags": [],
        "pinned": False,
        "archived": False,
        "temporary": False,
        "expires_at": None,
    }


async def test_tags_set_during_a_turn_are_found(store: SessionStore) -> None:
    session_id = await created(store, "A")
    async with store.hold(session_id, run_id="r"):
        await store.write(session_id, Change([user("Hello")]))
        await store.write(session_id, Change(partial=assistant("so far")))
        await store.patch(session_id, {"tags": ["work"]})
        assert await titles(store, SessionQuery(tags=("work",))) == ["A"]
    assert await titles(store, SessionQuery(tags=("work",))) == ["A"]


async def test_patch_can_keep_the_time(store: SessionStore) -> None:
    first = await stored_session(store, user("1"))
    second = await stored_session(store, user("2"))
    changed = await store.patch(first.session_id, {"title": "One"}, touch=False)
    assert changed.metadata.updated_at == first.metadata.updated_at
    assert await titles(store, SessionQuery()) == ["2", "One"]
    touched = await store.patch(second.session_id, {"title": "Two"})
    assert touched.metadata.updated_at > second.metadata.updated_at


async def test_expired_sessions_are_found(store: SessionStore) -> None:
    moment = time.time()
    times = [as_text(as_datetime(moment + seconds)) for seconds in (-AN_HOUR, AN_HOUR)]
    past = await created(store, "A", expires_at=times[0])
    future = await created(store, "B", expires_at=times[1])
    temporary = await created(store, "C", temporary=True)
    await created(store, "D", tags=["work"], pinned=True)
    assert await store.expired(AN_HOUR, moment) == [past]
    later = await store.expired(AN_HOUR, moment + 2 * AN_HOUR)
    assert sorted(later) == sorted([past, future, temporary])
    await store.patch(temporary, {"temporary": False})
    await store.patch(past, {"expires_at": None})
    assert await store.expired(AN_HOUR, moment + 2 * AN_HOUR) == [future]


async def test_expired_session_is_found_again_by_its_metadata(store: SessionStore) -> None:
    session_id = await created(store, "A", temporary=True)
    metadata = (await store.load(session_id)).metadata
    changed = timestamp(metadata.updated_at)
    assert not metadata.has_expired(AN_HOUR, changed + AN_HOUR - 1)
    assert metadata.has_expired(AN_HOUR, changed + AN_HOUR)


def test_index_answers_without_reading_sessions(
    manager: SessionManager, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.update_session(ids[1], tags=["work"], temporary=True)
    manager.list_sessions()
    reads = read_count(monkeypatch)
    directory = manager._use.directory
    page = directory.list(SessionQuery(tags=("work",), pinned_first=True, archived=False))
    assert [entry["session_id"] for entry in page.entries] == [ids[1]]
    assert directory.count_tags(SessionQuery()) == {"work": 1}
    assert directory.expired(0, time.time() + 1) == [ids[1]]
    assert reads() == 0


def test_fork_keeps_tags_and_the_end_but_neither_pin_nor_archive() -> None:
    session = new_session()
    metadata = session.metadata
    metadata.tags, metadata.temporary = ["work"], True
    metadata.pinned = metadata.archived = True
    fork = forked(session).metadata
    assert (fork.tags, fork.temporary) == (["work"], True)
    assert (fork.pinned, fork.archived) == (False, False)


@cases(
    ("name", "stored"),
    [
        ("tags", "work"),
        ("tags", None),
        ("pinned", 1),
        ("archived", "yes"),
        ("temporary", {}),
        ("expires_at", 12),
        ("expires_at", "tomorrow"),
    ],
)
def test_invalid_stored_value_is_the_default(name: str, stored: object) -> None:
    file = new_session().to_dict()
    defaults = ChatSession.from_dict(file).summary_object()
    file["metadata"][name] = stored
    assert ChatSession.from_dict(file).summary_object() == defaults


def test_duplicate_and_invalid_tags_are_left_out() -> None:
    file = new_session().to_dict()
    file["metadata"]["tags"] = ["work", 1, None, "home", "work"]
    assert ChatSession.from_dict(file).metadata.tags == ["work", "home"]


def test_file_without_order_has_no_new_fields() -> None:
    metadata = new_session().to_dict()["metadata"]
    assert metadata.keys().isdisjoint({"tags", "pinned", "archived", "temporary", "expires_at"})
