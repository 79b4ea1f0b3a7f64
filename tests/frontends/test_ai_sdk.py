"""The AI SDK's route: UI message streams, approvals, edits, invalid messages and resume."""

from pathlib import Path
from typing import Any

import pytest

from mochi_stub import Cut, Gate, Prompt, Reply, StubServer, Text, ToolCall, ToolCalls
from tests.frontends.chats import (
    Frontend,
    of_type,
    read_chunks,
    response_to,
    sent_messages,
    types,
    user,
)
from tests.frontends.conftest import TOOLS
from tests.support.agents import delegate, nested
from tests.support.api import error_of
from tests.support.cases import cases
from tests.support.images import PNG, base64_image
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.tools import write_tools
from tests.support.versions import full_file
from tests.support.waiting import until

VISION_MODEL = "echo"
NOTE = instruct(calls("note", text="milk"), words(1))
APPROVAL = [
    "start",
    "start-step",
    "tool-input-available",
    "tool-approval-request",
    "finish-step",
    "finish",
]


def test_text_and_reasoning_are_parts_of_one_message(frontend: Frontend) -> None:
    chunks = frontend.ai_sdk(user(instruct(words(3), reasoning=4)), think=True)
    assert types(chunks) == [
        *("start", "start-step", "reasoning-start", "reasoning-delta", "reasoning-end"),
        *("text-start", "text-delta", "text-end", "finish-step", "finish"),
    ]
    text = "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta")
    assert text == frontend.stored()[-1][1]
    finish = chunks[-1]
    assert finish["finishReason"] == "stop"
    assert (
        finish["messageMetadata"]["message_id"]
        == frontend.api.messages(frontend.session)[-1]["message_id"]
    )


def test_tool_call_and_next_answer_are_two_steps(frontend: Frontend) -> None:
    chunks = frontend.ai_sdk(user(instruct(calls("add", a=1, b=2), words(1))))
    assert types(chunks)[1:8] == [
        *(
            "start-step",
            "tool-input-available",
            "tool-output-available",
            "finish-step",
            "start-step",
        ),
        *("text-start", "text-delta"),
    ]
    assert of_type(chunks, "tool-input-available")["input"] == {"a": 1, "b": 2}
    assert of_type(chunks, "tool-output-available")["output"] == "3.0"


def test_failed_call_has_an_error_text(frontend: Frontend) -> None:
    chunks = frontend.ai_sdk(user(instruct(calls("add", a="one"), words(1))))
    assert "Wrong arguments for add" in of_type(chunks, "tool-output-error")["errorText"]


@pytest.mark.parametrize("approved", [True, False])
def test_stream_ends_with_the_approval_request_and_the_response_continues_it(
    frontend: Frontend, approved: bool
) -> None:
    first = frontend.ai_sdk(user(NOTE))
    assert types(first) == APPROVAL
    second = frontend.ai_sdk(
        user(NOTE), response_to(of_type(first, "tool-approval-request"), approved=approved)
    )
    output = "tool-output-available" if approved else "tool-output-denied"
    assert types(second)[:2] == ["start", output]
    assert types(second)[-2:] == ["finish-step", "finish"]
    assert second[0] == first[0]
    assert (
        of_type(second, output)["toolCallId"]
        == of_type(first, "tool-input-available")["toolCallId"]
    )
    assert frontend.roles() == ["user", "assistant", "tool", "assistant"]


def test_repeated_response_to_an_approval_request_sends_the_stream_again(
    frontend: Frontend,
) -> None:
    approval = of_type(frontend.ai_sdk(user(NOTE)), "tool-approval-request")
    continued = frontend.ai_sdk(user(NOTE), response_to(approval))
    assert frontend.ai_sdk(user(NOTE), response_to(approval, approved=False)) == continued


