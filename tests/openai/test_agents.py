"""Agents as models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.openai.talk import Door, said, stored
from tests.support.agents import delegate, notes
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
WORK = instruct(words(2), calls("look"), words(3), label="A")


@STREAMED
def test_an_agent_plans_aloud_and_answers(door: Door, data_dir: Path, stream: bool) -> None:
    door.stream = stream
    door.messages = [{"role": "user", "content": "Earlier."}, {"role": "assistant", "content": "Indeed."}]
    answer = door.say(WORK, model="agent:helper")
    message: Any = said(answer)
    assert answer.model == "agent:helper"
    assert "A lorem" in message.content
    if not stream:
        assert message.reasoning_content
    assert answer.usage
    assert answer.usage.prompt_tokens > 0
    told = [message["content"] for message in door.sent[0]["messages"]]
    assert told[:4] == ["You are helper.", "Earlier.", "Indeed.", WORK]
    assert stored(data_dir) == []


@pytest.mark.parametrize(("policy", "written"), [(None, []), ("never_confirm", ["x"])])
def test_what_an_agent_writes_needs_a_policy(
    door: Door, data_dir: Path, policy: str | None, written: list[str]
) -> None:
    headers = {"X-Mochi-Tool-Policy": policy} if policy else {}
    door.say(
        instruct(words(1), calls("note", text="x"), words(1), label="A"), model="agent:helper", extra_headers=headers
    )
    assert notes(data_dir) == written, "the first of the two comes first"


def test_a_conversation_with_an_agent_is_continued_by_its_id(door: Door, server: RunningServer) -> None:
    api = server.api()
    session = api.create("mochi", agent_settings={"enabled_agents": ["helper"]})["session_id"]
    api.chat(session, instruct(delegate(), words(2)))
    (chat,) = api.ok(api.http.get("/agents/chats"))["sessions"]
    before = len(api.ok(api.http.get(f"/agents/chats/{chat['session_id']}"))["messages"])
    door.asks = {"model": "agent:helper", "extra_headers": {"X-Mochi-Session": chat["session_id"]}}
    door.say(WORK)
    messages = api.ok(api.http.get(f"/agents/chats/{chat['session_id']}"))["messages"]
    assert messages[before]["content"] == WORK
    assert door.refused(extra_headers={"X-Mochi-Session": session}).code == "session_not_found"


def test_an_agent_is_asked_something(door: Door) -> None:
    for messages in ([{"role": "system", "content": "x"}], [{"role": "user", "content": " "}]):
        refusal = door.refused(model="agent:helper", messages=messages)
        assert (refusal.status_code, refusal.param) == (400, "messages")
