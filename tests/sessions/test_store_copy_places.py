"""Copies of sessions: which sources and targets the command refuses, and which sessions it leaves
unchanged or cannot read.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from mochi_server.cli.store_copy import find_problem
from mochi_server.storage.files.store import FileSessionStore
from tests.cli.commands import run_here
from tests.sessions.samples import new_session
from tests.support.cases import cases

COPY = ("store", "copy", "from", "to")


@cases(
    ("source", "target", "problem"),
    [
        ("empty", "./empty/", "FROM and TO are the same place"),
        ("postgresql://h/db", "postgresql://h/db", "FROM and TO are the same place"),
        (
            "mysql://me:hush@h/db",
            ".",
            "there is no directory mysql://***@h/db; create it, or use a postgresql:// URL",
        ),
        (
            ".",
            "postgress://me:hush@h/db",
            "there is no directory postgress://***@h/db; create it, or use a postgresql:// URL",
        ),
        (
            "nowhere",
            "there",
            "there is no directory nowhere; create it, or use a postgresql:// URL",
        ),
        (
            "host=db password=hush",
            "there",
            "there is no directory host=db password=***; create it, or use a postgresql:// URL",
        ),
        (
            "postgresql://h/db",
            "there",
            "there is no directory there; create it, or use a postgresql:// URL",
        ),
        ("", "there", "there is no directory ; create it, or use a postgresql:// URL"),
        (
            "postgresql://h/db",
            "file",
            "there is no directory file; create it, or use a postgresql:// URL",
        ),
        ("empty", "other", "there are no sessions in empty: it has no directory chat_sessions"),
        ("empty", "./other/../empty", "FROM and TO are the same place"),
        ("postgresql://h/db", "other", None),
    ],
)
def test_invalid_source_or_target_of_a_copy_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, target: str, problem: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir(exist_ok=True)
    Path("other").mkdir(exist_ok=True)
    Path("file").touch()
    assert find_problem(source, target) == problem


@cases(("source", "target"), [("a" * 300, "."), (".", "a" * 300)])
def test_place_that_cannot_be_examined_is_reported_in_one_line(
    tmp_path: Path, source: str, target: str
) -> None:
    assert run_here("store", "copy", source, target, cwd=tmp_path) == (
        1,
        f"mochi-server: cannot read {'a' * 300}: File name too long\n",
    )


def test_copy_between_directories_with_the_same_sessions_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOCHI_SESSIONS_DIR", str(tmp_path / "sessions"))
    for name in ("sessions", "one", "other"):
        (tmp_path / name).mkdir()
    assert (
        find_problem(str(tmp_path / "one"), str(tmp_path / "other"))
        == "FROM and TO are the same place"
    )
    assert find_problem(str(tmp_path / "one"), "postgresql://h/db") is None


def test_change_that_keeps_the_time_of_a_session_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (session_id,) = asyncio.run(_create(tmp_path / "from" / "chat_sessions", 1))
    assert run_here(*COPY, cwd=tmp_path)[0] == 0
    asyncio.run(_pin(tmp_path / "to" / "chat_sessions", session_id))
    code, text = run_here(*COPY, cwd=tmp_path)
    assert code == 1
    assert f"different: {session_id} (" in text
    metadata = _metadata(tmp_path / "to" / "chat_sessions" / f"{session_id}.json")
    assert metadata["pinned"] is True


def test_unreadable_sessions_are_named_and_the_others_are_copied(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    directory = tmp_path / "from" / "chat_sessions"
    copied, newer, damaged, unfinished = asyncio.run(_create(directory, 4))
    text = (directory / f"{newer}.json").read_text()
    version = _metadata(directory / f"{newer}.json")["format_version"]
    (directory / f"{newer}.json").write_text(text.replace(f'"{version}"', '"99.0"'))
    (directory / f"{damaged}.json").write_text("{")
    os.utime(directory / f"{damaged}.json", (1, 1))
    (directory / f"{unfinished}.json").write_text("{")
    code, text = run_here(*COPY, cwd=tmp_path)
    assert code == 1
    assert "copied 1, " in text
    for session_id in (newer, damaged, unfinished):
        assert f"not readable: {session_id} (" in text
    assert [path.stem for path in (tmp_path / "to").rglob("*.json")] == [copied]


def test_session_of_a_later_version_in_the_target_is_left_unchanged(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    session_ids = asyncio.run(_create(tmp_path / "from" / "chat_sessions", 2))
    assert run_here(*COPY, cwd=tmp_path)[0] == 0
    file = tmp_path / "to" / "chat_sessions" / f"{session_ids[0]}.json"
    version = _metadata(file)["format_version"]
    newer = file.read_text().replace(f'"{version}"', '"99.0"')
    file.write_text(newer)
    code, text = run_here(*COPY, cwd=tmp_path)
    assert code == 1
    assert "already equal 1, different 1" in text
    assert f"different: {session_ids[0]} (" in text
    assert file.read_text() == newer


def _metadata(file: Path) -> dict[str, Any]:
    metadata: dict[str, Any] = json.loads(file.read_text())["metadata"]
    return metadata


async def _create(directory: Path, count: int) -> list[str]:
    store = FileSessionStore(directory)
    session_ids = [(await store.create(new_session())).session_id for _ in range(count)]
    await store.aclose()
    return session_ids


async def _pin(directory: Path, session_id: str) -> None:
    store = FileSessionStore(directory)
    await store.patch(session_id, {"pinned": True}, touch=False)
    await store.aclose()
