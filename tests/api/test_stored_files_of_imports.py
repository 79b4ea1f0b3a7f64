"""Session files after forks, imports and failed imports."""

from typing import Any

import orjson

from tests.api.test_managing import (  # noqa: F401 - fixtures
    GOOD,
    TOOL_ROUND,
    _import,
    listed_sessions,
    session_files,
    session_with_messages,
    shared_server,
    shared_stub,
)
from tests.support.api import Api, error_of
from tests.support.full_disk import largest_file
from tests.support.server import RunningServer

MEBIBYTE = 1024 * 1024


def without_id(session: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in session.items() if name != "session_id"}


def test_invalid_fork_requests_store_nothing(api: Api, server: RunningServer) -> None:
    session_id = session_with_messages(api, "One?")
    before = set(session_files(server))
    for unknown in (
        {"message_index": -1},
        {"message_index": 2},
        {"message_index": 10**9},
        {"message_id": "none"},
    ):
        response = api.http.post(f"/sessions/{session_id}/fork", json=unknown)
        assert error_of(response) == (400, "INVALID_MESSAGE_INDEX"), unknown
    malformed: object
    for malformed in (
        {"message_index": "0"},
        {"message_index": True},
        {"message_index": 0, "message_id": "x"},
        [],
    ):
        response = api.http.post(f"/sessions/{session_id}/fork", json=malformed)
        assert error_of(response) == (422, "VALIDATION_ERROR"), malformed
    assert set(session_files(server)) == before


def test_imported_export_is_equal_session(api: Api, server: RunningServer) -> None:
    settings = {"tools": ["add"], "execution_policy": "never_confirm"}
    session_id = session_with_messages(
        api, "One?", TOOL_ROUND, system_prompt="Be brief.", tool_settings=settings, title="Mine"
    )
    api.ok(api.http.post(f"/sessions/{session_id}/summarize"))
    file = server.settings.resolved_sessions_dir / f"{session_id}.json"
    stored = orjson.loads(file.read_bytes())
    stored["messages"][0]["images"] = ["abc"]
    stored |= {"of_others": {"kept": True}}
    stored["metadata"]["of_others"] = 1
    file.write_bytes(orjson.dumps(stored))

    response = api.http.get(f"/sessions/{session_id}/export")
    assert response.headers["content-type"] == "application/json"
    assert f'filename="{session_id}.json"' in response.headers["content-disposition"]
    assert orjson.loads(response.content) == stored
    before = len(listed_sessions(api))
    for times in (1, 2):
        (imported,) = api.ok(_import(api, response.content), 201)["sessions"]
        assert imported["session_id"] != session_id
        assert without_id(api.session(imported["session_id"])) == without_id(
            api.session(session_id)
        )
        again = api.ok(api.http.get(f"/sessions/{imported['session_id']}/export"))
        assert again["metadata"].pop("session_id") == imported["session_id"]
        assert again["metadata"] == without_id(stored["metadata"])
        assert again["messages"] == stored["messages"]
        assert again["of_others"] == {"kept": True}
        assert len(listed_sessions(api)) == before + times


def test_failed_import_is_rolled_back(api: Api, server: RunningServer) -> None:
    before = set(session_files(server))
    large = {**GOOD, "messages": [{"role": "user", "content": "x" * 3 * MEBIBYTE}]}
    with largest_file(2 * MEBIBYTE):
        assert error_of(_import(api, orjson.dumps([GOOD, GOOD, large, GOOD]))) == (
            500,
            "STORAGE_FAILED",
        )
    assert set(session_files(server)) == before
    assert _import(api, orjson.dumps([GOOD, GOOD, large, GOOD])).status_code == 201
