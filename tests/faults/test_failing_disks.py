"""Full and read-only disks: a clear error, the old state, and normal operation afterwards without a restart."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mochi_stub import StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Gate, Reply, Text
from tests.faults.changes import CHANGES, DELETIONS, FAILED, Client
from tests.faults.media import SmallDisk, no_growth, small_disk
from tests.support.api import Event, text_of
from tests.support.process import Command
from tests.support.server import RunningServer

DONE = {name: 201 if name in ("create", "write file") else 200 for name in CHANGES} | {"remove prompt": 204}
NO_BACKGROUND = {"summarization_enabled": False}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as disk:
        yield disk


def test_full_disk_fails_changes_until_there_is_space(stub: StubServer, disk: SmallDisk) -> None:
    with RunningServer(disk.path, stub.url, **NO_BACKGROUND) as server:
        client = Client(server.api())
        before = client.stored_state()
        with disk.full():
            assert client.outcomes(CHANGES) == dict.fromkeys(CHANGES, FAILED)
            assert client.stored_state() == before
        assert client.outcomes(CHANGES) == DONE
        with disk.full():
            assert client.outcomes(DELETIONS) == dict.fromkeys(DELETIONS, 204)
    assert not list(disk.path.rglob("*.tmp"))


def test_read_only_disk_fails_changes_until_it_is_writable(stub: StubServer, disk: SmallDisk) -> None:
    with RunningServer(disk.path, stub.url, **NO_BACKGROUND) as server:
        client = Client(server.api())
        before = client.stored_state()
        with disk.read_only():
            assert client.outcomes(CHANGES + DELETIONS) == dict.fromkeys(CHANGES + DELETIONS, FAILED)
            assert client.stored_state() == before
        assert client.outcomes(CHANGES) == DONE
        assert client.outcomes(DELETIONS) == dict.fromkeys(DELETIONS, 204)


@pytest.mark.slow
def test_file_size_limit_fails_changes_until_it_is_lifted(stub: StubServer, tmp_path: Path) -> None:
    arguments = ["--port", "0", "--ollama-host", stub.url]
    with (
        Command("mochi_server", *arguments, cwd=tmp_path, MOCHI_SUMMARIZATION_ENABLED="false") as command,
        command.api() as api,
    ):
        client = Client(api)
        before = client.stored_state()
        with no_growth(command.process.pid):
            assert client.outcomes(CHANGES) == dict.fromkeys(CHANGES, FAILED)
            assert client.stored_state() == before
        assert client.outcomes(CHANGES) == DONE


def test_server_starts_and_reads_on_a_read_only_disk(stub: StubServer, disk: SmallDisk) -> None:
    with RunningServer(disk.path, stub.url, **NO_BACKGROUND) as server:
        client = Client(server.api())
        before = client.stored_state()
    with disk.read_only(), RunningServer(disk.path, stub.url) as server:
        client.api = server.api()
        assert client.stored_state() == before
        assert client.outcomes(("turn",)) == {"turn": FAILED}


def test_stream_on_full_disk_ends_with_error_and_done(stub: StubServer, disk: SmallDisk) -> None:
    with RunningServer(disk.path, stub.url, **NO_BACKGROUND) as server:
        client = Client(server.api())
        before = client.stored_state()
        with disk.full():
            events = client.api.stream_message(client.session_id, "Hello again!")
            assert types_and_codes(events) == [("error", FAILED), ("done", None)]
            assert client.stored_state() == before
        assert types_and_codes(client.api.stream_message(client.session_id, "Hello again!"))[-1] == ("done", None)
        assert len(client.api.messages(client.session_id)) == len(before[0]["messages"]) + 2


def test_disk_that_fills_during_a_turn_loses_only_the_answer(disk: SmallDisk) -> None:
    gate = Gate()

    def resolve(prompt: Prompt) -> Reply | None:
        return Reply([Text(["one ", "two "]), gate, Text(["three"])]) if prompt.user_text == "speak" else None

    with (
        StubServer(speed=0, resolve=resolve) as stub,
        RunningServer(disk.path, stub.url, **NO_BACKGROUND) as server,
    ):
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "speak") as coming:
            events = [next(coming)]
            with disk.full():
                gate.open()
                events += coming
        assert text_of(events) == "one two three"
        assert types_and_codes(events)[-2:] == [("error", FAILED), ("done", None)]
        assert [m["content"] for m in api.messages(session_id)] == ["speak"]
        assert api.send_message(session_id)["message"]["content"] == "one two three"


def types_and_codes(events: list[Event]) -> list[tuple[str, str | None]]:
    return [(event.type, event.data.get("code")) for event in events]
