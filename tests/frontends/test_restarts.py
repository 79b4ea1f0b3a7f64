"""Approvals that were requested before a restart are decided after it, by the means of each
protocol.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mochi_server.client import MochiClient
from mochi_stub import Gate, Prompt, Reply, StubServer, Text, ToolCall, ToolCalls
from tests.frontends.chats import (
    Chunk,
    Frontend,
    message,
    of_type,
    read_chunks,
    response_to,
    types,
    user,
)
from tests.frontends.conftest import TOOLS
from tests.support.agents import delegate, nested, notes, write_agent
from tests.support.api import Api, error_of, read_events
from tests.support.balancer import Balancer
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.tools import write_tools
from tests.support.waiting import until

NOTE = instruct(calls("note", text="milk"), words(1))
IN_AGENT = nested(delegate(words(1), calls("note", text="x"), words(2)), words(3))


class Restarts:
    """One server at a time over the same files."""

    def __init__(self, stack: ExitStack, data_dir: Path, stub: StubServer) -> None:
        self.data_dir, self._stack, self._stub = data_dir, stack, stub
        self.server = self._start()
        settings: dict[str, Any] = {"tool_settings": {"tools": ["note"]}}
        settings |= {"agent_settings": {"enabled_agents": ["helper"]}}
        self.sessions = [
            self.server.client.create_session("mochi", **settings)["session_id"] for _ in range(2)
        ]

    @property
    def frontends(self) -> list[Frontend]:
        """Clients of the two sessions."""
        return [Frontend(self.server.client, session) for session in self.sessions]

    @property
    def frontend(self) -> Frontend:
        return self.frontends[0]

    @property
    def other(self) -> Frontend:
        """Client of another session."""
        return self.frontends[1]

    def restart(self) -> None:
        self.server.stop()
        self.server = self._start()

    def _start(self) -> RunningServer:
        return self._stack.enter_context(
            RunningServer(self.data_dir, self._stub.url, shutdown_grace_seconds=0)
        )


@pytest.fixture
def restarts(tmp_path: Path, stub: StubServer) -> Iterator[Restarts]:
    write_tools(tmp_path, TOOLS)
    write_agent(tmp_path)
    with ExitStack() as stack:
        yield Restarts(stack, tmp_path, stub)


def port_of(server: RunningServer) -> int:
    return int(server.url.rpartition(":")[2])


def interrupts(events: list[Chunk]) -> list[Chunk]:
    found: list[Chunk] = events[-1]["outcome"]["interrupts"]
    return found


def test_ai_sdk_decides_after_a_restart(restarts: Restarts) -> None:
    approvals = [
        of_type(each.ai_sdk(user(NOTE)), "tool-approval-request") for each in restarts.frontends
    ]
    restarts.restart()
    answers = [response_to(approvals[0], approved=True), response_to(approvals[1], approved=False)]
    for number, result_type in enumerate(("tool-output-available", "tool-output-denied")):
        frontend, called = restarts.frontends[number], approvals[number]["toolCallId"]
        chunks = frontend.ai_sdk(user(NOTE), answers[number])
        assert of_type(chunks, result_type)["toolCallId"] == called
        assert chunks[0] == {"type": "start", "messageId": called.partition("-")[0]}
        assert types(chunks)[-1] == "finish"
        assert frontend.roles() == ["user", "assistant", "tool", "assistant"]
    for restarts_first in (False, True):
        if restarts_first:
            restarts.restart()
        for frontend, answer in zip(restarts.frontends, answers, strict=True):
            assert types(frontend.ai_sdk(user(NOTE), answer))[-1] == "finish", (
                "the request can be repeated"
            )
            assert len(frontend.roles()) == 4


def test_decision_about_a_call_that_was_not_parked_can_be_repeated_after_a_restart(
    restarts: Restarts,
) -> None:
    answer = response_to(of_type(restarts.frontend.ai_sdk(user(NOTE)), "tool-approval-request"))
    (interrupt,) = interrupts(restarts.other.ag_ui(message(NOTE)))
    resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
    for restarts_first in (False, True):
        if restarts_first:
            restarts.restart()
        chunks = restarts.frontend.ai_sdk(user(NOTE), answer)
        events = restarts.other.ag_ui(resume=resume, runId="r2")
        assert (types(chunks)[-1], types(events)[-1]) == ("finish", "RUN_FINISHED")
        assert (
            of_type(chunks, "text-delta")["delta"]
            == of_type(events, "TEXT_MESSAGE_CONTENT")["delta"]
            == "ID lorem ID"
        )
        assert (
            restarts.frontend.roles()
            == restarts.other.roles()
            == ["user", "assistant", "tool", "assistant"]
        )


def test_ai_sdk_resumes_a_parked_turn_after_a_restart(restarts: Restarts) -> None:
    first = restarts.frontend.ai_sdk(user(NOTE))
    restarts.restart()
    resumed = read_chunks(
        restarts.frontend.api.http.get(f"/chat/{restarts.sessions[0]}/ai-sdk/any/stream").content
    )
    assert types(resumed)[-3:] == ["tool-approval-request", "finish-step", "finish"]
    approval = of_type(resumed, "tool-approval-request")
    assert approval == of_type(first, "tool-approval-request")
    assert resumed[0] == first[0]
    assert types(restarts.frontend.ai_sdk(user(NOTE), response_to(approval)))[-1] == "finish"


def test_ai_sdk_decides_two_calls_of_a_round_after_a_restart(restarts: Restarts) -> None:
    message = instruct(
        {"tool_call": calls("note", text="a")["tool_call"] + calls("note", text="b")["tool_call"]},
        words(2),
    )
    approval = of_type(restarts.frontend.ai_sdk(user(message)), "tool-approval-request")
    restarts.restart()
    second = restarts.frontend.ai_sdk(user(message), response_to(approval))
    again = of_type(second, "tool-approval-request")
    assert again["toolCallId"] != approval["toolCallId"]
    restarts.restart()
    third = restarts.frontend.ai_sdk(user(message), response_to(again))
    assert of_type(third, "tool-output-available")["toolCallId"] == again["toolCallId"]
    assert [role for role in restarts.frontend.roles() if role == "tool"] == ["tool", "tool"]


def test_resumed_streams_show_the_results_of_earlier_calls(restarts: Restarts) -> None:
    sent = instruct(
        {"tool_call": [call for text in "ab" for call in calls("note", text=text)["tool_call"]]},
        words(2),
    )
    first = of_type(restarts.frontend.ai_sdk(user(sent)), "tool-approval-request")
    second = of_type(
        restarts.frontend.ai_sdk(user(sent), response_to(first)), "tool-approval-request"
    )
    run_id = restarts.frontend.api.ok(
        restarts.frontend.api.http.get(f"/chat/{restarts.sessions[0]}/run")
    )["run_id"]
    restarts.restart()
    api, session_id = restarts.frontend.api, restarts.sessions[0]
    chunks = read_chunks(api.http.get(f"/chat/{session_id}/ai-sdk/any/stream").content)
    outputs = [chunk["toolCallId"] for chunk in chunks if chunk["type"] == "tool-output-available"]
    assert outputs == [first["toolCallId"]]
    assert of_type(chunks, "tool-approval-request")["toolCallId"] == second["toolCallId"]
    with api.http.stream(
        "GET", f"/chat/{session_id}/stream", headers={"Last-Event-ID": f"{run_id}:1"}
    ) as response:
        events = read_events(response)
        shown = [next(events).type for _ in range(4)]
    assert shown == ["snapshot", "tool_call", "tool_result", "tool_call_confirmation_required"]


def test_repeated_decision_shows_the_next_call_that_waits(restarts: Restarts) -> None:
    sent = instruct(
        {"tool_call": [call for text in "ab" for call in calls("note", text=text)["tool_call"]]},
        words(2),
    )
    answer = response_to(of_type(restarts.frontend.ai_sdk(user(sent)), "tool-approval-request"))
    (interrupt,) = interrupts(restarts.other.ag_ui(message(sent)))
    resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
    waiting = of_type(restarts.frontend.ai_sdk(user(sent), answer), "tool-approval-request")
    (next_interrupt,) = interrupts(restarts.other.ag_ui(resume=resume, runId="r2"))
    for restarts_first in (False, True):
        if restarts_first:
            restarts.restart()
        chunks = restarts.frontend.ai_sdk(user(sent), answer)
        assert types(chunks)[-4:] == [
            "tool-input-available",
            "tool-approval-request",
            "finish-step",
            "finish",
        ]
        assert of_type(chunks, "tool-approval-request") == waiting
        (again,) = interrupts(restarts.other.ag_ui(resume=resume, runId="r3"))
        assert [again[name] for name in ("id", "toolCallId")] == [
            next_interrupt[name] for name in ("id", "toolCallId")
        ]
    assert types(restarts.frontend.ai_sdk(user(sent), response_to(waiting)))[-1] == "finish"
    assert restarts.frontend.roles() == ["user", "assistant", "tool", "tool", "assistant"]


def test_ai_sdk_decides_the_call_of_an_agent_after_a_restart(restarts: Restarts) -> None:
    approval = of_type(restarts.frontend.ai_sdk(user(IN_AGENT)), "tool-approval-request")
    restarts.restart()
    chunks = restarts.frontend.ai_sdk(user(IN_AGENT), response_to(approval))
    assert approval["toolCallId"] in [
        c["toolCallId"] for c in chunks if c["type"] == "tool-output-available"
    ]
    assert types(chunks)[-1] == "finish"
    assert notes(restarts.data_dir) == ["x"]


def test_ag_ui_answers_an_interrupt_after_a_restart(restarts: Restarts) -> None:
    """One call is made by the model of the session, the other by an agent."""
    interrupted = []
    for frontend, sent in zip(restarts.frontends, (NOTE, IN_AGENT), strict=True):
        interrupted += interrupts(frontend.ag_ui(message(sent)))
    restarts.restart()
    for frontend, interrupt in zip(restarts.frontends, interrupted, strict=True):
        answer = {"interruptId": interrupt["id"], "status": "resolved"}
        resume = [answer | {"payload": {"approved": True, "editedArgs": {"text": "tea"}}}]
        events = frontend.ag_ui(resume=resume, runId="r2")
        assert interrupt["toolCallId"] in [
            e["toolCallId"] for e in events if e["type"] == "TOOL_CALL_RESULT"
        ]
        assert (events[0]["runId"], types(events)[-1]) == ("r2", "RUN_FINISHED")
        assert frontend.roles() == ["user", "assistant", "tool", "assistant"]


def test_other_protocols_show_what_a_parked_session_waits_for(restarts: Restarts) -> None:
    approval = of_type(restarts.frontend.ai_sdk(user(NOTE)), "tool-approval-request")
    restarts.restart()
    root = restarts.server.url
    headers = {"X-Mochi-Session": restarts.sessions[0]}
    body: dict[str, Any] = {"model": "mochi", "messages": [{"role": "user", "content": "Hi"}]}
    with Api(root) as api:
        requests: list[tuple[str, dict[str, Any]]] = [
            ("/v1/chat/completions", {}),
            ("/v1/messages", {"max_tokens": 50}),
            ("/v1/responses", {"messages": None, "input": "Hi"}),
        ]
        for path, fields in requests:
            sent = {name: value for name, value in (body | fields).items() if value is not None}
            busy = api.http.post(f"{root}{path}", json=sent, headers=headers)
            assert busy.status_code == 409, path
            assert "confirm-tool" in busy.text, path
        decision = {"confirmation_id": approval["approvalId"], "approved": True}
        api.ok(api.http.post(f"/chat/{restarts.sessions[0]}/confirm-tool", json=decision))
        with api.http.stream("GET", f"/chat/{restarts.sessions[0]}/stream") as response:
            response.read()
        answered = api.http.post(
            f"{root}/v1/responses", json={"model": "mochi", "input": "Hi"}, headers=headers
        )
        assert answered.status_code == 200
        assert error_of(api.http.post(f"/chat/{restarts.sessions[0]}/confirm-tool", json=decision))[
            0
        ] in (404, 409)


def test_python_client_follows_a_turn_across_a_restart(tmp_path: Path, stub: StubServer) -> None:
    write_tools(tmp_path, TOOLS)
    with ExitStack() as stack:
        servers = [stack.enter_context(RunningServer(tmp_path, stub.url, shutdown_grace_seconds=0))]
        session = (
            servers[0]
            .api()
            .create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
        )
        balancer = stack.enter_context(Balancer([port_of(servers[0])]))

        def approve(_: object) -> bool:
            if len(servers) == 1:
                servers[0].stop()
                servers.append(stack.enter_context(RunningServer(tmp_path, stub.url)))
                balancer.ports = [port_of(servers[1])]
            return True

        with MochiClient(balancer.url) as client:
            answer = client.chat(session, NOTE, on_confirm=approve)
        assert (answer["state"], answer["tool_calls_executed"][0]["result"]) == (
            "completed",
            "Noted: milk",
        )


def test_python_client_decides_in_a_turn_that_begins_again_after_a_shutdown(tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    gate = Gate()
    replies = iter(
        [
            Reply([Text("one "), gate]),
            Reply([ToolCalls([ToolCall("note", {"text": "milk"})])]),
            Reply.of("Noted."),
        ]
    )
    asked: list[Prompt] = []
    decided: list[object] = []

    def resolve(prompt: Prompt) -> Reply:
        asked.append(prompt)
        return next(replies)

    def approve(call: object) -> bool:
        decided.append(call)
        return True

    with ExitStack() as stack:
        stub = stack.enter_context(StubServer(speed=0, resolve=resolve))
        first = stack.enter_context(RunningServer(tmp_path, stub.url, shutdown_grace_seconds=0))
        tools = {"tools": ["note"]}
        session_id = first.client.create_session("mochi", tool_settings=tools)["session_id"]
        balancer = stack.enter_context(Balancer([port_of(first)]))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        client = stack.enter_context(MochiClient(balancer.url))
        chatting = pool.submit(client.chat, session_id, "Note milk.", on_confirm=approve)
        until(lambda: asked)
        first.stop()
        second = stack.enter_context(RunningServer(tmp_path, stub.url))
        balancer.ports = [port_of(second)]
        answer = chatting.result()
    assert answer["message"]["content"] == "Noted."
    assert len(decided) == 1


def test_resumed_stream_of_a_turn_that_a_shutdown_has_ended_has_its_error(tmp_path: Path) -> None:
    gate = Gate()
    with ExitStack() as stack:
        stub = stack.enter_context(
            StubServer(speed=0, resolve=lambda _: Reply([Text("one "), gate]))
        )
        first = stack.enter_context(RunningServer(tmp_path, stub.url, shutdown_grace_seconds=0))
        session_id = first.client.create_session("mochi")["session_id"]
        with first.client.open_stream(session_id, "Hello!") as events:
            received = next(events)
            first.stop()
        second = stack.enter_context(RunningServer(tmp_path, stub.url))
        position = {"Last-Event-ID": received.id}
        path = f"/chat/{session_id}/stream"
        with second.client.http.stream("GET", path, headers=position) as response:
            resumed = list(read_events(response))
    assert [event.type for event in resumed] == ["snapshot", "error", "done"]
    assert resumed[1].data["code"] == "SHUTTING_DOWN"
