"""Tags, pins, the archive and temporary sessions over HTTP."""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest

from mochi_server.sessions import SessionManager
from mochi_stub import StubServer
from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.holding import GatedStub
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.tools import NOTE_TOOL, write_tools
from tests.support.waiting import until

PAST = "2020-01-01T00:00:00+00:00"
AN_HOUR = timedelta(hours=1)
A_SECOND_IN_HOURS = 1 / 3600


def titles(api: Api, **params: Any) -> list[str]:
    response = api.http.get("/sessions", params=params)
    listed = [entry["title"] for entry in api.ok(response)["sessions"]]
    assert response.headers["X-Total-Count"] == str(len(listed))
    return listed


def message_of(response: httpx.Response) -> str:
    """Return the text of an error of validation."""
    assert error_of(response) == (422, "VALIDATION_ERROR")
    return str(response.json()["error"]["message"])


def in_an_hour() -> str:
    return (datetime.now(timezone.utc) + AN_HOUR).isoformat()


@pytest.mark.two_servers
@cases("change", [{"pinned": True}, {"tags": ["work"]}, {"archived": True}])
def test_sorting_a_session_leaves_it_where_it_was(private_api: Api, change: dict[str, Any]) -> None:
    api = private_api
    older = api.create_session("mochi", title="A")
    newer = api.create_session("mochi", title="B")
    changed = api.ok(api.http.patch(f"/sessions/{older['session_id']}", json=change))
    assert changed["updated_at"] == older["updated_at"]
    listed = api.ok(api.http.get("/sessions"))["sessions"]
    shown = [entry["session_id"] for entry in listed]
    assert shown.index(newer["session_id"]) < shown.index(older["session_id"])


@pytest.mark.two_servers
def test_lists_are_filtered_and_begin_with_pins(private_api: Api) -> None:
    api = private_api
    created = api.create_session("mochi", title="A", tags=["work", "home"], pinned=True)
    api.create_session("mochi", title="B", tags=["work"], archived=True)
    api.create_session("mochi", title="C", tags=["play"], temporary=True)
    api.create_session("mochi", title="D")
    assert (created["tags"], created["pinned"], created["archived"]) == (
        ["work", "home"],
        True,
        False,
    )
    assert titles(api) == ["D", "B", "A"]
    assert titles(api, pinned="first") == ["A", "D", "B"]
    assert titles(api, tag="work") == ["B", "A"]
    assert titles(api, tag=["work", "home"]) == ["A"]
    assert titles(api, tag=["home", "play"]) == []
    assert titles(api, archived=True) == ["B"]
    assert titles(api, archived=False, pinned="first") == ["A", "D"]
    assert titles(api, temporary=True) == ["C"]
    assert titles(api, q="c") == []
    tags = api.ok(api.http.get("/sessions/tags"))["tags"]
    assert tags == [{"tag": "work", "count": 2}, {"tag": "home", "count": 1}]
    tags = api.ok(api.http.get("/sessions/tags", params={"archived": False}))["tags"]
    assert tags == [{"tag": "home", "count": 1}, {"tag": "work", "count": 1}]


@pytest.mark.two_servers
def test_patch_changes_and_clears_the_order(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    changes = {
        "tags": [" work ", "work", "home"],
        "pinned": True,
        "archived": True,
        "temporary": True,
    }
    response = api.http.patch(f"/sessions/{session_id}", json=changes)
    changed = api.ok(response)
    assert changed["tags"] == ["work", "home"]
    assert all(changed[name] for name in ("pinned", "archived", "temporary"))
    expires_at = "2999-12-31T23:00:00+02:00"
    changed = api.ok(api.http.patch(f"/sessions/{session_id}", json={"expires_at": expires_at}))
    assert changed["expires_at"] == "2999-12-31T21:00:00.000000+00:00"
    cleared = dict.fromkeys(["tags", "pinned", "archived", "temporary", "expires_at"])
    api.ok(api.http.patch(f"/sessions/{session_id}", json=cleared))
    stored = api.session(session_id)
    assert {name: stored[name] for name in cleared} == {
        "tags": [],
        "pinned": False,
        "archived": False,
        "temporary": False,
        "expires_at": None,
    }


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000000+00:00"),
        ("9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59.999999+00:00"),
    ],
)
@pytest.mark.two_servers
def test_latest_times_are_kept(api: Api, sent: str, stored: str) -> None:
    created = api.create_session("mochi", expires_at=sent)
    assert created["expires_at"] == stored
    assert api.session(created["session_id"])["expires_at"] == stored


