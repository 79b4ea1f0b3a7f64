"""Responses API: responses in the background, and responses by their ID."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from mochi_server.container import Components
from mochi_server.util.clock import timestamp
from mochi_stub import Cut, Gate, Model, Prompt, Reply, StubServer, Text
from tests.openai.conversation import client_of
from tests.support.agents import new_agent_chat, work_until, write_agent
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.stub import chats
from tests.support.tools import write_tools
from tests.support.waiting import until

if TYPE_CHECKING:
    import openai
    from openai.types.responses import Response

LOOK: Any = {"type": "function", "name": "look", "parameters": {"type": "object"}}
TOOLS = """
def look() -> str:
    "Look."
    return "Nothing"

__all__ = ["look"]
"""
WAITING = "waiting_for_approval"
IN_SESSION = pytest.mark.parametrize("in_session", [True, False], ids=["session", "none"])


def resolve(prompt: Prompt) -> Reply | None:
    # An agent has a reminder after its task.
    if prompt.user_text == "hold" or any(each.content == "hold it" for each in prompt.messages):
        return Reply([Text(["one "]), Gate()])
    return Reply([Text(["one "]), Cut()]) if prompt.user_text == "fail" else None


@pytest.fixture(scope="module")
def stub() -> Iterator[StubServer]:
    with StubServer(speed=0, resolve=resolve) as stub:
        yield stub


@pytest.fixture(scope="module")
def server(stub: StubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(
        tmp_path_factory.mktemp("data"), stub.url, summarization_enabled=False
    ) as server:
        yield server


@pytest.fixture
def headers(server: RunningServer, in_session: bool) -> dict[str, str]:
    return (
        {"X-Mochi-Session": server.client.create_session("mochi")["session_id"]}
        if in_session
        else {}
    )


def start(client: openai.OpenAI, text: str, headers: dict[str, str], **request: Any) -> Response:
    asked: Any = {
        "model": "mochi",
        "input": text,
        "background": True,
        "extra_headers": headers,
        **request,
    }
    response: Response = client.responses.create(**asked)
    return response


def ended(client: openai.OpenAI, response_id: str) -> Response:
    until(lambda: client.responses.retrieve(response_id).status not in ("queued", "in_progress"))
    return client.responses.retrieve(response_id)


@pytest.mark.parametrize("text", ["hold", "fail"])
def test_items_of_an_interrupted_stream_can_be_sent_by_id(
    client: openai.OpenAI, stub: StubServer, text: str
) -> None:
    """The AI SDK sends the IDs of all items that it has received."""
    import openai

    item_id = ""
    with client.responses.create(model="mochi", input=text, stream=True) as events:
        for event in events:
            if event.type == "response.output_text.delta":
                item_id = event.item_id
            if item_id and text == "hold":
                break  # disconnect
    reference: Any = {"type": "item_reference", "id": item_id}
    question: Any = {"role": "user", "content": "And now?"}

    def is_known() -> bool:
        try:
            client.responses.create(model="mochi", input=[reference, question])
        except openai.BadRequestError:
            return False
        return True

    until(is_known, seconds=20)
    contents = [message["content"] for message in chats(stub)[-1].body["messages"]]
    assert contents == ["one ", "And now?"]


@IN_SESSION
def test_background_response_completes_without_a_client(
    client: openai.OpenAI, headers: dict[str, str]
) -> None:
    started = start(client, instruct(words(3), reasoning=2), headers, instructions="Be kind.")
    assert (started.status, started.background, started.output) == ("in_progress", True, [])
    response = ended(client, started.id)
    assert (response.status, response.id, response.instructions) == (
        "completed",
        started.id,
        "Be kind.",
    )
    assert response.output_text
    assert response.usage
    assert client.responses.cancel(started.id) == response


@IN_SESSION
def test_background_response_can_be_cancelled(
    client: openai.OpenAI, stub: StubServer, headers: dict[str, str]
) -> None:
    stub.clear_exchanges()
    started = start(client, "hold", headers)
    stub.wait_for(lambda all_: any(e.path == "/api/chat" and e.chunks for e in all_))
    assert client.responses.retrieve(started.id).status == "in_progress"
    cancelled = client.responses.cancel(started.id)
    assert (cancelled.status, cancelled.output_text) == ("cancelled", "one ")
    assert client.responses.cancel(started.id) == cancelled == client.responses.retrieve(started.id)


def test_repeated_request_has_the_same_background_response(
    server: RunningServer, client: openai.OpenAI, caplog: pytest.LogCaptureFixture
) -> None:
    session_id = server.client.create_session("mochi")["session_id"]
    headers = {"X-Mochi-Session": session_id, "Idempotency-Key": "once"}
    started, again = (start(client, "hold", headers) for _ in range(2))
    assert again.id == started.id
    assert client.responses.cancel(started.id).status == "cancelled"
    assert client.responses.retrieve(started.id).status == "cancelled"
    assert [record for record in caplog.records if record.exc_info] == []


@IN_SESSION
def test_stream_of_a_cancelled_response_ends_with_an_event_of_openai(
    client: openai.OpenAI, headers: dict[str, str]
) -> None:
    request: Any = {"model": "mochi", "input": "hold", "background": True, "extra_headers": headers}
    seen: list[Any] = []
    with client.responses.stream(**request) as events:
        for event in events:
            seen.append(event)
            if event.type == "response.output_text.delta":
                client.responses.cancel(seen[0].response.id)
    last = seen[-1]
    assert (last.type, last.response.status) == ("response.incomplete", "cancelled")
    assert last.response.output_text == "one "


@IN_SESSION
def test_background_response_can_fail(client: openai.OpenAI, headers: dict[str, str]) -> None:
    response = ended(client, start(client, "fail", headers).id)
    assert response.status == "failed"
    assert response.error
    assert response.error.code == "server_error"


@pytest.mark.parametrize(
    ("text", "problem"), [("hold", "has not ended; wait"), ("fail", "has failed; repeat")]
)
def test_response_that_is_not_complete_cannot_be_continued(
    client: openai.OpenAI, text: str, problem: str
) -> None:
    import openai

    started = start(client, text, {})
    if text == "fail":
        assert ended(client, started.id).status == "failed"
    with pytest.raises(openai.BadRequestError, match=problem) as caught:
        client.responses.create(model="mochi", input="And now?", previous_response_id=started.id)
    assert caught.value.param == "previous_response_id"
    client.responses.cancel(started.id)


@IN_SESSION
def test_background_response_can_be_streamed(
    client: openai.OpenAI, headers: dict[str, str]
) -> None:
    request: Any = {
        "model": "mochi",
        "input": "Hello!",
        "background": True,
        "extra_headers": headers,
        "stream": True,
    }
    *_, last = client.responses.create(**request)
    assert last.type == "response.completed"
    response = ended(client, last.response.id)
    assert response.output_text == last.response.output_text
    assert [item.id for item in response.output] == [item.id for item in last.response.output]
    assert len(response.output) == 1
    if not headers:
        follow_up: Any = {"input": "And?", "previous_response_id": response.id}
        reference: Any = {"input": [{"type": "item_reference", "id": last.response.output[0].id}]}
        for following in (follow_up, reference):
            assert client.responses.create(model="mochi", **following).status == "completed"


@IN_SESSION
def test_background_response_of_an_agent_completes_after_a_disconnect(
    tmp_path: Path, in_session: bool
) -> None:
    gate = Gate()
    write_agent(tmp_path)
    with (
        StubServer(speed=0, resolve=work_until(gate)) as stub,
        RunningServer(tmp_path, stub.url) as server,
        client_of(server) as client,
    ):
        headers = {"X-Mochi-Session": new_agent_chat(server.client)} if in_session else {}
        created: Any = client.responses.create(
            model="agent:helper", input="Work.", background=True, stream=True, extra_headers=headers
        )
        with created as events:
            response_id = next(iter(events)).response.id
        runs = server.app.state.services.turns.table
        until(lambda: not any(run.subscribers for run in runs.running()))
        gate.open()
        response = ended(client, response_id)
        assert (response.status, response.output_text) == ("completed", "one \n\none ")


def test_conversation_with_an_agent_has_its_responses_after_a_restart(
    tmp_path: Path, stub: StubServer
) -> None:
    write_agent(tmp_path)
    work = instruct(words(2), calls("look"), words(3), label="A")
    with RunningServer(tmp_path, stub.url) as server, client_of(server) as client:
        headers = {"X-Mochi-Session": new_agent_chat(server.client)}
        first = ended(client, start(client, work, headers, model="agent:helper").id)
        assert [item.type for item in first.output] == ["reasoning", "message"]
    with RunningServer(tmp_path, stub.url) as server, client_of(server) as client:
        again = client.responses.retrieve(first.id)
    assert (again.status, again.model, again.usage) == (first.status, first.model, first.usage)
    assert again.output == first.output


def test_streamed_response_of_an_agent_is_in_progress_and_can_be_cancelled(
    tmp_path: Path, stub: StubServer
) -> None:
    write_agent(tmp_path)
    work: Any = {"model": "agent:helper", "input": "hold it", "stream": True}
    with RunningServer(tmp_path, stub.url) as server, client_of(server) as client:
        headers = {"X-Mochi-Session": new_agent_chat(server.client)}
        stub.clear_exchanges()
        with client.responses.create(**work, extra_headers=headers) as events:
            response_id = next(iter(events)).response.id
            stub.wait_for(lambda all_: any(e.path == "/api/chat" and e.chunks for e in all_))
            assert client.responses.retrieve(response_id).status == "in_progress"
            (plan,) = client.responses.cancel(response_id).output
        assert plan.type == "reasoning"
        response = start(client, "hold it", headers, model="agent:helper")
        assert client.responses.cancel(response.id).status == "cancelled"


@IN_SESSION
def test_other_responses_can_be_retrieved_but_not_cancelled(
    client: openai.OpenAI, headers: dict[str, str]
) -> None:
    import openai

    asked: Any = {"model": "mochi", "input": "Hello!", "extra_headers": headers}
    response = client.responses.create(**asked)
    assert client.responses.retrieve(response.id).output_text == response.output_text
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(response.id)


def test_unknown_response_is_404(client: openai.OpenAI, server: RunningServer) -> None:
    import openai

    session_id = server.client.create_session("mochi")["session_id"]
    unstored = client.responses.create(model="mochi", input="Hello!", store=False)
    for response_id in (
        "resp_unknown",
        "resp_0123456789_0_0123456789",
        f"resp_{session_id}_0_0123456789",
        unstored.id,
    ):
        for request in (client.responses.retrieve, client.responses.cancel):
            with pytest.raises(openai.NotFoundError) as caught:
                request(response_id)
            assert caught.value.code == "response_not_found"


def test_response_of_a_deleted_session_is_unknown(
    client: openai.OpenAI, server: RunningServer
) -> None:
    import openai

    session_id = server.client.create_session("mochi")["session_id"]
    response = ended(client, start(client, "Hello!", {"X-Mochi-Session": session_id}).id)
    server.client.http.delete(f"/sessions/{session_id}")
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_session_has_its_responses_after_a_restart(tmp_path: Path, stub: StubServer) -> None:
    with RunningServer(tmp_path, stub.url) as server, client_of(server) as client:
        session_id = server.client.create_session("mochi")["session_id"]
        headers = {"X-Mochi-Session": session_id}
        first = ended(client, start(client, instruct(words(3), reasoning=2), headers).id)
        called = ended(client, start(client, instruct(calls("look")), headers, tools=[LOOK]).id)
        result: Any = [
            {"type": "function_call_output", "call_id": called.output[0].call_id, "output": "blue"}
        ]
        answered = ended(client, start(client, result, headers, tools=[LOOK]).id)
        stub.clear_exchanges()
        stopped = start(client, "hold", headers)
        stub.wait_for(lambda all_: any(e.path == "/api/chat" and e.chunks for e in all_))
        client.responses.cancel(stopped.id)
    with RunningServer(tmp_path, stub.url) as server, client_of(server) as client:
        again = client.responses.retrieve(first.id)
        assert (again.status, again.output_text, again.usage) == (
            "completed",
            first.output_text,
            first.usage,
        )
        assert [item.type for item in again.output] == ["reasoning", "message"]
        (call,) = client.responses.retrieve(called.id).output
        assert (call.type, call.call_id) == ("function_call", called.output[0].call_id)
        assert client.responses.retrieve(answered.id).output_text == answered.output_text
        assert client.responses.retrieve(stopped.id).status == "cancelled"
        assert client.responses.cancel(stopped.id).output_text == "one "


def test_response_is_the_same_after_a_restart(tmp_path: Path, stub: StubServer) -> None:
    import openai

    write_tools(tmp_path, TOOLS)
    tools = {"tools": ["look"], "execution_policy": "never_confirm"}
    ask: Any = {**LOOK, "name": "ask"}
    text = instruct(words(1), calls("look"), calls("look", "ask"))
    with RunningServer(tmp_path, stub.url) as server, client_of(server) as client:
        session_id = server.client.create_session("mochi", tool_settings=tools)["session_id"]
        headers = {"X-Mochi-Session": session_id}
        first: Any = ended(client, start(client, text, headers, tools=[ask]).id)
        call_id = first.output[-1].call_id
        result: Any = [{"type": "function_call_output", "call_id": call_id, "output": "blue"}]
        unstored: Any = {"model": "mochi", "extra_headers": headers, "tools": [ask]}
        second: Any = client.responses.create(input=result, **unstored)
        with pytest.raises(openai.BadRequestError, match="background"):
            client.responses.cancel(second.id)
        stub.clear_exchanges()
        stopped = start(client, "hold", headers)
        stub.wait_for(lambda all_: any(e.path == "/api/chat" and e.chunks for e in all_))
        until(lambda: time.time() > stopped.created_at + 2)
        client.responses.cancel(stopped.id)
        *_, question, _ = server.client.messages(session_id)
    with RunningServer(tmp_path, stub.url) as server, client_of(server) as client:
        asked_at = int(timestamp(question["timestamp"]))
        assert client.responses.retrieve(stopped.id).created_at == asked_at
        for response in (first, second):
            again: Any = client.responses.retrieve(response.id)
            assert again.output == response.output
            assert again.background is None
            executed = again.mochi["tool_calls_executed"]
            assert executed == response.mochi["tool_calls_executed"]
    names = [call["tool_name"] for call in first.mochi["tool_calls_executed"]]
    assert (names, second.mochi["tool_calls_executed"]) == (["look", "look"], [])


@pytest.mark.parametrize("change", ["insert", "remove"])
def test_responses_stay_usable_if_the_system_prompt_changes(
    tmp_path: Path, stub: StubServer, change: str
) -> None:
    with RunningServer(tmp_path, stub.url) as server, client_of(server) as client:
        api = server.client
        prompt = {} if change == "insert" else {"system_prompt": "Be kind."}
        session_id = api.create_session("mochi", **prompt)["session_id"]
        path = f"/sessions/{session_id}/system-prompt"
        headers = {"X-Mochi-Session": session_id}
        first = ended(client, start(client, "Hello!", headers).id)
        until(lambda: time.time() > first.created_at + 2)
        second = ended(client, start(client, "And now?", headers).id)
        if change == "insert":
            api.ok(api.http.put(path, json={"content": "Be kind."}))
        else:
            api.http.delete(path).raise_for_status()
    with RunningServer(tmp_path, stub.url) as server, client_of(server) as client:
        created = [client.responses.retrieve(each.id).created_at for each in (first, second)]
        assert created == pytest.approx([first.created_at, second.created_at], abs=1)
        *_, latest = client.responses.input_items.list(second.id, order="asc")
        assert latest.content[0].text == "And now?"
        sent = {"previous_response_id": second.id, "extra_headers": headers}
        client.responses.create(model="mochi", input="Go on.", **sent)


def test_response_of_an_answer_with_null_fields_can_be_retrieved(
    tmp_path: Path, stub: StubServer
) -> None:
    write_tools(tmp_path, TOOLS)
    tools = {"tools": ["look"], "execution_policy": "never_confirm"}
    with RunningServer(tmp_path, stub.url) as server, client_of(server) as client:
        session_id = server.client.create_session("mochi", tool_settings=tools)["session_id"]
        headers = {"X-Mochi-Session": session_id}
        answered = ended(client, start(client, instruct(calls("look")), headers).id)
        file = server.settings.resolved_sessions_dir / f"{session_id}.json"
    stored = orjson.loads(file.read_bytes())
    for message in stored["messages"]:
        message.setdefault("client_tool_calls", None)
    file.write_bytes(orjson.dumps(stored))
    with RunningServer(tmp_path, stub.url) as server, client_of(server) as client:
        assert client.responses.retrieve(answered.id).output_text == answered.output_text


def test_response_without_an_answer_does_not_return_a_later_one(
    tmp_path: Path, stub: StubServer
) -> None:
    import openai

    with RunningServer(tmp_path, stub.url) as server, client_of(server) as client:
        session_id = server.client.create_session("mochi")["session_id"]
        headers = {"X-Mochi-Session": session_id}
        failed = ended(client, start(client, "Hello!", headers, model="failing").id)
        answered = ended(client, start(client, "Hello!", headers).id)
        assert (failed.status, answered.status) == ("failed", "completed")
    with RunningServer(tmp_path, stub.url) as server, client_of(server) as client:
        invented = f"resp_{session_id}_0_0123456789"
        for response_id in (failed.id, invented):
            with pytest.raises(openai.NotFoundError):
                client.responses.retrieve(response_id)
        assert client.responses.retrieve(answered.id).output_text == answered.output_text


def test_failed_response_does_not_return_the_answer_of_its_continuation(
    tmp_path: Path,
) -> None:
    replies = iter([Reply([Cut()]), Reply([Text(["blue"])])])

    def after_call(prompt: Prompt) -> Reply | None:
        return next(replies) if prompt.messages[-1].role == "tool" else None

    write_tools(tmp_path, TOOLS)
    question = instruct(calls("look"))
    tools = {"tools": ["look"], "execution_policy": "never_confirm"}
    with StubServer(speed=0, resolve=after_call) as stub:
        with RunningServer(tmp_path, stub.url) as server, client_of(server) as client:
            session_id = server.client.create_session("mochi", tool_settings=tools)["session_id"]
            headers = {"X-Mochi-Session": session_id}
            failed = ended(client, start(client, question, headers).id)
            answered = ended(client, start(client, question, headers).id)
            assert (failed.status, answered.output_text) == ("failed", "blue")
        with RunningServer(tmp_path, stub.url) as server, client_of(server) as client:
            again = client.responses.retrieve(failed.id)
    assert (again.status, again.output_text) == ("failed", "")


def test_partial_response_is_failed_after_a_later_one(tmp_path: Path, stub: StubServer) -> None:
    with RunningServer(tmp_path, stub.url) as server, client_of(server) as client:
        headers = {"X-Mochi-Session": server.client.create_session("mochi")["session_id"]}
        stub.clear_exchanges()
        stopped = start(client, "hold", headers)
        stub.wait_for(lambda all_: any(e.path == "/api/chat" and e.chunks for e in all_))
        client.responses.cancel(stopped.id)
        ended(client, start(client, "Hello!", headers).id)
    with RunningServer(tmp_path, stub.url) as server, client_of(server) as client:
        again = client.responses.retrieve(stopped.id)
    assert (again.status, again.output_text) == ("failed", "one ")
    assert again.error
    assert "stopped" in again.error.message


@pytest.mark.parametrize("change", ["regenerate", "edit", "remove"])
def test_replaced_response_is_unknown_after_a_restart(
    tmp_path: Path, stub: StubServer, change: str
) -> None:
    import openai

    with RunningServer(tmp_path, stub.url) as server, client_of(server) as client:
        api = server.client
        session_id = api.create_session("mochi")["session_id"]
        headers = {"X-Mochi-Session": session_id}
        replaced = ended(client, start(client, "Hello!", headers).id)
        if change == "regenerate":
            api.ok(api.http.post(f"/chat/{session_id}", json={"message": None}))
        else:
            edited = {"content": "Good morning!"}
            api.ok(api.http.put(f"/sessions/{session_id}/messages/0", json=edited))
        if change == "edit":
            ended(client, start(client, "Good morning!", headers).id)
    with (
        RunningServer(tmp_path, stub.url) as server,
        client_of(server) as client,
        pytest.raises(openai.NotFoundError),
    ):
        client.responses.retrieve(replaced.id)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_background_response_of_a_session_waits_for_approval(
    tmp_path: Path, stub: StubServer, is_restarted: bool
) -> None:
    write_tools(tmp_path, TOOLS)
    with ExitStack() as stack:
        server = stack.enter_context(RunningServer(tmp_path, stub.url, park_seconds=0))
        session = server.client.create_session("mochi", tool_settings={"tools": ["look"]})[
            "session_id"
        ]
        client = stack.enter_context(client_of(server))
        response = start(client, instruct(calls("look"), words(2)), {"X-Mochi-Session": session})
        until(
            lambda: (
                server.client.ok(server.client.http.get(f"/chat/{session}/run"))["state"] == WAITING
            )
        )
        if is_restarted:
            server.stop()
            server = stack.enter_context(RunningServer(tmp_path, stub.url))
            client = stack.enter_context(client_of(server))
        assert client.responses.retrieve(response.id).status == "in_progress"
        (waiting,) = server.client.ok(server.client.http.get(f"/chat/{session}/confirmations"))[
            "confirmations"
        ]
        decision = {"confirmation_id": waiting["confirmation_id"], "approved": True}
        server.client.ok(server.client.http.post(f"/chat/{session}/confirm-tool", json=decision))
        answered: Any = ended(client, response.id)
        *_, result, answer = server.client.messages(session)
        assert (answered.status, answered.output_text) == ("completed", answer["content"])
        (executed,) = answered.mochi["tool_calls_executed"]
        assert (executed["tool_name"], executed["result"]) == ("look", "Nothing")
        assert (result["content"], result["decided_by"]) == ("Nothing", "user")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "look"}])
def test_forced_call_of_a_tool_that_is_gone_can_be_denied(
    tmp_path: Path, stub: StubServer, choice: Any
) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, stub.url, park_seconds=0) as server, client_of(server) as client:
        api = server.client
        session = api.create_session("mochi", tool_settings={"tools": ["look"]})["session_id"]
        text, headers = instruct(calls("look"), words(2)), {"X-Mochi-Session": session}
        response = start(client, text, headers, tool_choice=choice)
        until(lambda: api.ok(api.http.get(f"/chat/{session}/run"))["state"] == WAITING)
        until(lambda: not server.app.state.services.turns.table.running())
        (waiting,) = api.ok(api.http.get(f"/chat/{session}/confirmations"))["confirmations"]
        api.ok(api.http.patch(f"/sessions/{session}", json={"tool_settings": {"tools": []}}))
        decision = {"confirmation_id": waiting["confirmation_id"], "approved": False}
        api.ok(api.http.post(f"/chat/{session}/confirm-tool", json=decision))
        assert ended(client, response.id).status == "completed"
        *_, result, answer = api.messages(session)
        assert "There is no tool named 'look'" in result["content"]
        assert answer["role"] == "assistant"


def test_continued_background_response_keeps_a_change_of_the_model(tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    models = [Model(name) for name in ("first", "requested", "changed")]
    with (
        StubServer(speed=0, models=models) as stub,
        RunningServer(tmp_path, stub.url, park_seconds=0, summarization_enabled=False) as server,
        client_of(server) as client,
    ):
        api = server.client
        session = api.create_session("first", tool_settings={"tools": ["look"]})["session_id"]
        text, headers = instruct(calls("look"), words(2)), {"X-Mochi-Session": session}
        response = start(client, text, headers, model="requested")
        until(lambda: api.ok(api.http.get(f"/chat/{session}/run"))["state"] == WAITING)
        assert api.session(session)["model"] == "requested"
        until(lambda: not server.app.state.services.turns.table.running())
        api.ok(api.http.patch(f"/sessions/{session}", json={"model": "changed"}))
        (waiting,) = api.ok(api.http.get(f"/chat/{session}/confirmations"))["confirmations"]
        decision = {"confirmation_id": waiting["confirmation_id"], "approved": True}
        api.ok(api.http.post(f"/chat/{session}/confirm-tool", json=decision))
        assert ended(client, response.id).status == "completed"
        assert api.session(session)["model"] == "changed"
        assert api.messages(session)[-1]["model"] == "changed"


@pytest.mark.parametrize("is_restarted", [False, True])
def test_response_whose_turn_is_parked_can_be_cancelled(
    tmp_path: Path, stub: StubServer, is_restarted: bool
) -> None:
    write_tools(tmp_path, TOOLS)
    with ExitStack() as stack:
        server = stack.enter_context(RunningServer(tmp_path, stub.url, park_seconds=0))
        session = server.client.create_session("mochi", tool_settings={"tools": ["look"]})[
            "session_id"
        ]
        body = {"message": instruct(calls("look")), "background": True}
        run = server.client.ok(server.client.http.post(f"/chat/{session}", json=body), 202)
        until(
            lambda: (
                server.client.ok(server.client.http.get(f"/chat/{session}/run"))["state"] == WAITING
            )
        )
        if is_restarted:
            server.stop()
            server = stack.enter_context(RunningServer(tmp_path, stub.url))
        client = stack.enter_context(client_of(server))
        response_id = f"resp_{session}_1_{run['run_id']}"
        assert client.responses.retrieve(response_id).status == "in_progress"
        assert client.responses.cancel(response_id).status == "cancelled"
        assert client.responses.retrieve(response_id).status == "cancelled"
        api = server.client
        assert api.ok(api.http.get(f"/chat/{session}/run"))["state"] == "stopped"
        assert [message.get("error_code") for message in api.messages(session)][
            -1
        ] == "TOOL_EXECUTION_DENIED"


@pytest.mark.parametrize("end", ["stop", "deny", "cancel"])
def test_parked_background_response_that_a_client_ends_is_cancelled(
    tmp_path: Path, stub: StubServer, end: str
) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, stub.url, park_seconds=0) as server, client_of(server) as client:
        api = server.client
        session = api.create_session("mochi", tool_settings={"tools": ["look"]})["session_id"]
        response = start(client, instruct(calls("look"), words(2)), {"X-Mochi-Session": session})
        until(lambda: api.ok(api.http.get(f"/chat/{session}/run"))["state"] == WAITING)
        until(lambda: not server.app.state.services.turns.table.running())
        if end == "stop":
            api.ok(api.http.post(f"/chat/{session}/stop"))
        elif end == "deny":
            api.send_message(session, "Hello", if_waiting="deny")
        else:
            assert client.responses.cancel(response.id).status == "cancelled"
        assert ended(client, response.id).status == "cancelled"


def test_response_of_a_parked_turn_is_in_progress_while_its_server_shuts_down(
    tmp_path: Path, stub: StubServer
) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, stub.url, park_seconds=0) as server, client_of(server) as client:
        api = server.client
        session = api.create_session("mochi", tool_settings={"tools": ["look"]})["session_id"]
        body = {"message": instruct(calls("look")), "background": True}
        run_id = api.ok(api.http.post(f"/chat/{session}", json=body), 202)["run_id"]
        turns = server.app.state.services.turns
        until(lambda: turns.table.suspended(session, run_id) is not None)
        server.call(turns.shutdown.set)
        server.call(turns.table.suspended(session, run_id).release_clients)
        response = client.responses.retrieve(f"resp_{session}_1_{run_id}")
        assert (response.status, response.error, response.output) == ("in_progress", None, [])


def test_response_whose_session_another_server_has_taken_is_read_from_the_session(
    server: RunningServer, client: openai.OpenAI, stub: StubServer
) -> None:
    session_id = server.client.create_session("mochi")["session_id"]
    stub.clear_exchanges()
    started = start(client, "hold", {"X-Mochi-Session": session_id})
    stub.wait_for(lambda all_: any(e.path == "/api/chat" and e.chunks for e in all_))
    turns = server.app.state.services.turns
    server.call(lambda: turns.abort_all([session_id]))
    response = ended(client, started.id)
    assert (response.status, response.output_text) == ("cancelled", "one ")


@pytest.mark.parametrize("streams", [False, True])
def test_response_is_in_progress_after_its_clients_were_released(
    tmp_path: Path, stub: StubServer, streams: bool
) -> None:
    """The turn goes on at the next server, also if a client has decided during the shutdown."""
    write_tools(tmp_path, TOOLS)
    components = Components(ping_seconds=0.05)  # the stream begins with a ping
    with (
        RunningServer(tmp_path, stub.url, components, park_seconds=0) as server,
        client_of(server) as client,
    ):
        api = server.client
        session = api.create_session("mochi", tool_settings={"tools": ["look"]})["session_id"]
        headers = {"X-Mochi-Session": session}
        started: Any = start(client, instruct(calls("look")), headers, stream=streams)
        first: Any = next(started).response if streams else started
        services = server.app.state.services
        turns = services.turns
        run_id = first.id.split("_")[-1]
        until(lambda: turns.table.suspended(session, run_id) is not None)
        server.call(turns.shutdown.set)
        server.call(turns.table.suspended(session, run_id).release_clients)
        if streams:
            list(started)
        until(lambda: not services.responses._running)
        response = client.responses.retrieve(first.id)
        assert (response.status, response.error, response.output) == ("in_progress", None, [])
        (waiting,) = api.ok(api.http.get(f"/chat/{session}/confirmations"))["confirmations"]
        decision = {"confirmation_id": waiting["confirmation_id"], "approved": True}
        api.ok(api.http.post(f"/chat/{session}/confirm-tool", json=decision), 202)
        response = client.responses.retrieve(first.id)
        assert (response.status, response.error, response.output) == ("in_progress", None, [])