def test_decision_of_another_client_counts(frontend: Frontend) -> None:
    approval = of_type(frontend.ai_sdk(user(NOTE)), "tool-approval-request")
    decision = {"confirmation_id": approval["approvalId"], "approved": False}
    frontend.api.ok(frontend.api.http.post(f"/chat/{frontend.session}/confirm-tool", json=decision))
    assert "tool-output-denied" in types(frontend.ai_sdk(user(NOTE), response_to(approval)))


def test_unknown_approval_is_refused(frontend: Frontend) -> None:
    response = frontend.post_ai_sdk(
        user("Hi"), response_to({"approvalId": "conf_0", "toolCallId": "c"})
    )
    assert error_of(response) == (404, "CONFIRMATION_NOT_FOUND")


def test_response_after_a_restart_continues_the_turn(stub: StubServer, tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, stub.url, shutdown_grace_seconds=0) as server:
        session = server.api().create_session("mochi", tool_settings={"tools": ["note"]})[
            "session_id"
        ]
        approval = of_type(
            Frontend(server.api(), session).ai_sdk(user(NOTE)), "tool-approval-request"
        )
    with RunningServer(tmp_path, stub.url) as server:
        frontend = Frontend(server.api(), session)
        chunks = frontend.ai_sdk(user(NOTE), response_to(approval))
        result = of_type(chunks, "tool-output-available")
        assert result["toolCallId"] == approval["toolCallId"]
        assert chunks[0]["type"] == "start"
        assert chunks[0]["messageId"] == approval["toolCallId"].partition("-")[0]
        assert types(chunks)[-1] == "finish"
        assert frontend.roles() == ["user", "assistant", "tool", "assistant"]


def test_message_instead_of_a_response_ends_the_waiting_turn(frontend: Frontend) -> None:
    frontend.ai_sdk(user(NOTE))
    assert types(frontend.ai_sdk(user("Never mind.")))[-1] == "finish"
    assert frontend.roles() == ["user", "assistant", "tool", "user", "assistant"]


def test_resume_repeats_the_stream_of_a_waiting_turn(frontend: Frontend) -> None:
    url = f"/chat/{frontend.session}/ai-sdk/any/stream"
    assert frontend.api.http.get(url).status_code == 204
    first = frontend.ai_sdk(user(NOTE))
    assert read_chunks(frontend.api.http.get(url).content) == first
    frontend.ai_sdk(user(NOTE), response_to(of_type(first, "tool-approval-request")))
    assert frontend.api.http.get(url).status_code == 204


def test_stopped_turn_ends_its_open_call_and_aborts(frontend: Frontend) -> None:
    api, url = frontend.api, f"/chat/{frontend.session}"
    with api.open_stream(frontend.session, NOTE) as events:
        next(event for event in events if event.type == "tool_call_confirmation_required")
        approval = read_chunks(api.http.get(f"{url}/ai-sdk/any/stream").content)
        assert types(approval) == APPROVAL
        api.ok(api.http.post(f"{url}/stop"))
    request = {"messages": [user(NOTE), response_to(of_type(approval, "tool-approval-request"))]}
    stopped = read_chunks(api.http.post(f"{url}/ai-sdk", json=request).content)
    assert types(stopped) == ["start", "tool-output-error", "abort"]


def test_agent_is_a_call_with_its_text_as_reasoning(frontend: Frontend) -> None:
    frontend.api.ok(
        frontend.api.http.patch(
            f"/sessions/{frontend.session}",
            json={"agent_settings": {"enabled_agents": ["librarian"]}},
        )
    )
    message = nested(
        delegate(words(2), calls("note", text="books"), words(1), agent="librarian"), words(1)
    )
    first = frontend.ai_sdk(user(message))
    agent, call = [chunk for chunk in first if chunk["type"] == "tool-input-available"]
    assert (agent["toolName"], call["toolName"]) == ("agent", "note")
    assert agent["input"]["agent"] == "librarian"
    assert "reasoning-delta" in types(first)
    step = first[
        : first.index(call)
    ]  # the AI SDK sends a decision only if no other call of the step is open
    assert [chunk["type"] for chunk in step if "step" in chunk["type"]] == [
        "start-step",
        "finish-step",
        "start-step",
    ]
    assert step.index(agent) < types(step).index("finish-step")
    second = frontend.ai_sdk(user(message), response_to(of_type(first, "tool-approval-request")))
    outputs = [chunk["toolCallId"] for chunk in second if chunk["type"] == "tool-output-available"]
    assert outputs == [call["toolCallId"], agent["toolCallId"]]


