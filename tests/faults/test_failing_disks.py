"""Full and read-only disks: a clear error, the old state, and normal operation afterwards without a
restart.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Gate, Reply, Text
from tests.faults.changes import CHANGES, DELETIONS, FAILED, Client
from tests.faults.media import SmallDisk, no_growth, small_disk
from tests.support.api import Api, Event, error_of, text_of
from tests.support.instructions import calls, instruct, words
from tests.support.process import Command
from tests.support.server import RunningServer
from tests.support.tools import write_tools
from tests.support.waiting import until

DONE = {name: 201 if name in ("create", "write file") else 200 for name in CHANGES} | {
    "remove prompt": 204
}
NO_BACKGROUND = {"summarization_enabled": False}
TOOLS = '''
    def note(text: str) -> str:
        """Write a note."""
        return "Noted."

    __all__ = ["note"]
'''


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


def test_read_only_disk_fails_changes_until_it_is_writable(
    stub: StubServer, disk: SmallDisk
) -> None:
    with RunningServer(disk.path, stub.url, **NO_BACKGROUND) as server:
        client = Client(server.api())
        before = client.stored_state()
        with disk.read_only():
            assert client.outcomes(CHANGES + DELETIONS) == dict.fromkeys(
                CHANGES + DELETIONS, FAILED
            )
            assert client.stored_state() == before
        assert client.outcomes(CHANGES) == DONE
        assert client.outcomes(DELETIONS) == dict.fromkeys(DELETIONS, 204)


@pytest.mark.slow
def test_file_size_limit_fails_changes_until_it_is_lifted(stub: StubServer, tmp_path: Path) -> None:
    arguments = ["--port", "0", "--ollama-host", stub.url]
    with (
        Command(
            "mochi_server", *arguments, cwd=tmp_path, MOCHI_SUMMARIZATION_ENABLED="false"
        ) as command,
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
        assert types_and_codes(client.api.stream_message(client.session_id, "Hello again!"))[
            -1
        ] == ("done", None)
        assert len(client.api.messages(client.session_id)) == len(before[0]["messages"]) + 2


def test_disk_that_fills_during_a_turn_loses_only_the_answer(disk: SmallDisk) -> None:
    gate = Gate()

    def resolve(prompt: Prompt) -> Reply | None:
        return (
            Reply([Text(["one ", "two "]), gate, Text(["three"])])
            if prompt.user_text == "speak"
            else None
        )

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


@pytest.mark.parametrize("park_seconds", [0, 30])
def test_decision_on_a_full_disk_leaves_the_call_waiting(
    disk: SmallDisk, park_seconds: float
) -> None:
    write_tools(disk.path, TOOLS)
    with (
        StubServer(speed=0) as stub,
        RunningServer(disk.path, stub.url, park_seconds=park_seconds, **NO_BACKGROUND) as server,
    ):
        api = server.api()
        session_id = api.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
        body = {"message": instruct(calls("note", text="x" * 5000), words(1)), "background": True}
        api.ok(api.http.post(f"/chat/{session_id}", json=body), 202)
        until(lambda: waiting(api, session_id))
        (asked,) = waiting(api, session_id)
        decision = {"confirmation_id": asked["confirmation_id"], "approved": True}
        with disk.full():
            assert error_of(api.http.post(f"/chat/{session_id}/confirm-tool", json=decision)) == (
                500,
                FAILED,
            )
        assert waiting(api, session_id) == [asked]
        api.ok(api.http.post(f"/chat/{session_id}/confirm-tool", json=decision))
        until(lambda: api.ok(api.http.get(f"/chat/{session_id}/run"))["state"] == "completed")
        assert [
            message["content"] for message in api.messages(session_id) if message["role"] == "tool"
        ] == ["Noted."]


def waiting(api: Api, session_id: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = api.ok(api.http.get(f"/chat/{session_id}/confirmations"))[
        "confirmations"
    ]
    return listed


def types_and_codes(events: list[Event]) -> list[tuple[str, str | None]]:
    return [(event.type, event.data.get("code")) for event in events]
