"""Versions over HTTP: edits and regenerations, forks, exports and imports."""

from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from mochi_server.sessions import versions as limits
from mochi_stub import StubServer
from tests.support.api import Api, Event, error_of, types_of
from tests.support.cases import cases
from tests.support.holding import GatedStub
from tests.support.images import PNG
from tests.support.server import RunningServer
from tests.support.versions import full_file

pytestmark = pytest.mark.two_servers
JSON = {"Content-Type": "application/json"}


def answered(api: Api, *messages: str) -> str:
    """Create a session, send these messages and return its ID."""
    session_id = str(api.create_session("mochi")["session_id"])
    for message in messages:
        api.send_message(session_id, message)
    return session_id


def edit(api: Api, session_id: str, index: int, text: str) -> dict[str, Any]:
    path = f"/sessions/{session_id}/messages/{index}"
    return api.ok(api.http.put(path, json={"content": text}))


def listed(api: Api, session_id: str, message_id: str) -> list[dict[str, Any]]:
    path = f"/sessions/{session_id}/versions"
    found: list[dict[str, Any]] = api.ok(api.http.get(path, params={"message_id": message_id}))[
        "versions"
    ]
    return found


def select(api: Api, session_id: str, version_id: object) -> httpx.Response:
    return api.http.post(f"/sessions/{session_id}/versions/{version_id}/select")


def texts(session: dict[str, Any]) -> list[str]:
    return [message["content"] for message in session["messages"]]