def test_last_message_is_answered_again(frontend: Frontend) -> None:
    message = user("Hello")
    frontend.ai_sdk(message)
    for messages in ([message], [user("not stored"), message]):
        response = frontend.post_ai_sdk(*messages, trigger="regenerate-message")
        assert response.status_code == (200 if len(messages) == 1 else 422)
    assert frontend.roles() == ["user", "assistant"]
    session = frontend.api.session(frontend.session)
    assert session["versions"] == {session["messages"][1]["message_id"]: {"count": 2, "shown": 2}}


def test_earlier_message_is_edited_or_answered_again(frontend: Frontend) -> None:
    messages = [user(text) for text in ("one", "two", "three")]
    for number in range(3):
        frontend.ai_sdk(*messages[: number + 1])
    frontend.ai_sdk(*messages[:2], trigger="regenerate-message")
    assert [text for role, text in frontend.stored() if role == "user"] == ["one", "two"]
    frontend.ai_sdk(
        messages[0] | {"parts": [{"type": "text", "text": "uno"}]}, messageId=messages[0]["id"]
    )
    assert [text for role, text in frontend.stored() if role == "user"] == ["uno"]
    session = frontend.api.session(frontend.session)
    assert session["versions"] == {session["messages"][0]["message_id"]: {"count": 2, "shown": 2}}
    wrong = frontend.post_ai_sdk(user("other"), messages[1], messageId=messages[1]["id"])
    assert error_of(wrong) == (422, "VALIDATION_ERROR")
    assert wrong.json()["error"]["details"]["errors"][0]["loc"] == ["body", "messages", 0]


