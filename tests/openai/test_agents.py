"""Agents as models of the OpenAI-compatible API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mochi_stub import Reply, StubServer
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.reply import ToolCalls
from tests.openai.conversation import Conversation, client_of, message_of, stored
from tests.support.agents import delegate, nested, notes, write_agent
from tests.support.api import text_of, types_of
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer

if TYPE_CHECKING:
    import openai

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
WORK = instruct(words(2), calls("look"), words(3), label="A")


@STREAMED
def test_agent_streams_plan_as_reasoning_and_answers(
    conversation: Conversation, data_dir: Path, stream: bool
) -> None:
    before = stored(data_dir)
    conversation.stream = stream
    conversation.messages = [
        {"role": "user", "content": "Earlier."},
        {"role": "assistant", "content": "Indeed."},
    ]
    answer = conversation.send_message(WORK, model="agent:helper")
    message: Any = message_of(answer)
    assert answer.model == "agent:helper"
    assert "A lorem" in message.content
    if not stream:
        assert message.reasoning_content
    assert answer.usage
    assert answer.usage.prompt_tokens > 0
    sent_contents = [message["content"] for message in conversation.sent[0]["messages"]]
    assert sent_contents[:4] == ["You are helper.", "Earlier.", "Indeed.", WORK]
    assert stored(data_dir) == before


@STREAMED
def test_plan_of_agent_is_separate_from_answer(
    conversation: Conversation, server: RunningServer, stream: bool
) -> None:
    api = server.client
    session = api.create_session("mochi", agent_settings={"enabled_agents": ["helper"]})[
        "session_id"
    ]
    api.send_message(session, instruct(delegate(), words(2)))
    chat = api.ok(api.http.get("/agents/chats"))["sessions"][0]["session_id"]
    before = len(api.ok(api.http.get(f"/agents/chats/{chat}"))["messages"])
    conversation.stream = stream
    answer = conversation.send_message(
        "Announce it.", model="agent:helper", extra_headers={"X-Mochi-Session": chat}
    )
    _, plan, *acting = [
        m["content"] for m in api.ok(api.http.get(f"/agents/chats/{chat}"))["messages"][before:]
    ]
    message: Any = message_of(answer)
    assert (len(acting), message.content) == (2, "\n\n".join(acting))
    if not stream:
        assert message.reasoning == plan


def test_agent_answers_with_the_model_of_the_request_that_calls_it(
    conversation: Conversation, server: RunningServer
) -> None:
    api = server.client
    settings = {"agent_settings": {"enabled_agents": ["helper"]}}
    session = api.create_session("mochi", **settings)["session_id"]
    conversation.send_message(
        nested(delegate(words(1)), words(2)),
        model="tool-caller",
        extra_headers={"X-Mochi-Session": session},
    )
    assert {body["model"] for body in conversation.sent} == {"tool-caller"}


def test_text_of_agents_in_a_session_is_reasoning(
    conversation: Conversation, server: RunningServer
) -> None:
    api = server.client
    session = api.create_session("mochi", agent_settings={"enabled_agents": ["helper"]})[
        "session_id"
    ]
    does = (words(2), calls("look"), words(3))
    answer = conversation.send_message(
        nested(delegate(*does), words(4), label="M"), extra_headers={"X-Mochi-Session": session}
    )
    message: Any = message_of(answer)
    assert message.content == api.messages(session)[-1]["content"]
    assert message.reasoning.split("\n\n") == [
        "A lorem ipsum A",
        "A lorem ipsum A",
        "A lorem ipsum dolor A",
    ]


def plan_with_a_tag(prompt: Prompt) -> Reply:
    """Return the reply of a model that writes its reasoning as text when it plans."""
    offered = [tool["function"]["name"] for tool in prompt.tools]
    if "note" in offered:
        return Reply.of("Done.")
    if not offered:
        return Reply.of("I should look.</think>I look.")
    if prompt.after_tools:
        return Reply.of("It is done.")
    return Reply([ToolCalls((ToolCall("agent", {"agent": "helper", "instruction": "Look."}),))])


@pytest.fixture(scope="module")
def tagged_stub() -> Iterator[StubServer]:
    with StubServer(speed=0, resolve=plan_with_a_tag) as stub:
        yield stub


@pytest.fixture(scope="module")
def tagged_server(
    tagged_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    write_agent(data_dir := tmp_path_factory.mktemp("tagged"))
    with RunningServer(data_dir, tagged_stub.url, summarization_enabled=False) as server:
        yield server


@STREAMED
def test_plan_with_a_tag_is_not_part_of_the_answer(
    tagged_server: RunningServer, tagged_stub: StubServer, stream: bool
) -> None:
    session = tagged_server.client.create_session(
        "mochi", agent_settings={"enabled_agents": ["helper"]}
    )["session_id"]
    with client_of(tagged_server) as client:
        conversation = Conversation(client, tagged_stub, stream=stream)
        of_agent: Any = message_of(conversation.send_message("Look.", model="agent:helper"))
        conversation.messages.clear()
        of_session: Any = message_of(
            conversation.send_message("Look.", extra_headers={"X-Mochi-Session": session})
        )
    assert of_agent.content == "Done.\n\nDone."
    assert of_session.content == "It is done."
    if not stream:
        assert of_agent.reasoning == "I should look.I look."


def test_plan_with_a_tag_does_not_replace_the_text_of_the_session(
    tagged_server: RunningServer,
) -> None:
    api = tagged_server.client
    session = api.create_session("mochi", agent_settings={"enabled_agents": ["helper"]})
    events = api.stream_message(session["session_id"], "Look.")
    assert "snapshot" not in types_of(events)
    assert text_of(events) == "It is done."


def test_repeated_key_returns_the_answer_of_the_agent(server: RunningServer) -> None:
    api = server.client
    session = api.create_session("mochi", agent_settings={"enabled_agents": ["helper"]})[
        "session_id"
    ]
    api.send_message(session, instruct(delegate(), words(2)))
    chat = api.ok(api.http.get("/agents/chats"))["sessions"][0]["session_id"]
    body = {"model": "agent:helper", "messages": [{"role": "user", "content": WORK}]}
    headers = {"X-Mochi-Session": chat, "Idempotency-Key": "k1"}
    url = f"{server.url}/v1/chat/completions"
    first, again = (api.ok(api.http.post(url, json=body, headers=headers)) for _ in range(2))
    assert again["choices"] == first["choices"]
    messages = api.ok(api.http.get(f"/agents/chats/{chat}"))["messages"]
    assert [each["content"] for each in messages].count(WORK) == 1
    other = body | {"messages": [{"role": "user", "content": "Announce it."}]}
    refused = api.http.post(url, json=other, headers=headers).json()["error"]
    assert refused["code"] == "idempotency_key_reused"


@pytest.mark.parametrize(("policy", "written"), [(None, []), ("never_confirm", ["x"])])
def test_write_tool_of_agent_needs_policy(
    conversation: Conversation, data_dir: Path, policy: str | None, written: list[str]
) -> None:
    headers = {"X-Mochi-Tool-Policy": policy} if policy else {}
    before = notes(data_dir)
    conversation.send_message(
        instruct(words(1), calls("note", text="x"), words(1), label="A"),
        model="agent:helper",
        extra_headers=headers,
    )
    assert notes(data_dir) == before + written


def test_conversation_with_an_agent_is_continued_by_its_id(
    conversation: Conversation, server: RunningServer
) -> None:
    api = server.client
    session = api.create_session("mochi", agent_settings={"enabled_agents": ["helper"]})[
        "session_id"
    ]
    api.send_message(session, instruct(delegate(), words(2)))
    chat = api.ok(api.http.get("/agents/chats"))["sessions"][0]
    before = len(api.ok(api.http.get(f"/agents/chats/{chat['session_id']}"))["messages"])
    conversation.asks = {
        "model": "agent:helper",
        "extra_headers": {"X-Mochi-Session": chat["session_id"]},
    }
    conversation.send_message(WORK)
    messages = api.ok(api.http.get(f"/agents/chats/{chat['session_id']}"))["messages"]
    assert messages[before]["content"] == WORK
    assert (
        conversation.refused(extra_headers={"X-Mochi-Session": session}).code == "session_not_found"
    )


def test_error_for_unknown_agent_does_not_suggest_pull(
    conversation: Conversation, client: openai.OpenAI, tmp_path: Path
) -> None:
    import openai

    unknown = conversation.refused(model="agent:nobody")
    with pytest.raises(openai.NotFoundError, match="There is no agent named 'nobody'"):
        client.models.retrieve("agent:nobody")
    write_agent(tmp_path)
    with (
        StubServer(models=[], speed=0) as empty,
        RunningServer(tmp_path, empty.url) as server,
        client_of(server) as to,
    ):
        no_model = Conversation(to, empty).refused(model="agent:helper")
    for refusal in (unknown, no_model):
        assert "pull agent:" not in refusal.message


def test_agent_needs_a_user_message(conversation: Conversation) -> None:
    for messages in ([{"role": "system", "content": "x"}], [{"role": "user", "content": " "}]):
        refusal = conversation.refused(model="agent:helper", messages=messages)
        assert (refusal.status_code, refusal.param) == (400, "messages")
