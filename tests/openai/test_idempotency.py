"""Idempotency keys of requests in a session: a repeated request gets the existing answer."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from mochi_server.chat.idempotency import find_repetition
from mochi_server.chat.turn_input import ToolSelection, TurnInput
from mochi_server.sessions.session import ChatSession, key_digest
from mochi_server.sessions.types import SessionCreationOptions, ToolMessage
from mochi_server.sessions.types import ToolCall as StoredCall
from mochi_server.util.clock import new_id, now
from mochi_stub import StubServer
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.reply import Failure, Gate, Reply, Text, ToolCalls
from tests.openai.conftest import TOOLS
from tests.openai.conversation import LOOK
from tests.sessions.samples import assistant, user
from tests.support.agents import new_agent_chat, work_until, write_agent
from tests.support.api import Api, read_events
from tests.support.cases import cases
from tests.support.holding import GatedStub
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.tools import write_tools
from tests.support.waiting import until


class Requests:
    """Requests to one session with the same idempotency key."""

    def __init__(self, server: RunningServer) -> None:
        self.url = f"{server.url}/v1/chat/completions"
        self.api: Api = server.client
        self.session_id = self.api.create_session("mochi")["session_id"]
        self.headers = {"X-Mochi-Session": self.session_id, "Idempotency-Key": "key-1"}

    def send(self, text: Any, **fields: Any) -> httpx.Response:
        messages = [{"role": "user", "content": text}] if isinstance(text, str) else text
        body = {"model": "mochi", "messages": messages, **fields}
        return self.api.http.post(self.url, json=body, headers=self.headers)

    def stored(self) -> list[str]:
        return [message["content"] for message in self.api.messages(self.session_id)]


@pytest.fixture
def requests(server: RunningServer) -> Requests:
    return Requests(server)


def test_repeated_request_gets_the_same_answer(requests: Requests) -> None:
    first = requests.send("Hello!").json()
    second = requests.send("Hello!").json()
    assert [first[name] for name in ("id", "choices", "usage")] == [
        second[name] for name in ("id", "choices", "usage")
    ]
    assert len(requests.stored()) == 2
    streamed = requests.send("Hello!", stream=True).text
    assert first["id"] in streamed
    assert len(requests.stored()) == 2


@pytest.mark.parametrize("option", [{"temperature": 0.2}, {"max_tokens": 3}, {"think": True}])
def test_repeated_request_with_another_option_gets_the_same_answer(
    requests: Requests, option: dict[str, Any]
) -> None:
    first = requests.send("Hello!").json()
    second = requests.send("Hello!", **option).json()
    assert second["choices"] == first["choices"]
    assert len(requests.stored()) == 2


def test_repeated_request_joins_the_running_turn_of_an_agent(tmp_path: Path) -> None:
    gate = Gate()
    write_agent(tmp_path)
    with (
        StubServer(speed=0, resolve=work_until(gate)) as stub,
        RunningServer(tmp_path, stub.url) as server,
        ThreadPoolExecutor(2) as pool,
    ):
        headers = {"X-Mochi-Session": new_agent_chat(server.client), "Idempotency-Key": "key-1"}
        body = {"model": "agent:helper", "messages": [{"role": "user", "content": "Work."}]}
        url = f"{server.url}/v1/chat/completions"
        table = server.app.state.services.turns.table
        sent = [pool.submit(server.client.http.post, url, json=body, headers=headers)]
        until(table.running)
        sent.append(pool.submit(server.client.http.post, url, json=body, headers=headers))
        (run,) = table.running()
        until(lambda: run.subscribers == 2 or sent[1].done())
        gate.open()
        first, second = (server.client.ok(response.result()) for response in sent)
    assert first["choices"] == second["choices"]


def test_repeated_request_of_the_responses_api_gets_the_same_id(requests: Requests) -> None:
    def respond(**fields: Any) -> Any:
        body = {"model": "mochi", "input": "Hello!", **fields}
        url = requests.url.replace("chat/completions", "responses")
        return requests.api.http.post(url, json=body, headers=requests.headers)

    first = respond().json()
    assert respond().json()["id"] == first["id"]
    assert first["id"] in respond(stream=True).text
    del requests.headers["Idempotency-Key"]
    assert respond(previous_response_id=first["id"]).status_code == 200


def test_repeated_tool_result_of_the_responses_api_gets_the_same_id(requests: Requests) -> None:
    def respond(**fields: Any) -> Any:
        body = {"model": "mochi", "tools": [{"type": "function", **LOOK["function"]}], **fields}
        url = requests.url.replace("chat/completions", "responses")
        return httpx.post(url, json=body, headers=requests.headers, timeout=10).json()

    (call,) = respond(input=instruct(calls("look"), words(2), words(2)))["output"]
    requests.headers["Idempotency-Key"] = "key-2"
    result = [{"type": "function_call_output", "call_id": call["call_id"], "output": "Rain."}]
    first, second = respond(input=result), respond(input=result)
    assert first["id"] == second["id"]
    requests.headers["Idempotency-Key"] = "key-3"
    assert respond(input="And now?", previous_response_id=second["id"])["status"] == "completed"


def test_repeated_request_after_a_restart_gets_the_stored_answer(
    tmp_path: Path, stub: StubServer
) -> None:
    with RunningServer(tmp_path, stub.url) as server:
        requests = Requests(server)
        first = requests.send("Hello!").json()
    with RunningServer(tmp_path, stub.url) as server:
        requests.url, requests.api = f"{server.url}/v1/chat/completions", server.client
        second = requests.send("Hello!").json()
        assert [first["choices"], first["usage"]] == [second["choices"], second["usage"]]
        assert len(requests.stored()) == 2


def test_texts_around_a_tool_call_are_separate_in_the_stored_answer(tmp_path: Path) -> None:
    def reply(prompt: Prompt) -> Reply:
        if prompt.after_tools:
            return Reply([Text("It rains.")])
        return Reply([Text("I look."), ToolCalls([ToolCall("look")])])

    write_tools(tmp_path, TOOLS)
    with StubServer(speed=0, resolve=reply) as stub:
        with RunningServer(tmp_path, stub.url) as server:
            requests = Requests(server)
            settings = {"tool_settings": {"tools": ["look"]}}
            path = f"/sessions/{requests.session_id}"
            server.client.ok(server.client.http.patch(path, json=settings))
            first = requests.send("And?").json()
        with RunningServer(tmp_path, stub.url) as server:
            requests.url, requests.api = f"{server.url}/v1/chat/completions", server.client
            second = requests.send("And?").json()
    assert first["choices"][0]["message"]["content"] == "I look.\n\nIt rains."
    assert second["choices"] == first["choices"]


def test_texts_of_a_stopped_answer_are_separate_after_a_restart(tmp_path: Path) -> None:
    gate = Gate()

    def reply(prompt: Prompt) -> Reply:
        if prompt.after_tools:
            return Reply([Text("It rains."), gate])
        return Reply([Text("I look."), ToolCalls([ToolCall("add", {"a": 1, "b": 2})])])

    write_tools(tmp_path, TOOLS)
    with StubServer(speed=0, resolve=reply) as stub, ThreadPoolExecutor() as pool:
        with RunningServer(tmp_path, stub.url) as server:
            requests = Requests(server)
            api, turns = server.api(), server.app.state.services.turns
            settings = {"tool_settings": {"tools": ["add"]}}
            api.ok(api.http.patch(f"/sessions/{requests.session_id}", json=settings))
            sent = pool.submit(requests.send, "And?")
            until(turns.table.running)
            with api.http.stream("GET", f"/chat/{requests.session_id}/stream") as response:
                next(event for event in read_events(response) if "rains" in str(event.data))
            api.ok(api.http.post(f"/chat/{requests.session_id}/stop"))
            first = sent.result().json()
        gate.open()
        with RunningServer(tmp_path, stub.url) as server:
            requests.url, requests.api = f"{server.url}/v1/chat/completions", server.client
            second = requests.send("And?").json()
    assert first["choices"][0]["message"]["content"] == "I look.\n\nIt rains."
    assert [second[name] for name in ("id", "choices")] == [
        first[name] for name in ("id", "choices")
    ]


def test_repeated_previous_response_after_a_restart_is_accepted(
    tmp_path: Path, stub: StubServer
) -> None:
    def respond(server: RunningServer, key: str, **fields: Any) -> Any:
        headers = {"X-Mochi-Session": session_id, "Idempotency-Key": key}
        body = {"model": "mochi", "input": key, **fields}
        return server.client.http.post(
            f"{server.url}/v1/responses", json=body, headers=headers
        ).json()

    with RunningServer(tmp_path, stub.url) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        first = respond(server, "key-1")
        second = respond(server, "key-2", previous_response_id=first["id"])
    with RunningServer(tmp_path, stub.url) as server:
        repeated = respond(server, "key-2", previous_response_id=first["id"])
        assert repeated["output"][0]["content"] == second["output"][0]["content"]
        assert (
            respond(server, "key-3", previous_response_id=first["id"])["error"]["param"]
            == "previous_response_id"
        )


def test_key_with_another_message_is_refused(requests: Requests) -> None:
    requests.send("Hello!")
    response = requests.send("Goodbye!")
    assert (response.status_code, response.json()["error"]["code"]) == (
        400,
        "idempotency_key_reused",
    )
    assert len(requests.stored()) == 2


def test_key_with_another_model_is_refused(requests: Requests) -> None:
    requests.send("Hello!")
    response = requests.send("Hello!", model="mochi-chat")
    assert (response.status_code, response.json()["error"]["code"]) == (
        400,
        "idempotency_key_reused",
    )
    assert requests.send("Hello!", model="mochi:latest").status_code == 200
    assert len(requests.stored()) == 2


def test_repeated_request_whose_session_has_another_model_now_gets_the_same_answer(
    requests: Requests,
) -> None:
    first = requests.send("Hello!", model="mochi-chat").json()
    requests.headers["Idempotency-Key"] = "key-2"
    assert requests.send("Goodbye!").status_code == 200
    requests.headers["Idempotency-Key"] = "key-1"
    assert requests.send("Hello!", model="mochi-chat").json()["choices"] == first["choices"]


def test_key_with_another_model_after_a_restart_is_refused(
    tmp_path: Path, stub: StubServer
) -> None:
    with RunningServer(tmp_path, stub.url) as server:
        requests = Requests(server)
        requests.send("Hello!")
    with RunningServer(tmp_path, stub.url) as server:
        requests.url, requests.api = f"{server.url}/v1/chat/completions", server.client
        response = requests.send("Hello!", model="mochi-chat")
        assert (response.status_code, response.json()["error"]["code"]) == (
            400,
            "idempotency_key_reused",
        )
        assert requests.send("Hello!", model="mochi:latest").status_code == 200
        assert len(requests.stored()) == 2


def test_repeated_tool_result_gets_the_same_answer(requests: Requests) -> None:
    text = instruct(calls("look"), words(2))
    call = requests.send(text, tools=[LOOK]).json()["choices"][0]["message"]["tool_calls"][0]
    requests.headers["Idempotency-Key"] = "key-2"
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "seen"}]
    first, second = (requests.send(results, tools=[LOOK]).json() for _ in range(2))
    assert first["choices"] == second["choices"]
    assert len(requests.stored()) == 4


def test_repeated_tool_result_after_a_restart_gets_the_stored_answer(
    tmp_path: Path, stub: StubServer
) -> None:
    with RunningServer(tmp_path, stub.url) as server:
        requests = Requests(server)
        text = instruct(calls("look"), words(2))
        call = requests.send(text, tools=[LOOK]).json()["choices"][0]["message"]["tool_calls"][0]
        requests.headers["Idempotency-Key"] = "key-2"
        result = {"role": "tool", "tool_call_id": call["id"], "content": "seen"}
        first = requests.send([result], tools=[LOOK]).json()
    with RunningServer(tmp_path, stub.url) as server:
        requests.url, requests.api = f"{server.url}/v1/chat/completions", server.client
        second = requests.send([result], tools=[LOOK]).json()
        assert [first["choices"], first["usage"]] == [second["choices"], second["usage"]]
        response = requests.send([{**result, "content": "other"}], tools=[LOOK])
        assert (response.status_code, response.json()["error"]["code"]) == (
            400,
            "idempotency_key_reused",
        )
        requests.headers["Idempotency-Key"] = "key-3"
        assert requests.send([result], tools=[LOOK]).status_code == 400
        assert len(requests.stored()) == 4


def test_repeated_request_after_a_restart_gets_the_tool_calls_of_its_answer(
    tmp_path: Path, stub: StubServer
) -> None:
    text = instruct(calls("look"), calls("look", far=True), words(2))
    with RunningServer(tmp_path, stub.url) as server:
        requests = Requests(server)
        first = requests.send(text, tools=[LOOK]).json()["choices"]
        requests.headers["Idempotency-Key"] = "key-2"
        (call,) = first[0]["message"]["tool_calls"]
        result = {"role": "tool", "tool_call_id": call["id"], "content": "seen"}
        second = requests.send([result], tools=[LOOK]).json()["choices"]
        assert second[0]["finish_reason"] == "tool_calls"
    with RunningServer(tmp_path, stub.url) as server:
        requests.url, requests.api = f"{server.url}/v1/chat/completions", server.client
        assert requests.send([result], tools=[LOOK]).json()["choices"] == second
        assert len(requests.stored()) == 4


def test_key_with_another_tool_result_is_refused(requests: Requests) -> None:
    text = instruct(calls("look"), words(2))
    call = requests.send(text, tools=[LOOK]).json()["choices"][0]["message"]["tool_calls"][0]
    requests.headers["Idempotency-Key"] = "key-2"
    seen, other = (
        {"role": "tool", "tool_call_id": call["id"], "content": content}
        for content in ("seen", "other")
    )
    assert requests.send([seen], tools=[LOOK]).status_code == 200
    response = requests.send([other], tools=[LOOK])
    assert (response.status_code, response.json()["error"]["code"]) == (
        400,
        "idempotency_key_reused",
    )
    assert len(requests.stored()) == 4


@cases("key", ["", "two words", "x" * 256])
def test_malformed_key_is_refused(requests: Requests, key: str) -> None:
    requests.headers["Idempotency-Key"] = key
    error = requests.send("Hello!").json()["error"]
    assert (error["param"], error["type"]) == ("Idempotency-Key", "invalid_request_error")


def test_without_a_session_the_key_has_no_effect(requests: Requests) -> None:
    del requests.headers["X-Mochi-Session"]
    assert requests.send("Hello!").json()["id"] != requests.send("Hello!").json()["id"]


def test_repeated_request_during_the_turn_gets_its_answer(
    holding: GatedStub, tmp_path: Path
) -> None:
    with RunningServer(tmp_path, holding.stub.url) as server:
        requests = Requests(server)
        answers: list[Any] = []
        threads = [
            threading.Thread(target=lambda: answers.append(requests.send("hold").json()["choices"]))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        runs = server.app.state.services.turns
        until(lambda: any(run.subscribers == 3 for run in runs.table.running()))
        holding.gate.open()
        for thread in threads:
            thread.join()
        assert answers == [answers[0]] * 3
        assert requests.stored() == ["hold", "one two three four"]


class FailingModel:
    def __init__(self) -> None:
        self.fails = True

    def resolve(self, _: Prompt) -> Reply:
        return Reply([Failure("kaput")]) if self.fails else Reply.of("Fine.")


@pytest.fixture
def failing() -> Iterator[tuple[FailingModel, StubServer]]:
    model = FailingModel()
    with StubServer(speed=0, resolve=model.resolve) as stub:
        yield model, stub


def test_failed_request_is_tried_again(
    failing: tuple[FailingModel, StubServer], tmp_path: Path
) -> None:
    model, stub = failing
    with RunningServer(tmp_path, stub.url) as server:
        requests = Requests(server)
        assert requests.send("Hello!").status_code == 502
        model.fails = False
        assert requests.send("Hello!").status_code == 200
        assert requests.stored() == ["Hello!", "Fine."]


class FailingAfterTools(FailingModel):
    """Model that calls a tool, and fails once in the middle of the answer to its result."""

    def resolve(self, prompt: Prompt) -> Reply:
        if prompt.messages[-1].role != "tool":
            return Reply([ToolCalls([ToolCall("add", {"a": 1, "b": 2})])])
        return (
            Reply([Text(["It ", "is "]), Failure("kaput")]) if self.fails else Reply.of("It is 3.")
        )


@pytest.mark.parametrize("has_key", [True, False])
def test_failed_request_does_not_repeat_tool_calls(tmp_path: Path, has_key: bool) -> None:
    model = FailingAfterTools()
    write_tools(tmp_path, TOOLS)
    with (
        StubServer(speed=0, resolve=model.resolve) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        requests = Requests(server)
        settings = {"tools": ["add"], "execution_policy": "never_confirm"}
        requests.api.ok(
            requests.api.http.patch(
                f"/sessions/{requests.session_id}", json={"tool_settings": settings}
            )
        )
        if not has_key:
            del requests.headers["Idempotency-Key"]
        assert requests.send("Hello!", tool_choice="required").status_code == 502
        assert requests.stored() == ["Hello!", "", "3.0", "It is "]
        model.fails = False
        response = requests.send("Hello!", tool_choice="required")
        executed = response.json()["mochi"]["tool_calls_executed"]
        assert [call["tool_name"] for call in executed] == (["add"] if has_key else [])
        assert requests.stored() == ["Hello!", "", "3.0", "It is 3."]


@pytest.mark.parametrize("with_partial", [True, False])
def test_repeated_request_of_the_responses_api_continues_the_response(
    tmp_path: Path, with_partial: bool
) -> None:
    call = Reply([Text(["Let me see. "]), ToolCalls([ToolCall("add", {"a": 1, "b": 2})])])
    cut = Reply([Failure("kaput")])
    if with_partial:
        cut = Reply([Text(["It ", "is "]), Failure("kaput")])
    replies = [call, cut, Reply.of("It is 3.")]
    write_tools(tmp_path, TOOLS)
    with (
        StubServer(speed=0, resolve=lambda _: replies.pop(0)) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        settings = {"tools": ["add"], "execution_policy": "never_confirm"}
        session_id = server.client.create_session("mochi", tool_settings=settings)["session_id"]
        headers = {"X-Mochi-Session": session_id, "Idempotency-Key": "key-1"}
        url = f"{server.url}/v1/responses"

        def respond(**fields: Any) -> Any:
            body = {"model": "mochi", "input": "Hello!", **fields}
            return server.client.http.post(url, json=body, headers=headers)

        interrupted_id = re.findall(r"resp_\w+", respond(stream=True).text)[0]
        response = respond().json()
        texts = [part["text"] for item in response["output"] for part in item["content"]]
        assert texts == ["Let me see. \n\nIt is 3."]
        answers = [m for m in server.client.messages(session_id) if m["role"] == "assistant"]
        assert response["usage"]["output_tokens"] == sum(m["eval_count"] for m in answers)
        assert response["id"].split("_")[-1] == interrupted_id.split("_")[-1]
        retrieved = server.client.http.get(f"{url}/{response['id']}").json()
        assert [item["content"] for item in retrieved["output"]] == [
            item["content"] for item in response["output"]
        ]


def test_repeated_request_continues_the_plan_of_an_agent(tmp_path: Path) -> None:
    write_agent(tmp_path)
    replies = [
        Reply.of("The plan."),
        Reply([Text(["I look. "]), ToolCalls([ToolCall("look")])]),
        Reply([Failure("kaput")]),
        Reply.of("Nothing."),
    ]

    def resolve(prompt: Prompt) -> Reply | None:
        is_asked = any(message.content == "Work." for message in prompt.messages)
        return replies.pop(0) if is_asked else None

    with (
        StubServer(speed=0, resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        chat = new_agent_chat(server.client)
        headers = {"X-Mochi-Session": chat, "Idempotency-Key": "key-1"}
        body = {"model": "agent:helper", "messages": [{"role": "user", "content": "Work."}]}
        url = f"{server.url}/v1/chat/completions"
        assert server.client.http.post(url, json=body, headers=headers).status_code == 502
        continued = server.client.ok(server.client.http.post(url, json=body, headers=headers))
        repeated = server.client.ok(server.client.http.post(url, json=body, headers=headers))
    message = continued["choices"][0]["message"]
    assert message["reasoning_content"] == "The plan."
    assert message["content"] == "I look. \n\nNothing."
    assert message == repeated["choices"][0]["message"]


def test_repeated_results_do_not_require_another_tool_call() -> None:
    session = ChatSession.create(SessionCreationOptions("mochi"))
    their_call, our_call = assistant(""), assistant("")
    their_call |= {"tool_calls": [_call("theirs")], "client_tool_calls": ["theirs"]}
    our_call["tool_calls"] = [_call("ours")]
    their_result = _result("theirs")
    their_result["key_digest"] = key_digest(session.session_id, "key")
    session.messages += [
        user("Look!"),
        their_call,
        their_result,
        our_call,
        _result("ours"),
    ]
    turn = TurnInput(key="key", results=(_result("theirs"),), tools=ToolSelection(must_call=True))
    repetition = find_repetition(session, turn)
    assert repetition is not None
    again = repetition.input
    assert (again.results, again.change, again.tools.must_call) == ((), "continue", False)
    assert repetition.answer_start is None


def _call(call_id: str) -> StoredCall:
    return {"id": call_id, "function": {"name": "look", "arguments": {}}}


def _result(call_id: str) -> ToolMessage:
    return {
        "role": "tool",
        "content": "seen",
        "tool_name": "look",
        "tool_call_id": call_id,
        "message_id": new_id(),
        "timestamp": now(),
    }