def counts(session: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Return the count and the number of the shown version, by index of the message."""
    ids = [message["message_id"] for message in session["messages"]]
    return {
        ids.index(message_id): (each["count"], each["shown"])
        for message_id, each in session["versions"].items()
    }


def codes(events: Iterable[Event]) -> list[str]:
    """Return the codes of the warnings."""
    return [event.data["code"] for event in events if event.type == "warning"]


def imported(api: Api, file: bytes) -> dict[str, Any]:
    """Import a file and return its session."""
    stored = api.ok(api.http.post("/sessions/import", content=file, headers=JSON), 201)
    assert stored["warnings"] == []
    return api.session(stored["sessions"][0]["session_id"])


def test_regenerated_answers_are_versions(api: Api) -> None:
    session_id = answered(api, "Hi")
    first = api.session(session_id)
    assert first["versions"] == {}
    api.send_message(session_id)
    api.send_message(session_id)
    session = api.session(session_id)
    assert counts(session) == {1: (3, 3)}
    answer = session["messages"][1]
    versions = listed(api, session_id, answer["message_id"])
    assert [version["is_shown"] for version in versions] == [False, False, True]
    assert versions[0] == {
        "version_id": versions[0]["version_id"],
        "is_shown": False,
        "created_at": first["messages"][1]["timestamp"],
        "model": "mochi",
        "preview": first["messages"][1]["content"][:200],
        "message_count": 1,
    }
    assert versions[2]["version_id"] is None
    shown = api.ok(select(api, session_id, versions[0]["version_id"]))
    assert shown["warnings"] == []
    assert shown["messages"] == first["messages"]
    assert counts(shown) == {1: (3, 1)}
    assert api.session(session_id)["messages"] == first["messages"]


def test_edited_message_brings_back_what_came_after_it(api: Api) -> None:
    session_id = answered(api, "One", "Two")
    before = api.session(session_id)
    edited = edit(api, session_id, 0, "Uno")
    assert edited["warnings"] == []
    assert texts(edited) == ["Uno"]
    api.send_message(session_id)
    session = api.session(session_id)
    assert counts(session) == {0: (2, 2)}
    versions = listed(api, session_id, session["messages"][0]["message_id"])
    assert [version["message_count"] for version in versions] == [4, 2]
    assert [version["preview"] for version in versions] == ["One", "Uno"]
    shown = api.ok(select(api, session_id, versions[0]["version_id"]))
    assert shown["messages"] == before["messages"]
    assert counts(shown) == {0: (2, 1)}


def test_message_without_versions_lists_the_shown_messages(api: Api) -> None:
    session_id = answered(api, "Hi")
    message_id = api.session(session_id)["messages"][1]["message_id"]
    (version,) = listed(api, session_id, message_id)
    assert version["is_shown"]


def test_versions_are_deleted(api: Api) -> None:
    session_id = answered(api, "Hi")
    api.send_message(session_id)
    session = api.session(session_id)
    params = {"message_id": session["messages"][1]["message_id"]}
    for _ in range(2):
        response = api.http.delete(f"/sessions/{session_id}/versions", params=params)
        assert response.status_code == 204
    after = api.session(session_id)
    assert after["versions"] == {}
    assert after["messages"] == session["messages"]


def test_unknown_versions_and_messages(api: Api) -> None:
    session_id = answered(api, "Hi")
    path = f"/sessions/{session_id}/versions"
    unknown = select(api, session_id, "0123456789")
    assert error_of(unknown) == (404, "VERSION_NOT_FOUND")
    assert "'0123456789'" in unknown.text
    for send in (api.http.get, api.http.delete):
        response = send(path, params={"message_id": "nope"})
        assert error_of(response) == (400, "INVALID_MESSAGE_INDEX")
        assert error_of(send(path)) == (422, "VALIDATION_ERROR")


def test_version_inside_another_one_is_not_selected(api: Api) -> None:
    session_id = answered(api, "Hi")
    api.send_message(session_id)
    answer_id = api.session(session_id)["messages"][1]["message_id"]
    inner = listed(api, session_id, answer_id)[0]["version_id"]
    edit(api, session_id, 0, "Hello")
    assert error_of(select(api, session_id, inner)) == (404, "VERSION_NOT_FOUND")


def test_nothing_changes_while_a_turn_runs(
    holding: GatedStub, holding_server: RunningServer
) -> None:
    api = holding_server.api()
    session_id = answered(api, "Hi")
    api.send_message(session_id)
    message_id = api.session(session_id)["messages"][1]["message_id"]
    version = listed(api, session_id, message_id)[0]["version_id"]
    with api.open_stream(session_id, "hold") as events:
        next(events)
        assert error_of(select(api, session_id, version)) == (409, "SESSION_BUSY")
        path = f"/sessions/{session_id}/versions"
        deleted = api.http.delete(path, params={"message_id": message_id})
        assert error_of(deleted) == (409, "SESSION_BUSY")
    holding.gate.open()


def test_fork_has_versions_on_request(api: Api) -> None:
    session_id = answered(api, "One", "Two")
    api.send_message(session_id)
    path = f"/sessions/{session_id}/fork"
    assert api.ok(api.http.post(path), 201)["versions"] == {}
    copied = api.ok(api.http.post(path, params={"versions": "true"}), 201)
    assert counts(copied) == {3: (2, 2)}
    part = {"message_index": 1}
    start = api.ok(api.http.post(path, params={"versions": "true"}, json=part), 201)
    assert start["versions"] == {}
    versions = listed(api, copied["session_id"], copied["messages"][3]["message_id"])
    api.ok(select(api, copied["session_id"], versions[0]["version_id"]))
    assert counts(api.session(session_id)) == {3: (2, 2)}


def test_export_has_versions_on_request_and_an_import_reads_them(api: Api) -> None:
    session_id = str(api.create_session("echo")["session_id"])
    api.send_message(session_id, "Hi")
    picture = b64encode(PNG).decode()
    api.send_message(session_id, "Look", images=[picture])
    edit(api, session_id, 2, "Do not look")
    edit(api, session_id, 0, "Hello")
    path = f"/sessions/{session_id}/export"
    plain = api.http.get(path).content
    assert b"versions" not in plain
    assert imported(api, plain)["versions"] == {}
    file = api.http.get(path, params={"versions": "true"}).content
    copied = imported(api, file)
    new_id = copied["session_id"]
    assert counts(copied) == {0: (2, 2)}
    outer = listed(api, new_id, copied["messages"][0]["message_id"])[0]
    shown = api.ok(select(api, new_id, outer["version_id"]))
    assert counts(shown) == {0: (2, 1), 2: (2, 2)}
    inner = listed(api, new_id, shown["messages"][2]["message_id"])[0]
    with_picture = api.ok(select(api, new_id, inner["version_id"]))
    (image,) = with_picture["messages"][2]["images"]
    assert api.http.get(f"/sessions/{new_id}/blobs/{image['sha256']}").content == PNG


@pytest.mark.parametrize("has_model", [True, False])
def test_selected_answer_is_not_that_of_the_last_turn(
    stub: StubServer, tmp_path: Path, has_model: bool
) -> None:
    """Answers of other programs have no model."""
    answer = {"role": "assistant", "content": "In autumn."}
    if has_model:
        answer["model"] = "mochi"
    messages = [{"role": "user", "content": "When do I plant tulips?"}, answer]
    file = {"metadata": {"model": "mochi"}, "messages": messages}
    with RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = imported(api, orjson.dumps(file))["session_id"]
        answer_id = api.send_message(session_id)["message"]["message_id"]
        version = listed(api, session_id, answer_id)[0]["version_id"]
        api.ok(select(api, session_id, version))
    with RunningServer(tmp_path, stub.url) as server:  # has only what is stored of the turn
        api = server.api()
        run = api.ok(api.http.get(f"/chat/{session_id}/run"))
        assert (run["state"], run["answer_id"]) == ("completed", None)
        events = api.http.get(f"/chat/{session_id}/stream").text
        assert "In autumn." not in events
        assert "message_complete" not in events
        assert api.http.delete(f"/sessions/{session_id}").status_code == 204


def test_turn_of_a_file_with_an_answer_without_model_has_ended(api: Api) -> None:
    session_id = answered(api, "Hi")
    file = api.ok(api.http.get(f"/sessions/{session_id}/export"))
    del file["messages"][1]["model"]
    copied = imported(api, orjson.dumps(file))["session_id"]
    assert api.ok(api.http.get(f"/chat/{copied}/run"))["state"] == "completed"
    assert api.http.delete(f"/sessions/{copied}").status_code == 204


def test_markdown_has_no_versions(api: Api) -> None:
    session_id = answered(api, "Hi")
    params = {"format": "markdown", "versions": "true"}
    response = api.http.get(f"/sessions/{session_id}/export", params=params)
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert "Markdown files have no versions." in response.text


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ({"message_id": "a", "messages": [{"role": "user", "content": "x"}]}, "version_id"),
        ({"version_id": "v", "messages": [{"role": "user", "content": "x"}]}, "message_id"),
        ({"version_id": "v", "message_id": "a", "messages": []}, "messages"),
        ({"version_id": "v", "message_id": "a", "messages": [{"role": "x"}]}, "role"),
        ("v", "versions"),
    ],
)
def test_malformed_versions_of_a_file(api: Api, version: object, problem: str) -> None:
    file = {
        "metadata": {"model": "mochi"},
        "messages": [{"role": "user", "content": "x", "message_id": "a"}],
        "versions": [version],
    }
    response = api.http.post("/sessions/import", json=file)
    assert error_of(response) == (422, "VALIDATION_ERROR")
    message = response.json()["error"]["message"]
    assert message.startswith("Item 0 of the file cannot be imported: versions.0")
    assert problem in message


VERSION = {"version_id": "v", "message_id": "a", "messages": [{"role": "user", "content": "x"}]}


@cases(
    ("message_id", "version", "field"),
    [
        ("a\0", {}, "messages.0.message_id"),
        ("a", {"version_id": "v\0"}, "versions.0.version_id"),
        ("a", {"message_id": "a\0"}, "versions.0.message_id"),
        ("a", {"inside": "v\0"}, "versions.0.inside"),
        ("a", {"replaced_at": "\0"}, "versions.0.replaced_at"),
    ],
)
def test_import_refuses_nul_characters_in_ids(
    api: Api, message_id: str, version: dict[str, str], field: str
) -> None:
    """PostgreSQL could not store them with the next edit."""
    file = {
        "metadata": {"model": "mochi"},
        "messages": [{"role": "user", "content": "x", "message_id": message_id}],
        "versions": [VERSION | version],
    }
    response = api.http.post("/sessions/import", json=file)
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert f"{field}: must not contain NUL characters" in response.text


def test_import_omits_invalid_images_of_versions(api: Api) -> None:
    message = {"role": "user", "content": "x", "message_id": "a"}
    version = {"version_id": "v", "message_id": "a", "messages": [{**message, "images": 5}]}
    file = {"metadata": {"model": "mochi"}, "messages": [message], "versions": [version]}
    session = imported(api, orjson.dumps(file))
    other, _ = listed(api, session["session_id"], "a")
    assert "images" not in other


def test_import_warns_about_versions_that_exceed_the_number(api: Api) -> None:
    message = {"role": "user", "content": "x", "message_id": "a"}
    versions = [
        {"version_id": f"v{number}", "message_id": "a", "messages": [message]}
        for number in range(limits.MAX_VERSIONS + 2)
    ]
    file = {"metadata": {"model": "mochi"}, "messages": [message], "versions": versions}
    stored = api.ok(
        api.http.post("/sessions/import", content=orjson.dumps(file), headers=JSON), 201
    )
    (warning,) = stored["warnings"]
    assert warning["code"] == "VERSIONS_REMOVED"
    assert warning["message"].startswith("The oldest versions of the session were removed: 2.")


def test_turn_and_edit_warn_about_versions_that_exceed_the_number(api: Api) -> None:
    session_id = answered(api, "Hi")
    for number in range(limits.MAX_VERSIONS):
        assert edit(api, session_id, 0, str(number))["warnings"] == []
    (warning,) = edit(api, session_id, 0, "x")["warnings"]
    assert warning["code"] == "VERSIONS_REMOVED"
    api.send_message(session_id)
    events = api.stream_message(session_id, None)
    assert codes(events) == ["VERSIONS_REMOVED"]
    assert events[-1].type == "done"


def test_stopped_answer_warns_about_versions_that_exceed_the_number(
    holding: GatedStub, holding_server: RunningServer
) -> None:
    del holding  # its gate stays closed
    api = holding_server.api()
    session_id = imported(api, orjson.dumps(full_file("hold")))["session_id"]
    with api.open_stream(session_id) as events:
        next(event for event in events if event.type == "content_delta")
        api.ok(api.http.post(f"/chat/{session_id}/stop"))
        rest = list(events)
    assert codes(rest) == ["VERSIONS_REMOVED"]
    assert types_of(rest)[-3:] == ["warning", "stopped", "done"]
    assert counts(api.session(session_id)) == {1: (limits.MAX_VERSIONS + 1,) * 2}
