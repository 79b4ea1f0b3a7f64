"""Completions in a session: only new messages of a request are appended."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.openai.conversation import LOOK, Conversation, call_of, client_of, message_of
from tests.support.api import Api
from tests.support.cases import cases
from tests.support.holding import GatedStub
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer


@pytest.fixture(scope="module")
def api(server: RunningServer) -> Api:
    return server.client


@pytest.fixture
def session(api: Api) -> str:
    return str(api.create_session("mochi", system_prompt="Be kind.")["session_id"])


def in_session(conversation: Conversation, session: str, **headers: str) -> Conversation:
    conversation.asks = {
        **conversation.asks,
        "extra_headers": {"X-Mochi-Session": session, **headers},
    }
    return conversation


def contents(api: Api, session: str) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in api.messages(session)]


def test_turns_with_tools_of_the_client(conversation: Conversation, api: Api, session: str) -> None:
    in_session(conversation, session).asks["tools"] = [LOOK]
    for turn, stream in enumerate((False, True)):
        conversation.stream = stream
        answer = conversation.send_message(
            instruct(calls("look", at=turn), words(2), label=f"T{turn}")
        )
        call = call_of(answer)
        conversation.send_messages(
            {"role": "tool", "tool_call_id": call.id, "content": f"seen {turn}"}
        )
    system, *messages = api.messages(session)
    assert system["content"] == "Be kind."
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ] * 2
    assert [m["content"] for m in messages] == [m.get("content", "") for m in conversation.messages]
    assert [m["tool_call_id"] for m in messages[2::4]] == [
        m["tool_calls"][0]["id"] for m in messages[1::4]
    ]


def test_turns_with_tools_of_the_server(conversation: Conversation, api: Api, session: str) -> None:
    """The client sends only the new message."""
    in_session(conversation, session, **{"X-Mochi-Tools": "add"})
    api.ok(
        api.http.patch(
            f"/sessions/{session}",
            json={"tool_settings": {"execution_policy": "confirm_destructive"}},
        )
    )
    for turn, stream in enumerate((False, True)):
        conversation.stream = stream
        conversation.messages.clear()
        answer: Any = conversation.send_message(
            instruct(calls("add", a=turn, b=1), words(2), label=f"T{turn}")
        )
        assert str(message_of(answer).content).count(f"T{turn}") == 2
        if not stream:
            assert [done["result"] for done in answer.mochi["tool_calls_executed"]] == [
                f"{turn + 1}.0"
            ]
    assert len(api.messages(session)) == 9


def test_history_of_session_is_used(conversation: Conversation, api: Api, session: str) -> None:
    conversation.asks = {"metadata": {"session_id": session}}
    conversation.send_message("One.")
    conversation.messages = [
        {"role": "system", "content": "Speak French."},
        {"role": "user", "content": "Never said."},
        {"role": "assistant", "content": "Never answered."},
    ]
    conversation.send_message("Two.")
    sent_messages = conversation.sent[-1]["messages"]
    assert sent_messages[0] == {"role": "system", "content": "Be kind.\n\nSpeak French."}
    assert [message["content"] for message in sent_messages if message["role"] == "user"] == [
        "One.",
        "Two.",
    ]
    assert [content for role, content in contents(api, session) if role != "assistant"] == [
        "Be kind.",
        "One.",
        "Two.",
    ]


def test_session_header_overrides_metadata(
    conversation: Conversation, api: Api, session: str
) -> None:
    in_session(conversation, session).send_message("Hello!", metadata={"session_id": "0123456789"})
    assert [role for role, _ in contents(api, session)] == ["system", "user", "assistant"]


def test_instructions_apply_to_session_without_prompt(conversation: Conversation, api: Api) -> None:
    session = api.create_session("mochi")["session_id"]
    conversation.messages = [{"role": "system", "content": "Speak French."}]
    in_session(conversation, session).send_message("Hello!")
    assert [message["role"] for message in conversation.sent[-1]["messages"]] == ["system", "user"]
    assert [role for role, _ in contents(api, session)] == ["user", "assistant"]


def test_unanswered_message_is_not_stored_twice(
    conversation: Conversation, api: Api, session: str
) -> None:
    api.http.patch(f"/sessions/{session}", json={"model": "failing"})
    in_session(conversation, session).refused(model="failing")
    assert contents(api, session)[1:] == [("user", "Hello!")]
    conversation.send_message("Hello!")
    assert [role for role, _ in contents(api, session)] == ["system", "user", "assistant"]


CALLED: Any = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "call_1", "function": {"index": 0, "name": "add", "arguments": {"a": 1, "b": 2}}}
    ],
}
RESULT = {"role": "tool", "content": "3.0", "tool_name": "add", "tool_call_id": "call_1"}
PARTIAL = {"role": "assistant", "content": "Hel", "interrupted": True}


@cases(
    ("answer", "kept"),
    [
        ([PARTIAL], ["user"]),
        ([CALLED, RESULT], ["user", "assistant", "tool"]),
        ([CALLED, {**RESULT, "interrupted": True}], ["user", "assistant", "tool"]),
        ([CALLED, RESULT, PARTIAL], ["user", "assistant", "tool"]),
        ([{"role": "assistant", "content": "Hello."}], ["user", "assistant", "user"]),
    ],
    ids=["cut", "called", "cut while calling", "cut after the call", "answered"],
)
def test_partly_answered_message_is_not_stored_twice(
    conversation: Conversation, api: Api, answer: list[Any], kept: list[str]
) -> None:
    """This happens when a client times out and retries."""
    file = {
        "metadata": {"model": "mochi"},
        "messages": [{"role": "user", "content": "Hello!"}, *answer],
    }
    (imported,) = api.ok(api.http.post("/sessions/import", json=file), 201)["sessions"]
    assert message_of(
        in_session(conversation, imported["session_id"]).send_message("Hello!")
    ).content
    assert [role for role, _ in contents(api, imported["session_id"])] == [*kept, "assistant"]


@pytest.mark.parametrize("answer", [[], [PARTIAL]], ids=["unanswered", "cut"])
def test_repeated_tool_result_is_answered(
    conversation: Conversation, api: Api, answer: list[Any]
) -> None:
    """This happens when Ollama fails and a client retries."""
    history = [
        {"role": "user", "content": "Hello!"},
        {**CALLED, "client_tool_calls": ["call_1"]},
        RESULT,
        *answer,
    ]
    file = {"metadata": {"model": "mochi"}, "messages": history}
    (imported,) = api.ok(api.http.post("/sessions/import", json=file), 201)["sessions"]
    result = {"role": "tool", "tool_call_id": "call_1", "content": "3.0"}
    assert message_of(
        in_session(conversation, imported["session_id"]).send_messages(result)
    ).content
    assert [message["role"] for message in conversation.sent[-1]["messages"]] == [
        "user",
        "assistant",
        "tool",
    ]
    messages = api.messages(imported["session_id"])
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert "interrupted" not in messages[-1]


def test_known_tool_results_are_not_stored_twice(
    conversation: Conversation, api: Api, session: str
) -> None:
    in_session(conversation, session).asks["tools"] = [LOOK]
    call = call_of(conversation.send_message(instruct(calls("look"), words(2))))
    result = {"role": "tool", "tool_call_id": call.id, "content": "seen"}
    assert conversation.refused(messages=[{**result, "tool_call_id": "other"}]).status_code == 400
    conversation.send_messages(result, {"role": "user", "content": "And now?"})
    assert [role for role, _ in contents(api, session)][2:] == [
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    conversation.messages.pop()
    conversation.messages[-1]["content"] = "And then?"
    conversation.send_messages()
    assert [role for role, _ in contents(api, session)].count("tool") == 1


def test_calls_without_results_do_not_block_session(
    conversation: Conversation, api: Api, session: str
) -> None:
    in_session(conversation, session)
    conversation.send_message(instruct(calls("look"), words(2)), tools=[LOOK])
    conversation.messages.clear()
    assert message_of(conversation.send_message("Never mind.")).content
    assert [role for role, _ in contents(api, session)][1:] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]


def test_session_takes_model_of_request(conversation: Conversation, api: Api, session: str) -> None:
    in_session(conversation, session).send_message("Hello!", model="mochi-chat")
    assert api.session(session)["model"] == "mochi-chat"
    assert api.messages(session)[-1]["model"] == "mochi-chat"
    assert conversation.refused(model="nowhere").code == "model_not_found"
    assert api.session(session)["model"] == "mochi-chat"


def test_rejected_request_does_not_change_the_model(
    conversation: Conversation, api: Api, session: str
) -> None:
    refusal = in_session(conversation, session).refused(model="mochi-chat", tool_choice="required")
    assert (refusal.status_code, refusal.param) == (400, "tool_choice")
    assert api.session(session)["model"] == "mochi"
    assert len(api.messages(session)) == 1


def test_text_format_overrides_the_format_of_the_session(
    conversation: Conversation, api: Api
) -> None:
    session = str(api.create_session("mochi", format="json")["session_id"])
    in_session(conversation, session).send_message("Hello!")
    conversation.send_message("And now?", response_format={"type": "text"})
    assert [sent.get("format") for sent in conversation.sent] == ["json", None]


@cases(
    "messages",
    [
        [{"role": "user", "content": "  "}],
        [{"role": "system", "content": "x"}],
        [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}],
        [{"role": "tool", "tool_call_id": "x", "content": "y"}],
    ],
)
def test_request_without_new_message_is_refused(
    conversation: Conversation, api: Api, session: str, messages: Any
) -> None:
    refusal = in_session(conversation, session).refused(messages=messages)
    assert (refusal.status_code, refusal.param) == (400, "messages")
    assert len(api.messages(session)) == 1


def test_policy_header_is_refused_for_session(conversation: Conversation, session: str) -> None:
    headers = {"X-Mochi-Session": session, "X-Mochi-Tool-Policy": "never_confirm"}
    assert conversation.refused(extra_headers=headers).param == "X-Mochi-Tool-Policy"


def test_busy_session_is_409(holding: GatedStub, tmp_path: Path) -> None:
    with (
        RunningServer(tmp_path, holding.stub.url) as server,
        client_of(server) as client,
    ):
        api = server.client
        session = str(api.create_session("mochi")["session_id"])
        with api.open_stream(session, "hold") as events:
            next(events)
            refusal = in_session(Conversation(client, holding.stub), session).refused()
            assert (refusal.status_code, refusal.code) == (409, "session_busy")
            holding.gate.open()
            list(events)
        assert [role for role, _ in contents(api, session)] == ["user", "assistant"]


def test_concurrent_requests_are_one_turn_and_one_409(holding: GatedStub, tmp_path: Path) -> None:
    with RunningServer(tmp_path, holding.stub.url) as server:
        session = str(server.client.create_session("mochi")["session_id"])
        codes: list[int] = []

        def complete() -> None:
            body = {"model": "mochi", "messages": [{"role": "user", "content": "hold"}]}
            headers = {"X-Mochi-Session": session}
            root = server.api(base_url=server.url)
            codes.append(
                root.http.post("/v1/chat/completions", json=body, headers=headers).status_code
            )
            holding.gate.open()

        threads = [threading.Thread(target=complete) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert sorted(codes) == [200, 409]
