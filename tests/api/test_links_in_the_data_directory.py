"""Symbolic links in the data directory are not followed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.api.test_attacks import private_server, shared_outside, shared_server, shared_stub  # noqa: F401 - fixtures
from tests.support.api import Api, error_of
from tests.support.attacks import (
    CANARY,
    FilesOutside,
)
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words


@pytest.fixture
def outside(shared_outside: FilesOutside) -> FilesOutside:  # noqa: F811 - the fixture
    """The files around the data directory of `server`."""
    return shared_outside


@pytest.fixture
def private_outside(tmp_path: Path) -> FilesOutside:
    """The files around the data directory of `private_server`."""
    return FilesOutside(tmp_path)


def test_symlinks_to_other_sessions_are_not_followed(
    private_api: Api, private_outside: FilesOutside
) -> None:
    session_id = private_api.create_session("mochi", system_prompt=CANARY)["session_id"]
    elsewhere = private_outside.root / "elsewhere.json"
    (private_outside.data / "chat_sessions" / f"{session_id}.json").rename(elsewhere)
    before = elsewhere.read_bytes()
    for folder, kind in (("chat_sessions", "/sessions"), ("agents/agent_chats", "/agents/chats")):
        directory = private_outside.data / folder
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{session_id}.json").symlink_to(elsewhere)
        (directory / ".index.sqlite").unlink(missing_ok=True)
        (directory / ".index.sqlite").symlink_to(private_outside.root / "new.sqlite")

        assert private_api.ok(private_api.http.get(kind)) == {"sessions": []}
        assert error_of(private_api.http.get(f"{kind}/{session_id}")) == (404, "SESSION_NOT_FOUND")
        assert (
            error_of(private_api.http.post(f"/chat/{session_id}", json={"message": "x"}))[0] == 404
        )
        assert (
            error_of(private_api.http.patch(f"/sessions/{session_id}", json={"title": "x"}))[0]
            == 404
        )
        assert error_of(private_api.http.delete(f"/sessions/{session_id}"))[0] == 404
        assert elsewhere.read_bytes() == before
        assert not (private_outside.root / "new.sqlite").exists()
        (directory / f"{session_id}.json").unlink()


@cases("target", ["canary", "new.sqlite", "database.sqlite"])
def test_symlink_in_place_of_the_index_is_replaced(
    private_api: Api, private_outside: FilesOutside, target: str
) -> None:
    database = private_outside.root / "database.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE mine (x)")
    before = database.read_bytes()
    private_api.create_session("mochi")
    index = private_outside.data / "chat_sessions" / ".index.sqlite"
    index.unlink(missing_ok=True)
    index.symlink_to(private_outside.root / target)
    assert private_api.ok(private_api.http.get("/sessions"))["sessions"]
    assert not index.is_symlink()
    assert database.read_bytes() == before
    database.unlink()
    assert private_outside.is_untouched()


def test_symlink_in_place_of_a_turn_log_is_not_written(api: Api, outside: FilesOutside) -> None:
    session_id = api.create_session("mochi")["session_id"]
    (outside.data / "chat_sessions" / f".{session_id}.turn.jsonl").symlink_to(
        outside.root / "canary"
    )
    calling = instruct(
        calls("anything"), words(5)
    )  # a turn with two answers writes its log between them
    assert error_of(api.http.post(f"/chat/{session_id}", json={"message": calling})) == (
        500,
        "STORAGE_FAILED",
    )
    assert outside.is_untouched()
