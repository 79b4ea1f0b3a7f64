"""kill -9 of the server under parallel streams with tool calls: each stored call has a result.

`test_killed_approvals.py` tests calls that need an approval.
"""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from mochi_stub import StubServer
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.reply import Reply, Text, ToolCalls
from tests.faults.rounds import ROUNDS, share
from tests.support.api import Api
from tests.support.cluster import Member
from tests.support.tools import write_tools

pytestmark = pytest.mark.slow

STREAMS = 20
DEADLINE_SECONDS = 30.0
SETTINGS = {"summarization_enabled": False, "dynamic_context_window_enabled": False}
CALLING = "call tools"
TOOLS = '''
    import asyncio
    import time

    def add(a: int) -> int:
        """Add one."""
        return a + 1

    def slow(a: int) -> str:
        """Take a moment, in a thread."""
        time.sleep(0.02)
        return str(a)

    async def later(a: int) -> str:
        """Take a moment, on the event loop."""
        await asyncio.sleep(0.01)
        return str(a)

    __all__ = ["add", "slow", "later"]
'''
TOOL_NAMES = ["add", "slow", "later"]

Messages = list[dict[str, Any]]


@pytest.fixture
def stub() -> Iterator[StubServer]:
    """A model that calls tools repeatedly if the message requests it."""

    def resolve(prompt: Prompt) -> Reply:
        if prompt.user_text != CALLING:
            return Reply([Text("Fine.")])
        number = len(prompt.messages)
        return Reply([ToolCalls([ToolCall(name, {"a": number}) for name in TOOL_NAMES])])

    with StubServer(speed=0, resolve=resolve) as stub:
        yield stub


@pytest.mark.parametrize(
    ("store", "kills"), [("files", ROUNDS), ("postgres", share(5))], ids=["files", "postgres"]
)
def test_killed_servers_leave_a_result_for_each_call(
    request: pytest.FixtureRequest, stub: StubServer, tmp_path: Path, store: str, kills: int
) -> None:
    write_tools(tmp_path, TOOLS)
    settings = SETTINGS | (
        {"store_url": request.getfixturevalue("database")} if store == "postgres" else {}
    )
    chance = random.Random(2026)
    killed: list[str] = []
    interrupted = 0
    for _ in range(kills + 1):
        server = Member(str(tmp_path), stub.url, **settings)
        with Api(server.url) as api:
            interrupted += sum(count_interrupted_results(api, session_id) for session_id in killed)
            for session_id in killed[:2]:
                assert api.send_message(session_id, "Go on")["message"]["content"] == "Fine."
                count_interrupted_results(api, session_id)
            killed = [new_session(api) for _ in range(STREAMS)]
            stream_until_killed(api, server, killed, chance.random() * 0.2)
    assert interrupted >= kills, "too few calls were interrupted: nothing was tried"
    assert not list((tmp_path / "chat_sessions").glob("*.corrupt-*"))


def new_session(api: Api) -> str:
    settings = {"tools": TOOL_NAMES, "execution_policy": "never_confirm"}
    session_id: str = api.create_session("mochi", tool_settings=settings)["session_id"]
    return session_id


def count_interrupted_results(api: Api, session_id: str) -> int:
    """Return the number of interrupted results of a session.

    Fails unless each call has exactly one result.
    """
    messages: Messages = api.messages(session_id)
    call_ids = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    results = [message for message in messages if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in results] == call_ids
    return sum(message.get("interrupted", False) for message in results)


def stream_until_killed(api: Api, server: Member, ids: list[str], seconds: float) -> None:
    """Stream turns with tool calls in each session and kill the server a while after all have
    called.
    """
    called = [Event() for _ in ids]

    def stream(number: int) -> None:
        with (
            suppress(httpx.HTTPError, AssertionError),
            api.open_stream(ids[number], CALLING) as events,
        ):
            for event in events:
                if event.type.startswith("tool_call"):
                    called[number].set()

    with ThreadPoolExecutor(len(ids)) as pool:
        streams = [pool.submit(stream, number) for number in range(len(ids))]
        try:
            assert all(event.wait(DEADLINE_SECONDS) for event in called)
            time.sleep(seconds)  # at a random time, so that every step of a call is hit eventually
        finally:
            server.kill()
        for ended in streams:
            ended.result()
