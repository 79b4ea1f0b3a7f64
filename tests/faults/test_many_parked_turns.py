"""A thousand parked turns cost little memory, and little time at the start of a server."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from tests.support.api import Api
from tests.support.cluster import Member
from tests.support.instructions import calls, instruct, words
from tests.support.tools import write_tools
from tests.support.waiting import until

TURNS = 1000
SETTINGS: dict[str, Any] = {"summarization_enabled": False, "park_seconds": 0}
MESSAGE = instruct(calls("note", text="x"), words(2))
TOOLS = '''
    def note(text: str) -> str:
        """Write a note."""
        return f"Noted {text}."

    __all__ = ["note"]
'''

pytestmark = pytest.mark.slow


def resident_mib(member: Member) -> float:
    return int(Path(f"/proc/{member.process.pid}/statm").read_text().split()[1]) * 4096 / 2**20


def confirmations(api: Api, session_id: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = api.ok(api.http.get(f"/chat/{session_id}/confirmations"))[
        "confirmations"
    ]
    return listed


def cpu_seconds(member: Member) -> float:
    fields = Path(f"/proc/{member.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(data_dir: Path, stub: StubServer, session_id: str) -> tuple[Member, float]:
    """Start a server that has one parked turn or more.

    Return the server and its CPU time until it shows the turn.
    """
    member = Member(str(data_dir), stub.url, **SETTINGS)
    with Api(member.url) as api:
        assert confirmations(api, session_id)
        seconds = cpu_seconds(member)
        api.ok(api.http.get("/sessions", params={"limit": 1}))  # the index of sessions is complete
    return member, seconds


def test_parked_turns_cost_little(tmp_path: Path, record_property: Any) -> None:
    write_tools(tmp_path, TOOLS)
    with StubServer(speed=0) as stub:
        member = Member(str(tmp_path), stub.url, **SETTINGS)
        with Api(member.url) as api:
            session_id = api.create_session("mochi", tool_settings={"tools": ["note"]})[
                "session_id"
            ]
            api.ok(
                api.http.post(f"/chat/{session_id}", json={"message": MESSAGE, "background": True}),
                202,
            )
            until(lambda: confirmations(api, session_id))
        member.stop()
        member, alone = start(tmp_path, stub, session_id)
        before = resident_mib(member)
        member.stop()
        folder = tmp_path / "chat_sessions"
        session = json.loads((folder / f"{session_id}.json").read_text())
        for number in range(1, TURNS):
            session["metadata"]["session_id"] = f"{number:010x}"
            (folder / f"{number:010x}.json").write_text(json.dumps(session))
        member, seconds = start(tmp_path, stub, f"{TURNS // 2:010x}")
        memory = resident_mib(member) - before
        member.stop()
    print(f"{TURNS} parked turns: {memory:.1f} MiB, {seconds - alone:.2f} s")  # noqa: T201
    record_property("mib", memory)
    record_property("seconds", seconds - alone)
    assert memory < 10
    assert seconds - alone < 10  # it takes 0.3 s, and four times that under coverage