@cases(
    ("field", "value", "reason"),
    [
        ("tags", "work", "Input should be a valid list"),
        ("tags", [""], "must be one line that is not blank"),
        ("tags", ["a\nb"], "must be one line that is not blank"),
        ("tags", ["a" * 101], "at most 100 characters"),
        ("tags", [str(number) for number in range(51)], "at most 50 items"),
        ("pinned", "yes", "Input should be a valid boolean"),
        ("temporary", 1, "Input should be a valid boolean"),
        ("expires_at", "2020-01-01T00:00:00Z", "must be in the future"),
        ("expires_at", "2999-01-01T00:00:00", "must be a time with a time zone, such as 2030-"),
        ("expires_at", "tomorrow", "must be a time with a time zone, such as 2030-"),
        ("expires_at", 32503680000, "Input should be a valid string"),
        ("expires_at", "4102444800", "must be a time with a time zone, such as 2030-"),
        ("expires_at", "+4102444800.5", "must be a time with a time zone, such as 2030-"),
        ("expires_at", "9999-12-31T23:59:59-23:59", None),
    ],
)
def test_invalid_order_is_refused(api: Api, field: str, value: object, reason: str | None) -> None:
    for response in (
        api.http.post("/sessions", json={"model": "mochi", field: value}),
        api.http.patch(
            f"/sessions/{api.create_session('mochi')['session_id']}", json={field: value}
        ),
    ):
        if reason is None:
            assert response.status_code < 300
        else:
            assert reason in message_of(response)
            assert field in message_of(response)


@cases(
    ("params", "field"),
    [
        ({"tag": ""}, "tag"),
        ({"tag": "a\0b"}, "tag"),
        ({"tag": ["work", ""]}, "tag"),
        ({"tag": ["work"] * 51}, "tag"),
        ({"owner": "a\0b"}, "owner"),
        ({"archived": "maybe"}, "archived"),
        ({"temporary": "2"}, "temporary"),
        ({"pinned": "last"}, "pinned"),
    ],
)
def test_invalid_filter_is_refused(api: Api, params: dict[str, Any], field: str) -> None:
    assert field in message_of(api.http.get("/sessions", params=params))


@pytest.mark.two_servers
@pytest.mark.parametrize("path", ["/sessions/tags", "/agents/chats"])
def test_owner_with_a_nul_character_is_refused(api: Api, path: str) -> None:
    response = api.http.get(path, params={"owner": "\0"})
    assert message_of(response) == "query.owner: must not contain NUL characters"


@pytest.mark.two_servers
def test_imported_session_is_kept(private_api: Api) -> None:
    api = private_api
    expires_at = in_an_hour()
    session_id = api.create_session(
        "mochi", tags=["work"], pinned=True, temporary=True, expires_at=expires_at
    )["session_id"]
    exported = api.http.get(f"/sessions/{session_id}/export").content
    assert expires_at.encode() in exported
    headers = {"Content-Type": "application/json"}
    imported = api.http.post("/sessions/import", content=exported, headers=headers)
    (entry,) = api.ok(imported, 201)["sessions"]
    assert (entry["tags"], entry["pinned"]) == (["work"], True)
    assert (entry["temporary"], entry["expires_at"]) == (False, None)


@pytest.fixture
def sweeping(stub: StubServer, tmp_path: Path) -> Iterator[Api]:
    """A server that deletes temporary sessions after a second, with a tool."""
    write_tools(tmp_path, NOTE_TOOL)
    hours = A_SECOND_IN_HOURS
    with RunningServer(tmp_path, stub.url, temporary_session_hours=hours) as server:
        yield server.api()


