"""kill -9 of the server at each step of a turn with approvals: each call has one result, and the
turn one answer.

MOCHI_FAULT_ROUNDS=200 kills two hundred servers.
"""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from mochi_stub import StubServer
from tests.faults.rounds import ROUNDS
from tests.support.agents import delegate, nested, write_agent
from tests.support.api import Api, read_events
from tests.support.cluster import Member
from tests.support.instructions import calls, instruct, words
from tests.support.mcp import by_hand, write_mcp
from tests.support.tools import write_tools
from tests.support.waiting import until

SETTINGS = {
    "summarization_enabled": False,
    "dynamic_context_window_enabled": False,
    "park_seconds": 0.2,
}
DEADLINE_SECONDS = 60.0
KINDS = ["tool", "two", "agent", "mcp"]
TOOLS = '''
    from pathlib import Path
    from time import sleep

    def note(text: str) -> str:
        """Write a note."""
        with (Path(__file__).parent / "notes.txt").open("a") as notes:
            notes.write(text + "\\n")
        sleep(0.02)
        return "Noted."

    __all__ = ["note"]
'''
DECIDED = {200, 404, 409}
"""Statuses of decisions. A decision that is sent again may be late."""

pytestmark = pytest.mark.slow


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with StubServer(speed=0) as stub:
        yield stub


def new_session(api: Api, kind: str, text: str) -> tuple[str, str]:
    """Create a session for a turn of a kind. Return its ID and the message that starts the turn."""
    settings: dict[str, Any] = {"tool_settings": {"tools": ["echo" if kind == "mcp" else "note"]}}
    call = calls("echo" if kind == "mcp" else "note", text=text)
    message = instruct(call, words(20))
    if kind == "two":
        again = calls("note", text=f"{text}-b")
        message = instruct({"tool_call": call["tool_call"] + again["tool_call"]}, words(20))
    elif kind == "agent":
        settings = {"agent_settings": {"enabled_agents": ["helper"]}}
        message = nested(delegate(words(1), call, words(5)), words(20))
    return api.create_session("mochi", **settings)["session_id"], message


class Turn:
    """One turn, the thread that receives and approves its calls, and the server that is killed
    meanwhile.
    """

    def __init__(self, url: str, session_id: str, message: str) -> None:
        self.session_id, self.message = session_id, message
        self.asked = threading.Event()
        self.last_id, self.is_done, self.text = "", False, ""
        self.urls = [url]
        self.deciders: list[threading.Thread] = []
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        """Send the message, and then reconnect until the stream is complete, as a client does."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        is_first = True
        while not self.is_done and time.monotonic() < deadline:
            with suppress(httpx.HTTPError, AssertionError), Api(self.urls[-1]) as api:
                if is_first:
                    with api.open_stream(self.session_id, self.message) as events:
                        is_first = False
                        self._receive(events)
                else:
                    for waiting in api.ok(api.http.get(f"/chat/{self.session_id}/confirmations"))[
                        "confirmations"
                    ]:
                        self._decide(waiting["confirmation_id"])  # the user clicks once more
                    headers = {"Last-Event-ID": self.last_id}
                    with api.http.stream(
                        "GET", f"/chat/{self.session_id}/stream", headers=headers
                    ) as response:
                        assert response.status_code != 204
                        self._receive(read_events(response))
            time.sleep(0.05)

        for decider in self.deciders:
            decider.join()

    def _receive(self, events: Iterator[Any]) -> None:
        for event in events:
            self.last_id = event.id or self.last_id
            if event.type == "tool_call_confirmation_required":
                self.asked.set()
                self.deciders.append(
                    threading.Thread(target=self._decide, args=(event.data["confirmation_id"],))
                )
                self.deciders[-1].start()
            self.text += event.data["content"] if event.type == "content_delta" else ""
            self.is_done = self.is_done or event.type == "done"

    def _decide(self, confirmation_id: str) -> None:
        with suppress(httpx.HTTPError), Api(self.urls[-1]) as api:
            body = {"confirmation_id": confirmation_id, "approved": True}
            assert (
                api.http.post(f"/chat/{self.session_id}/confirm-tool", json=body).status_code
                in DECIDED
            )


def _has_echo(api: Api) -> bool:
    return "echo" in api.ok(api.http.get("/tools"))["tools"]


def check(api: Api, turn: Turn) -> int:
    """Check the stored turn. Return the number of calls whose outcome is unknown."""
    messages = api.messages(turn.session_id)
    call_ids = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    results = [message for message in messages if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in results] == call_ids
    answers = [m for m in messages if m["role"] == "assistant" and not m.get("tool_calls")]
    assert len(answers) == 1
    assert not answers[0].get("interrupted")
    assert answers[0]["content"].strip()
    return sum("outcome is unknown" in message["content"] for message in results)


@pytest.mark.parametrize("store", ["files", "postgres"])
def test_killed_servers_finish_turns_with_approvals(
    request: pytest.FixtureRequest,
    stub: StubServer,
    tmp_path: Path,
    store: str,
    record_property: Any,
) -> None:
    write_tools(tmp_path, TOOLS)
    write_agent(tmp_path)
    write_mcp(tmp_path, echoes=by_hand(tmp_path, "echo"))
    settings: dict[str, Any] = dict(SETTINGS)
    if store == "postgres":
        settings["store_url"] = request.getfixturevalue("database")
    chance, unknown = random.Random(2027), 0
    with ExitStack() as stack:

        def start() -> Member:
            member = Member(str(tmp_path), stub.url, **settings)
            stack.callback(member.kill)
            return member

        spare = start() if store == "postgres" else None
        server = start()
        for number in range(max(ROUNDS // 2, len(KINDS))):
            kind = KINDS[number % len(KINDS)]
            with Api(server.url) as api:
                until(partial(_has_echo, api), DEADLINE_SECONDS)
                turn = Turn(server.url, *new_session(api, kind, f"n{number}"))
            turn.thread.start()
            assert turn.asked.wait(DEADLINE_SECONDS), (
                f"the call of round {number} ({kind}) was not announced"
            )
            time.sleep(
                chance.random() * 0.15
            )  # at a random time, so that every step is hit eventually
            server.kill()
            server, spare = (spare, start()) if spare is not None else (start(), None)
            turn.urls.append(server.url)
            turn.thread.join(DEADLINE_SECONDS)
            assert turn.is_done, (
                f"the client of round {number} ({kind}) did not receive the end of the turn"
            )
            with Api(server.url) as api:
                unknown += check(api, turn)
    notes = tmp_path / "tools" / "notes.txt"
    noted = notes.read_text().split() if notes.exists() else []  # perhaps no call ran
    assert len(noted) == len(set(noted)), "a call ran twice"
    record_property("unknown_outcomes", unknown)