@cases("text", ["Stop me", NOTE])
def test_edit_warns_about_removed_versions_although_its_turn_does_not_complete(
    tmp_path: Path, text: str
) -> None:
    def reply(prompt: Prompt) -> Reply | None:
        return Reply([Text(["one "]), Gate()]) if prompt.user_text == "Stop me" else None

    write_tools(tmp_path, TOOLS)
    with (
        StubServer(speed=0, resolve=reply) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api = server.client
        file = full_file("Hi", tool_settings={"tools": ["note"]})
        (session,) = api.ok(api.http.post("/sessions/import", json=file), 201)["sessions"]
        frontend = Frontend(api, session["session_id"])
        url = f"/chat/{frontend.session}"
        edit = {"messages": [user(text, id="q")], "messageId": "q"}
        with api.http.stream("POST", f"{url}/ai-sdk", json=edit) as response:
            received = response.iter_raw()
            data = next(received)
            while b"one " not in data and b"tool-approval-request" not in data:
                data += next(received)
            api.ok(api.http.post(f"{url}/stop"))
            data += b"".join(received)
    assert of_type(read_chunks(data), "data-warning")["data"]["code"] == "VERSIONS_REMOVED"


def test_unknown_fields_are_ignored_and_options_are_not(frontend: Frontend) -> None:
    frontend.ai_sdk(
        user("Hello", createdAt="now", parts=[{"type": "text", "text": "Hi", "state": "done"}]),
        id="c",
    )
    chunks = frontend.ai_sdk(user("Hello"), options={"num_predict": 1})
    assert chunks[-1]["finishReason"] == "length"
    assert error_of(frontend.post_ai_sdk(user("Hello"), options={"num_ctx": 1})) == (
        422,
        "VALIDATION_ERROR",
    )


def test_system_message_is_an_instruction_of_the_turn(frontend: Frontend, stub: StubServer) -> None:
    frontend.ai_sdk(user("Be brief.", role="system"), user("Hello"))
    assert sent_messages(stub)[0] == {"role": "system", "content": "Be brief."}
    assert frontend.roles() == ["user", "assistant"]


_FILE = {"type": "file", "mediaType": "text/plain", "url": "https://example.org/notes.txt"}
_RESPONDED = {
    "type": "tool-note",
    "toolCallId": "c",
    "state": "approval-responded",
    "approval": {"id": "x"},
}


@cases(
    ("messages", "location"),
    [
        ([], []),
        ([{"role": "user"}], [0, "parts"]),
        ([user("Hi", role="tool")], [0, "role"]),
        ([user("Hi"), user("Hm", role="assistant")], [1]),
        ([user("Hi"), user("Be brief.", role="system")], [1]),
        ([user(" ")], [0]),
        ([user("Hi", parts=[{"type": "text"}])], [0, "parts", 0, "text"]),
        ([user("Hi", parts=[{"type": "text", "text": "Hi"}, _FILE])], [0, "parts", 1, "url"]),
        ([user("Hi"), user("", role="assistant", parts=[_RESPONDED])], [1, "parts", 0, "approval"]),
    ],
)
def test_invalid_messages_have_their_position(
    frontend: Frontend, messages: list[dict[str, Any]], location: list[str | int]
) -> None:
    response = frontend.post_ai_sdk(*messages)
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert response.json()["error"]["details"]["errors"][0]["loc"] == [
        "body",
        "messages",
        *location,
    ]
    assert frontend.stored() == []


def test_error_for_an_invalid_image_names_its_field(frontend: Frontend) -> None:
    image = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA"}
    response = frontend.post_ai_sdk(user("", parts=[{"type": "text", "text": "Look!"}, image]))
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert response.json()["error"]["message"].startswith("messages.0.parts.1.url: not an image")


def test_image_is_stored_with_its_message(frontend: Frontend) -> None:
    frontend.api.ok(
        frontend.api.http.patch(f"/sessions/{frontend.session}", json={"model": VISION_MODEL})
    )
    image = {
        "type": "file",
        "mediaType": "image/png",
        "url": f"data:image/png;base64,{base64_image(PNG)}",
    }
    frontend.ai_sdk(user("", parts=[image, {"type": "text", "text": "Look!"}]))
    assert len(frontend.api.messages(frontend.session)[0]["images"]) == 1


def test_turn_that_waits_for_a_response_needs_no_connection(frontend: Frontend) -> None:
    frontend.ai_sdk(user(NOTE))
    assert (
        frontend.api.ok(frontend.api.http.get(f"/chat/{frontend.session}/run"))["state"]
        == "waiting_for_approval"
    )


def test_viewers_that_leave_do_not_end_a_turn_that_waits_for_a_response(
    frontend: Frontend, server: RunningServer
) -> None:
    approval = of_type(frontend.ai_sdk(user(NOTE)), "tool-approval-request")
    (run,) = [
        run
        for run in server.app.state.services.turns.table.running()
        if run.session_id == frontend.session
    ]
    for url in (f"/chat/{frontend.session}/stream", f"/chat/{frontend.session}/ai-sdk/any/stream"):
        assert frontend.api.http.head(url).status_code == 200
        with frontend.api.http.stream("GET", url) as response:
            next(response.iter_raw())
        until(lambda: run.subscribers == 0)
    assert types(frontend.ai_sdk(user(NOTE), response_to(approval)))[-1] == "finish"
    assert frontend.roles() == ["user", "assistant", "tool", "assistant"]


def test_turn_that_another_client_decided_ends_without_clients(tmp_path: Path) -> None:
    def reply(prompt: Prompt) -> Reply:
        if prompt.messages[-1].role == "tool":
            return Reply([Text(["one "]), Gate()])
        return Reply([ToolCalls([ToolCall("note", {"text": "milk"})])])

    write_tools(tmp_path, TOOLS)
    with (
        StubServer(speed=0, resolve=reply) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api = server.client
        session = api.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
        approval = of_type(Frontend(api, session).ai_sdk(user("Hi")), "tool-approval-request")
        decision = {"confirmation_id": approval["approvalId"], "approved": True}
        api.ok(api.http.post(f"/chat/{session}/confirm-tool", json=decision))

        def ends_when_a_viewer_leaves() -> bool:
            with api.http.stream("GET", f"/chat/{session}/stream") as response:
                next(response.iter_raw())
            return str(api.ok(api.http.get(f"/chat/{session}/run"))["state"]) == "cancelled"

        until(ends_when_a_viewer_leaves)


def test_message_withdraws_a_later_call_that_no_client_has_seen(tmp_path: Path) -> None:
    def reply(prompt: Prompt) -> Reply:
        if prompt.user_text == "Other":
            return Reply.of("Fine.")
        return Reply([ToolCalls([ToolCall("note", {"text": str(len(prompt.messages))})])])

    write_tools(tmp_path, TOOLS)
    with (
        StubServer(speed=0, resolve=reply) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api = server.client
        session = api.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
        path = f"/chat/{session}/confirm"
        approval = of_type(Frontend(api, session).ai_sdk(user("Hi")), "tool-approval-request")
        decision = {"confirmation_id": approval["approvalId"], "approved": True}
        api.ok(api.http.post(f"{path}-tool", json=decision))

        def waits_again() -> bool:
            (call,) = api.ok(api.http.get(f"{path}ations"))["confirmations"] or [{}]
            return call.get("confirmation_id") not in (None, approval["approvalId"])

        until(waits_again)
        sent = Frontend(api, session).ai_sdk(user("Hi"), user("Other"))
    assert of_type(sent, "text-delta")["delta"] == "Fine."


def test_busy_session_is_refused(frontend: Frontend) -> None:
    with frontend.api.open_stream(frontend.session, NOTE) as events:
        next(event for event in events if event.type == "tool_call_confirmation_required")
        assert error_of(frontend.post_ai_sdk(user("Hi"))) == (409, "SESSION_BUSY")


def test_stopped_agent_ends_with_its_stored_text(frontend: Frontend) -> None:
    chunks = frontend.stop_in_agent(lambda text: frontend.ai_sdk(user(text)))
    agent, _ = [chunk for chunk in chunks if chunk["type"] == "tool-input-available"]
    *_, ended = [chunk for chunk in chunks if chunk["type"] == "tool-output-error"]
    assert ended["toolCallId"] == agent["toolCallId"]
    assert ended["errorText"] == frontend.stored()[-1][1]
    assert types(chunks)[-2:] == ["tool-output-error", "abort"]


def test_repeated_message_of_an_interrupted_turn_gets_the_whole_answer(tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    called = Reply([Text("I note. "), ToolCalls([ToolCall("note", {"text": "x"})])])
    replies = [called, Reply([Cut()]), Reply.of("Fine.")]
    settings = {"tools": ["note"], "execution_policy": "never_confirm"}
    with (
        StubServer(speed=0, resolve=lambda _: replies.pop(0)) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        session = server.client.create_session("mochi", tool_settings=settings)["session_id"]
        frontend = Frontend(server.client, session)
        sent = user("Note x.")
        interrupted = frontend.ai_sdk(sent)
        assert types(interrupted)[-1] == "error"
        continued = frontend.ai_sdk(sent)
    assert continued[0] == interrupted[0]
    for name in ("tool-input-available", "tool-output-available"):
        assert of_type(continued, name) == of_type(interrupted, name)
    texts = [chunk["delta"] for chunk in continued if chunk["type"] == "text-delta"]
    assert "".join(texts) == "I note. Fine."