def is_deleted(api: Api, session_id: str) -> bool:
    return api.http.get(f"/sessions/{session_id}").status_code == 404


def wait_for_deletion(api: Api, session_id: str) -> None:
    until(lambda: is_deleted(api, session_id))


def wait_for_sweeps(api: Api) -> None:
    """Wait until the server has deleted what had expired before this call."""
    for _ in range(2):
        wait_for_deletion(api, api.create_session("mochi", temporary=True)["session_id"])


def make_temporary(api: Api, session_id: str) -> None:
    """Make a session temporary after its turn has begun, because it might expire before."""
    api.ok(api.http.patch(f"/sessions/{session_id}", json={"temporary": True}))


@pytest.mark.two_servers
def test_expired_sessions_are_deleted_and_others_remain(sweeping: Api) -> None:
    kept = sweeping.create_session("mochi", title="Kept", pinned=True)["session_id"]
    temporary = sweeping.create_session("mochi", temporary=True)["session_id"]
    later = sweeping.create_session("mochi", expires_at=in_an_hour())["session_id"]
    wait_for_deletion(sweeping, temporary)
    assert not is_deleted(sweeping, kept)
    assert not is_deleted(sweeping, later)


@pytest.mark.two_servers
def test_turn_that_waits_keeps_a_temporary_session(sweeping: Api) -> None:
    settings = {"tools": ["note"]}
    session_id = sweeping.create_session("mochi", tool_settings=settings)["session_id"]
    message = instruct(calls("note", text="x"), words(2))
    body = {"message": message, "background": True}
    sweeping.ok(sweeping.http.post(f"/chat/{session_id}", json=body), 202)
    confirmations = f"/chat/{session_id}/confirmations"
    until(lambda: sweeping.ok(sweeping.http.get(confirmations))["confirmations"])
    make_temporary(sweeping, session_id)
    wait_for_sweeps(sweeping)
    (waiting,) = sweeping.ok(sweeping.http.get(confirmations))["confirmations"]
    decision = {"confirmation_id": waiting["confirmation_id"], "approved": True}
    sweeping.ok(sweeping.http.post(f"/chat/{session_id}/confirm-tool", json=decision))
    wait_for_deletion(sweeping, session_id)


def test_running_turn_keeps_its_session(holding: GatedStub, tmp_path: Path) -> None:
    hours = A_SECOND_IN_HOURS
    with RunningServer(tmp_path, holding.stub.url, temporary_session_hours=hours) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "hold") as events:
            next(events)
            make_temporary(api, session_id)
            wait_for_sweeps(api)
            assert not is_deleted(api, session_id)
            holding.gate.open()
            assert [event.type for event in events][-1] == "done"
        wait_for_deletion(api, session_id)


def test_sessions_that_expired_while_no_server_ran_are_deleted(
    stub: StubServer, tmp_path: Path
) -> None:
    with RunningServer(tmp_path, stub.url) as server:
        directory = server.settings.resolved_sessions_dir
        api = server.api()
        session_id = api.create_session("mochi", temporary=True)["session_id"]
    with SessionManager(directory) as manager:
        manager.update_session(session_id, expires_at=PAST)
    with RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        wait_for_deletion(api, session_id)


def test_waiting_turn_of_a_session_past_its_end_is_deleted(
    stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, NOTE_TOOL)
    settings: dict[str, Any] = {"park_seconds": 0, "temporary_session_hours": A_SECOND_IN_HOURS}
    with RunningServer(tmp_path, stub.url, **settings) as server:
        api = server.api()
        session_id = api.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
        message = instruct(calls("note", text="x"), words(2))
        with api.open_stream(session_id, message) as events:
            asked = (event.type == "tool_call_confirmation_required" for event in events)
            assert any(asked)
            with SessionManager(server.settings.resolved_sessions_dir) as manager:
                manager.update_session(session_id, expires_at=PAST)
            assert [event.type for event in events][-2:] == ["stopped", "done"]
        wait_for_deletion(api, session_id)
