"""Completions that are turns of a session: what is new in a request, and what the session keeps."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.openai.talk import LOOK, Door, call_of, client_of, said
from tests.support.api import Api
from tests.support.holding import Holding
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture(scope="module")
def api(server: RunningServer) -> Api:
    return server.api()


@pytest.fixture
def session(api: Api) -> str:
    return str(api.create("mochi", system_prompt="Be kind.")["session_id"])


def inside(door: Door, session: str, **headers: str) -> Door:
    door.asks = {**door.asks, "extra_headers": {"X-Mochi-Session": session, **headers}}
    return door


def contents(api: Api, session: str) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in api.messages(session)]


@STREAMED
def test_five_turns_with_tools_of_the_client(door: Door, api: Api, session: str, stream: bool) -> None:
    inside(door, session).stream = stream
    door.asks["tools"] = [LOOK]
    for turn in range(5):
        asked = door.say(instruct(calls("look", at=turn), words(2), label=f"T{turn}"))
        call = call_of(asked)
        door.go_on({"role": "tool", "tool_call_id": call.id, "content": f"seen {turn}"})
    system, *messages = api.messages(session)
    assert system["content"] == "Be kind."
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"] * 5
    assert [m["content"] for m in messages] == [m.get("content", "") for m in door.messages]
    assert [m["tool_call_id"] for m in messages[2::4]] == [m["tool_calls"][0]["id"] for m in messages[1::4]]


@STREAMED
def test_five_turns_with_tools_of_the_server(door: Door, api: Api, session: str, stream: bool) -> None:
    """The client says nothing but what is new."""
    inside(door, session, **{"X-Mochi-Tools": "add"}).stream = stream
    api.ok(api.http.patch(f"/sessions/{session}", json={"tool_settings": {"execution_policy": "confirm_destructive"}}))
    for turn in range(5):
        door.messages.clear()
        answer: Any = door.say(instruct(calls("add", a=turn, b=1), words(2), label=f"T{turn}"))
        assert str(said(answer).content).count(f"T{turn}") == 2
        if not stream:
            assert [done["result"] for done in answer.mochi["tool_calls_executed"]] == [f"{turn + 1}.0"]
    assert len(api.messages(session)) == 21


def test_the_history_is_the_sessions(door: Door, api: Api, session: str) -> None:
    door.asks = {"metadata": {"session_id": session}}
    door.say("One.")
    door.messages = [
        {"role": "system", "content": "Speak French."},
        {"role": "user", "content": "Never said."},
        {"role": "assistant", "content": "Never answered."},
    ]
    door.say("Two.")
    told = door.sent[-1]["messages"]
    assert told[0] == {"role": "system", "content": "Be kind.\n\nSpeak French."}
    assert [message["content"] for message in told if message["role"] == "user"] == ["One.", "Two."]
    assert [content for role, content in contents(api, session) if role != "assistant"] == ["Be kind.", "One.", "Two."]


def test_the_header_goes_before_the_metadata(door: Door, api: Api, session: str) -> None:
    inside(door, session).say("Hello!", metadata={"session_id": "0123456789"})
    assert [role for role, _ in contents(api, session)] == ["system", "user", "assistant"]


def test_instructions_hold_where_the_session_has_none(door: Door, api: Api) -> None:
    session = api.create("mochi")["session_id"]
    door.messages = [{"role": "system", "content": "Speak French."}]
    inside(door, session).say("Hello!")
    assert [message["role"] for message in door.sent[-1]["messages"]] == ["system", "user"]
    assert [role for role, _ in contents(api, session)] == ["user", "assistant"]


def test_what_was_not_answered_is_not_said_twice(door: Door, api: Api, session: str) -> None:
    api.http.patch(f"/sessions/{session}", json={"model": "failing"})
    inside(door, session).refused(model="failing")
    assert contents(api, session)[1:] == [("user", "Hello!")]
    door.say("Hello!")
    assert [role for role, _ in contents(api, session)] == ["system", "user", "assistant"]


CALLED: Any = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "call_1", "function": {"index": 0, "name": "add", "arguments": {"a": 1, "b": 2}}}],
}
RESULT = {"role": "tool", "content": "3.0", "tool_name": "add", "tool_call_id": "call_1"}


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ([{"role": "assistant", "content": "Hel", "interrupted": True}], ["user"]),
        ([CALLED, RESULT], ["user", "assistant", "tool"]),
        ([CALLED, {**RESULT, "interrupted": True}], ["user", "assistant", "tool"]),
        ([{"role": "assistant", "content": "Hello."}], ["user", "assistant", "user"]),
    ],
    ids=["cut", "called", "cut while calling", "answered"],
)
def test_what_was_not_answered_to_the_end_is_not_said_twice(
    door: Door, api: Api, answer: list[Any], kept: list[str]
) -> None:
    """As when a client has waited too long, and asks again by itself."""
    file = {"metadata": {"model": "mochi"}, "messages": [{"role": "user", "content": "Hello!"}, *answer]}
    (imported,) = api.ok(api.http.post("/sessions/import", json=file), 201)["sessions"]
    assert said(inside(door, imported["session_id"]).say("Hello!")).content
    assert [role for role, _ in contents(api, imported["session_id"])] == [*kept, "assistant"]


def test_results_that_came_before_are_not_stored_twice(door: Door, api: Api, session: str) -> None:
    inside(door, session).asks["tools"] = [LOOK]
    call = call_of(door.say(instruct(calls("look"), words(2))))
    result = {"role": "tool", "tool_call_id": call.id, "content": "seen"}
    assert door.refused(messages=[{**result, "tool_call_id": "other"}]).status_code == 400
    door.go_on(result, {"role": "user", "content": "And now?"})
    assert [role for role, _ in contents(api, session)][2:] == ["assistant", "tool", "user", "assistant"]
    door.messages.pop()
    door.messages[-1]["content"] = "And then?"
    door.go_on()
    assert [role for role, _ in contents(api, session)].count("tool") == 1


def test_calls_whose_results_never_come_do_not_end_the_session(door: Door, api: Api, session: str) -> None:
    inside(door, session)
    door.say(instruct(calls("look"), words(2)), tools=[LOOK])
    door.messages.clear()
    assert said(door.say("Never mind.")).content
    assert [role for role, _ in contents(api, session)][1:] == ["user", "assistant", "user", "assistant"]


def test_the_sessions_model_becomes_the_one_that_is_asked(door: Door, api: Api, session: str) -> None:
    inside(door, session).say("Hello!", model="mochi-chat")
    assert api.session(session)["model"] == "mochi-chat"
    assert api.messages(session)[-1]["model"] == "mochi-chat"
    assert door.refused(model="nowhere").code == "model_not_found"
    assert api.session(session)["model"] == "mochi-chat"


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "  "}],
        [{"role": "system", "content": "x"}],
        [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}],
        [{"role": "tool", "tool_call_id": "x", "content": "y"}],
    ],
)
def test_a_request_without_news_is_refused(door: Door, api: Api, session: str, messages: Any) -> None:
    refusal = inside(door, session).refused(messages=messages)
    assert (refusal.status_code, refusal.param) == (400, "messages")
    assert len(api.messages(session)) == 1


def test_a_sessions_policy_is_its_own(door: Door, session: str) -> None:
    headers = {"X-Mochi-Session": session, "X-Mochi-Tool-Policy": "never_confirm"}
    assert door.refused(extra_headers=headers).param == "X-Mochi-Tool-Policy"


def test_a_busy_session_is_a_409(holding: Holding, tmp_path: Path) -> None:
    with (
        RunningServer(tmp_path, holding.stub.url) as server,
        client_of(server) as client,
    ):
        api = server.api()
        session = str(api.create("mochi")["session_id"])
        with api.open_stream(session, "hold") as events:
            next(events)
            refusal = inside(Door(client, holding.stub), session).refused()
            assert (refusal.status_code, refusal.code) == (409, "session_busy")
            holding.gate.open()
            list(events)
        assert [role for role, _ in contents(api, session)] == ["user", "assistant"]


def test_two_at_once_are_one_turn_and_one_409(holding: Holding, tmp_path: Path) -> None:
    with RunningServer(tmp_path, holding.stub.url) as server:
        session = str(server.api().create("mochi")["session_id"])
        codes: list[int] = []

        def ask() -> None:
            body = {"model": "mochi", "messages": [{"role": "user", "content": "hold"}]}
            headers = {"X-Mochi-Session": session}
            root = server.api(base_url=server.url)
            codes.append(root.http.post("/v1/chat/completions", json=body, headers=headers).status_code)
            holding.gate.open()

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert sorted(codes) == [200, 409]
