"""Damaged rows of the database: each affects only its own session, which can be deleted or
replaced.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mochi_server.cli.store_copy import copy
from mochi_server.errors import SessionNotFound
from mochi_server.sessions import SessionQuery
from mochi_server.sessions.caller import CALLER, Caller
from mochi_server.sessions.change import Change, VersionChange
from mochi_server.sessions.store import VisibleSessions
from mochi_server.storage.postgres.database import Database, fetch_all
from mochi_server.storage.postgres.store import PostgresStores
from tests.sessions.samples import assistant, contents, new_session, stored_session, user
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow

METADATA = [
    "",
    "{",
    "[]",
    "null",
    "5",
    '"text"',
    "{}",
    '{"session_id": 5, "model": null}',
    "[" * 100_000,
]

_SET = {
    "metadata": "UPDATE sessions SET metadata = %s WHERE session_id = %s",
    "extra": "UPDATE sessions SET extra = %s WHERE session_id = %s",
    "opening": "UPDATE sessions SET opening = %s WHERE session_id = %s",
    "body": "UPDATE messages SET body = %s, change = messages.change + 1 FROM sessions "
    "WHERE key = session AND position = 1 AND session_id = %s",
}
_ROWS = {
    "sessions": "SELECT 1 FROM sessions",
    "messages": "SELECT 1 FROM messages",
    "partials": "SELECT 1 FROM partials",
}
_PARTIAL = (
    "INSERT INTO partials (session, body, position) SELECT key, %s, 2 FROM sessions WHERE "
    "session_id = %s"
)
_REMOVE_MESSAGE = (
    "DELETE FROM messages USING sessions WHERE key = session AND position = 1 AND session_id = %s"
)
_DAMAGE_VERSION = (
    "UPDATE versions SET messages = %s FROM sessions WHERE key = session AND number = 1 "
    "AND session_id = %s"
)


class Damage:
    """Stores of a database with a sound session and one that a test damages."""

    def __init__(
        self, stores: PostgresStores, database: Database, sound: str, damaged: str
    ) -> None:
        self.chats = stores.chats
        self.stores = stores
        self.sound, self.damaged = sound, damaged
        self._database = database

    async def write(self, statement: str, *values: object) -> None:
        async with self._database.transaction("damage a row") as connection:
            await connection.execute(statement, [*values])

    async def set_column(self, column: str, text: str) -> None:
        await self.write(_SET[column], text, self.damaged)

    async def set_message(self, body: str) -> None:
        """Damage the second message, so that it is read again although the session is cached."""
        await self.write(_SET["body"], body, self.damaged)
        await self.write(
            "UPDATE sessions SET change = change + 1 WHERE session_id = %s", self.damaged
        )

    async def rows(self, table: str) -> int:
        async with self._database.connection("count rows") as connection:
            return len(await fetch_all(connection, _ROWS[table]))

    async def listed(self, text: str | None = None) -> list[str]:
        return [
            entry["session_id"]
            for entry in (await self.chats.list(SessionQuery(text=text))).entries
        ]


@asynccontextmanager
async def damage(url: str) -> AsyncIterator[Damage]:
    stores, database = PostgresStores(url), Database(url)
    await stores.open()
    await database.open()
    try:
        ids = [
            (await stored_session(stores.chats, user("one"), assistant("two"))).session_id
            for _ in range(2)
        ]
        yield Damage(stores, database, *ids)
    finally:
        await database.aclose()
        await stores.aclose()


def warnings(caplog: pytest.LogCaptureFixture, session_id: str) -> list[str]:
    texts = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [text for text in texts if session_id in text]


@pytest.mark.parametrize("text", METADATA, ids=[text[:20] for text in METADATA])
async def test_damaged_metadata_affects_no_other_session(
    database: str, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    async with damage(database) as rows:
        await rows.set_column("metadata", text)
        for query in (None, "one", None):
            assert await rows.listed(query) == [rows.sound]
        for operation in (
            rows.chats.load(rows.damaged),
            rows.chats.patch(rows.damaged, {"title": "t"}),
            rows.chats.write(rows.damaged, Change([user("three")])),
            rows.chats.write(rows.damaged, Change([user("three")], start=0)),
        ):
            with pytest.raises(SessionNotFound, match="damaged"):
                await operation
        assert len(warnings(caplog, rows.damaged)) == 1
        await rows.chats.delete(rows.damaged)
        with pytest.raises(SessionNotFound, match="not found"):
            await rows.chats.load(rows.damaged)
        assert (await rows.rows("sessions"), await rows.rows("messages")) == (1, 2)


async def test_damaged_session_can_be_replaced(database: str) -> None:
    async with damage(database) as rows:
        await rows.set_column("metadata", "{")
        session = new_session()
        session.metadata.session_id = rows.damaged
        session.messages = [user("new")]
        assert contents(await rows.chats.put(session)) == ["new"]
        assert sorted(await rows.listed()) == sorted([rows.sound, rows.damaged])


@pytest.mark.parametrize("text", ["", "{", "[]", "5"])
async def test_damaged_unknown_keys_are_set_aside(database: str, text: str) -> None:
    async with damage(database) as rows:
        await rows.set_column("extra", text)
        assert await rows.listed() == [rows.sound]
        with pytest.raises(SessionNotFound):
            await rows.chats.load(rows.damaged)


@pytest.mark.parametrize(
    "text", ["", "{", "{}", "[5]", '[{"at": "x"}]', '[{"at": 0, "content": 5}]', "null"]
)
async def test_damaged_opening_only_removes_the_preview(database: str, text: str) -> None:
    async with damage(database) as rows:
        await rows.set_column("opening", text)
        assert sorted(await rows.listed()) == sorted([rows.sound, rows.damaged])
        await rows.chats.write(rows.damaged, Change([user("three")]))
        assert contents(await rows.chats.load(rows.damaged)) == ["one", "two", "three"]
        assert (await rows.chats.patch(rows.damaged, {"title": "t"})).metadata.title == "t"


@pytest.mark.parametrize("body", ["", "{", "[]", "5", "null"])
async def test_damaged_message_affects_no_other_session(
    database: str, caplog: pytest.LogCaptureFixture, body: str
) -> None:
    async with damage(database) as rows:
        await rows.set_message(body)
        for _ in range(2):
            with pytest.raises(SessionNotFound, match="damaged"):
                await rows.chats.load(rows.damaged)
        with pytest.raises(SessionNotFound, match="damaged"):
            await rows.chats.write(rows.damaged, Change([user("three")], revision="2-x"))
        assert len(warnings(caplog, rows.damaged)) == 1
        assert rows.sound in await rows.listed("one")
        assert contents(await rows.chats.load(rows.sound)) == ["one", "two"]
        await rows.chats.delete(rows.damaged)
        assert await rows.listed() == [rows.sound]


async def test_incomplete_message_is_completed_as_in_a_file(database: str) -> None:
    async with damage(database) as rows:
        await rows.set_message('{"content": 5, "tool_calls": 7}')
        session = await rows.chats.load(rows.damaged)
        assert (session.messages[1]["role"], session.messages[1]["content"]) == ("user", "5")
        assert session.messages[1]["message_id"]


@pytest.mark.parametrize(
    "body", ["", "{", "[]", "null", '{"role": "tool", "tool_calls": [5]}', '{"role": "tool"}']
)
async def test_damaged_partial_answer_is_discarded(database: str, body: str) -> None:
    async with damage(database) as rows:
        await rows.write(_PARTIAL, body, rows.damaged)
        await rows.write(_PARTIAL, "{", rows.sound)
        await rows.chats.recover_all_crashed()
        assert await rows.rows("partials") == 0
        assert contents(await rows.chats.load(rows.damaged))[:2] == ["one", "two"]
        assert contents(await rows.chats.load(rows.sound)) == ["one", "two"]


@pytest.mark.parametrize(
    "metadata",
    ["{", '{"session_id": "0123456789", "model": "mochi", "format_version": "9.0"}'],
    ids=["damaged", "later version"],
)
async def test_unreadable_session_with_a_partial_answer_stops_no_recovery(
    database: str, metadata: str
) -> None:
    partial = (
        '{"role": "assistant", "content": "th", "message_id": "1", "timestamp": '
        '"2026-01-01T00:00:00Z"}'
    )
    async with damage(database) as rows:
        await rows.set_column("metadata", metadata)
        for session_id in (rows.damaged, rows.sound):
            await rows.write(_PARTIAL, partial, session_id)
        await rows.chats.recover_all_crashed()
        assert contents(await rows.chats.load(rows.sound)) == ["one", "two", "th"]
        assert await rows.rows("partials") == 1


async def test_damaged_session_is_deleted_with_its_partial_answer(database: str) -> None:
    async with damage(database) as rows:
        await rows.set_column("metadata", "{")
        await rows.write(_PARTIAL, "{", rows.damaged)
        await rows.chats.delete(rows.damaged)
        assert await rows.rows("partials") == 0


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
async def test_damaged_version_is_left_out(
    database: str, caplog: pytest.LogCaptureFixture, tmp_path: Path, text: str
) -> None:
    async with damage(database) as rows:
        for answer in ("three", "four"):
            await rows.chats.write(
                rows.damaged, Change([assistant(answer)], start=1, versions=VersionChange())
            )
        await rows.write(_DAMAGE_VERSION, text, rows.damaged)
        (version,) = await rows.chats.load_versions(rows.damaged)
        assert version.messages[0]["content"] == "three"
        again = Change([assistant("five")], start=1, versions=VersionChange())
        await rows.chats.write(rows.damaged, again)
        assert contents(await rows.chats.load(rows.damaged)) == ["one", "five"]
        versions = await rows.chats.load_versions(rows.damaged)
        assert [version.messages[0]["content"] for version in versions] == ["three", "four"]
        assert len(warnings(caplog, rows.damaged)) == 1
        assert (await copy(database, str(tmp_path), lambda *_: None)).copied == 2


async def test_copy_names_a_session_without_its_messages(database: str, tmp_path: Path) -> None:
    async with damage(database) as rows:
        await rows.write(_REMOVE_MESSAGE, rows.damaged)
        report = await copy(database, str(tmp_path), lambda *_: None)
    assert (report.copied, report.unreadable) == (1, [rows.damaged])


async def test_damage_is_hidden_from_other_owners(database: str) -> None:
    async with damage(database) as rows:
        await rows.set_column("metadata", "{")
        token = CALLER.set(Caller("ada", "ada", sees_all=False))
        try:
            with pytest.raises(SessionNotFound, match="not found"):
                await VisibleSessions(rows.chats).load(rows.damaged)
        finally:
            CALLER.reset(token)


async def test_damaged_session_is_listed_and_deleted_over_http(
    database: str, tmp_path: Path
) -> None:
    async with damage(database) as rows:
        await rows.set_column("metadata", "{")
        damaged, sound = rows.damaged, rows.sound
    with RunningServer(tmp_path, "http://127.0.0.1:1", store_url=database) as server:
        http = server.api().http
        for path in ("/sessions", "/sessions?q=one"):
            assert [entry["session_id"] for entry in http.get(path).json()["sessions"]] == [sound]
        for method, path in [
            ("GET", ""),
            ("GET", "/messages"),
            ("GET", "/export"),
            ("POST", "/fork"),
        ]:
            response = http.request(method, f"/sessions/{damaged}{path}")
            assert response.status_code == 404, response.text
            assert response.json()["error"]["code"] == "SESSION_NOT_FOUND"
            assert "DELETE /api/v1/sessions/" in response.json()["error"]["message"]
        assert http.post(f"/chat/{damaged}", json={"message": "Hello!"}).status_code == 404
        assert http.get("/agents/chats").json() == {"sessions": []}
        assert http.delete(f"/sessions/{damaged}").status_code == 204
        assert http.delete(f"/sessions/{damaged}").status_code == 404
