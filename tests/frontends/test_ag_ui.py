"""AG-UI's route: events, interrupts, tools of the client and invalid messages."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from tests.frontends.chats import Chunk, Frontend, message, of_type, sent_messages, types
from tests.frontends.conftest import TOOLS
from tests.support.agents import delegate, nested
from tests.support.api import error_of
from tests.support.cases import cases
from tests.support.images import PNG, base64_image
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.tools import write_tools
from tests.support.waiting import until
from tests.wild.fake_ollama import MODEL, FakeOllama, Refusal, call, lines

VISION_MODEL = "echo"
LOOK = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
NOTE = instruct(calls("note", text="milk"), words(1))
CALL = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]


def interrupt_of(events: list[Chunk]) -> Chunk:
    assert events[-1]["outcome"]["type"] == "interrupt"
    (interrupt,) = events[-1]["outcome"]["interrupts"]
    found: Chunk = interrupt
    return found


def answer_to(events: list[Chunk], payload: Any = True, status: str = "resolved") -> dict[str, Any]:
    return {
        "resume": [
            {"interruptId": interrupt_of(events)["id"], "status": status, "payload": payload}
        ]
    }


def test_text_and_reasoning_have_ids_of_their_own(frontend: Frontend) -> None:
    events = frontend.ag_ui(
        message(instruct(words(3), reasoning=4)), forwardedProps={"think": True, "other": 1}
    )
    assert types(events) == [
        *("RUN_STARTED", "REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT"),
        *("REASONING_MESSAGE_END", "REASONING_END"),
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"),
    ]
    assert {key: events[0][key] for key in ("threadId", "runId")} == {"threadId": "t", "runId": "r"}
    text = "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")
    assert text == frontend.stored()[-1][1]
    assert events[-1]["usage"][0]["inputTokens"] > 0


def test_token_counts_are_those_of_all_answers_of_the_turn(frontend: Frontend) -> None:
    finished = frontend.ag_ui(message(instruct(calls("add", a=1, b=2), words(1))))[-1]
    answers = [m for m in frontend.api.messages(frontend.session) if m["role"] == "assistant"]
    prompt, completion = (
        sum(answer[name] for answer in answers) for name in ("prompt_eval_count", "eval_count")
    )
    assert len(answers) == 2
    counts = {"inputTokens": prompt, "outputTokens": completion, "totalTokens": prompt + completion}
    assert finished["usage"] == [{"model": "mochi", **counts}]


def test_interrupt_is_answered_in_the_next_run(frontend: Frontend) -> None:
    first = frontend.ag_ui(message(NOTE))
    assert types(first) == ["RUN_STARTED", *CALL, "RUN_FINISHED"]
    second = frontend.ag_ui(
        **answer_to(first, {"approved": True, "editedArgs": {"text": "tea"}}), runId="r2"
    )
    assert second[0]["runId"] == "r2"
    result = of_type(second, "TOOL_CALL_RESULT")
    assert result["toolCallId"] == interrupt_of(first)["toolCallId"] == first[1]["toolCallId"]
    assert result["content"] == "Noted: tea"
    assert frontend.roles() == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize(("payload", "status"), [(False, "resolved"), (None, "cancelled")])
def test_denied_or_cancelled_interrupt_denies_the_call(
    frontend: Frontend, payload: Any, status: str
) -> None:
    second = frontend.ag_ui(**answer_to(frontend.ag_ui(message(NOTE)), payload, status))
    assert "denied" in of_type(second, "TOOL_CALL_RESULT")["content"]


def test_interrupt_that_is_sent_later_expires_at_the_time_of_its_request(
    frontend: Frontend,
) -> None:
    wanted = [calls("note", text=text)["tool_call"][0] for text in ("milk", "tea")]
    first = frontend.ag_ui(message(instruct({"tool_call": wanted}, words(1))))
    path = f"/chat/{frontend.session}/confirm"
    decision = {"confirmation_id": interrupt_of(first)["id"], "approved": True}
    frontend.api.ok(frontend.api.http.post(f"{path}-tool", json=decision))
    until(lambda: frontend.api.ok(frontend.api.http.get(f"{path}ations"))["confirmations"])
    second = interrupt_of(frontend.ag_ui(**answer_to(first)))
    expires_at = datetime.fromisoformat(second["expiresAt"]).timestamp()
    exported = json.loads(frontend.api.http.get(f"/sessions/{frontend.session}/export").content)
    approval = exported["metadata"]["turn"]["approval"]
    assert approval["confirmation_id"] == second["id"]
    assert expires_at == pytest.approx(approval["expires_at"], rel=0, abs=1e-5)


def test_interrupt_blocks_new_messages(frontend: Frontend) -> None:
    frontend.ag_ui(message(NOTE))
    assert error_of(frontend.post_ag_ui(message(NOTE), message("Well?"))) == (409, "SESSION_BUSY")


def test_only_the_last_new_user_message_is_stored(frontend: Frontend) -> None:
    frontend.ag_ui(message("Hello"), message("Well?"))
    assert [text for role, text in frontend.stored() if role == "user"] == ["Well?"]


def test_run_that_answers_an_interrupt_stores_no_message(frontend: Frontend) -> None:
    first = frontend.ag_ui(message(NOTE))
    frontend.ag_ui(message(NOTE), message("Well?"), **answer_to(first))
    assert frontend.roles() == ["user", "assistant", "tool", "assistant"]


@cases("payload", [None, {}, {"approved": "yes"}, {"approved": True, "editedArgs": []}])
def test_invalid_answer_has_its_position_and_changes_nothing(
    frontend: Frontend, payload: Any
) -> None:
    first = frontend.ag_ui(message(NOTE))
    response = frontend.post_ag_ui(**answer_to(first, payload))
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert response.json()["error"]["details"]["errors"][0]["loc"][:4] == [
        "body",
        "resume",
        0,
        "payload",
    ]
    assert types(frontend.ag_ui(**answer_to(first)))[-1] == "RUN_FINISHED"


def test_unknown_interrupt_is_refused(frontend: Frontend) -> None:
    resume = [{"interruptId": "conf_0", "status": "resolved", "payload": True}]
    assert error_of(frontend.post_ag_ui(resume=resume)) == (404, "CONFIRMATION_NOT_FOUND")


def test_unknown_interrupt_beside_a_known_one_changes_nothing(frontend: Frontend) -> None:
    first = frontend.ag_ui(message(NOTE))
    known, unknown = (
        answer_to(first)["resume"],
        {"interruptId": "conf_0", "status": "resolved", "payload": True},
    )
    assert error_of(frontend.post_ag_ui(resume=[*known, unknown])) == (
        404,
        "CONFIRMATION_NOT_FOUND",
    )
    assert frontend.roles() == ["user", "assistant"]
    denied = frontend.ag_ui(**answer_to(first, False))
    assert "denied" in of_type(denied, "TOOL_CALL_RESULT")["content"]


def test_client_tool_and_server_tool_in_one_answer(frontend: Frontend) -> None:
    plan = {"tool_call": [*calls("add", a=1, b=2)["tool_call"], *calls("look")["tool_call"]]}
    events = frontend.ag_ui(message(instruct(plan, words(1))), tools=[LOOK])
    server_call, client_call = [event for event in events if event["type"] == "TOOL_CALL_START"]
    pending = client_call["toolCallId"]
    assert events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": [pending]}
    tool_calls = [
        {
            "id": event["toolCallId"],
            "type": "function",
            "function": {"name": event["toolCallName"], "arguments": "{}"},
        }
        for event in (server_call, client_call)
    ]
    results = [
        message("3.0", "tool", toolCallId=server_call["toolCallId"]),
        message("Sun", "tool", toolCallId=pending),
    ]
    history = [message("What?"), message(None, "assistant", toolCalls=tool_calls), *results]
    assert types(frontend.ag_ui(*history, tools=[LOOK]))[-2:] == [
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert [text for role, text in frontend.stored() if role == "tool"] == ["3.0", "Sun"]


def test_result_may_follow_each_call_of_one_answer(frontend: Frontend) -> None:
    plan = {"tool_call": [*calls("look")["tool_call"], *calls("look", far=True)["tool_call"]]}
    events = frontend.ag_ui(message(instruct(plan, words(1))), tools=[LOOK])
    history = [message("What?")]
    pending = events[-1]["outcome"]["pendingToolCallIds"]
    for call_id, text in zip(pending, ["Sun", "Moon"], strict=True):
        call = {"id": call_id, "type": "function", "function": {"name": "look", "arguments": "{}"}}
        history.append(message(None, "assistant", toolCalls=[call]))
        history.append(message(text, "tool", toolCallId=call_id))
    assert types(frontend.ag_ui(*history, tools=[LOOK]))[-1] == "RUN_FINISHED"
    assert [text for role, text in frontend.stored() if role == "tool"] == ["Sun", "Moon"]


@pytest.mark.parametrize(
    ("content", "text"), [("", "No sky."), ("No sky.", "No sky."), ("{}", "{}\nNo sky.")]
)
def test_model_receives_the_error_of_a_client_tool(
    frontend: Frontend, stub: StubServer, content: str, text: str
) -> None:
    events = frontend.ag_ui(message(instruct(calls("look"), words(1))), tools=[LOOK])
    (pending,) = events[-1]["outcome"]["pendingToolCallIds"]
    call = {"id": pending, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    result = message(content, "tool", toolCallId=pending, error="No sky.")
    frontend.ag_ui(
        message("What?"), message(None, "assistant", toolCalls=[call]), result, tools=[LOOK]
    )
    assert sent_messages(stub)[-1]["content"] == text
    assert frontend.api.messages(frontend.session)[2]["success"] is False


def test_agent_is_a_call_with_its_text_as_reasoning(frontend: Frontend) -> None:
    settings = {"agent_settings": {"enabled_agents": ["librarian"]}}
    frontend.api.ok(frontend.api.http.patch(f"/sessions/{frontend.session}", json=settings))
    events = frontend.ag_ui(
        message(nested(delegate(words(2), words(1), agent="librarian"), words(1)))
    )
    assert "REASONING_MESSAGE_CONTENT" in types(events)
    assert of_type(events, "TOOL_CALL_START")["toolCallName"] == "agent"
    assert (
        of_type(events, "TOOL_CALL_RESULT")["toolCallId"]
        == of_type(events, "TOOL_CALL_START")["toolCallId"]
    )


def test_same_messages_again_replace_the_answer(frontend: Frontend) -> None:
    for _ in range(2):
        frontend.ag_ui(message("Hello"))
    assert frontend.roles() == ["user", "assistant"]
    frontend.ag_ui(message("Hello"), message("Fine.", "assistant"), message("Bye"))
    assert frontend.roles() == ["user", "assistant", "user", "assistant"]


def result_of_server(events: list[Chunk]) -> list[dict[str, Any]]:
    """Return the messages that a client builds from the events of a call and its result."""
    start = of_type(events, "TOOL_CALL_START")
    result = of_type(events, "TOOL_CALL_RESULT")
    function = {
        "name": start["toolCallName"],
        "arguments": of_type(events, "TOOL_CALL_ARGS")["delta"],
    }
    call = {"id": start["toolCallId"], "type": "function", "function": function}
    return [
        message(None, "assistant", toolCalls=[call]),
        message(result["content"], "tool", toolCallId=result["toolCallId"]),
    ]


def test_retry_behind_a_tool_call_of_the_server_continues(tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    with (
        FakeOllama() as ollama,
        RunningServer(tmp_path, ollama.url, summarization_enabled=False) as server,
    ):
        tools = {"tools": ["add"], "execution_policy": "never_confirm"}
        session = str(server.client.create_session(MODEL, tool_settings=tools)["session_id"])
        frontend = Frontend(server.client, session)
        asked = message("How much?")
        ollama.script(lines(calls=[call("add", {"a": 1, "b": 2})]), Refusal(400, "broken"))
        events = frontend.ag_ui(asked)
        assert types(events)[-1] == "RUN_ERROR"
        ollama.script(lines("Three."))
        again = frontend.ag_ui(asked, *result_of_server(events))
        assert types(again)[-1] == "RUN_FINISHED"
        assert frontend.stored() == [
            ("user", "How much?"),
            ("assistant", ""),
            ("tool", "3.0"),
            ("assistant", "Three."),
        ]


def test_messages_without_the_answer_behind_a_tool_call_replace_it(frontend: Frontend) -> None:
    asked = message(instruct(calls("add", a=1, b=2), words(1)))
    events = frontend.ag_ui(asked)
    again = frontend.ag_ui(asked, *result_of_server(events))
    assert types(again)[-1] == "RUN_FINISHED"
    assert frontend.roles() == ["user", "assistant", "tool", "assistant"]
    versions = frontend.api.session(frontend.session)["versions"]
    assert [*versions.values()] == [{"count": 2, "shown": 2}]


def test_messages_that_end_with_the_answer_replace_it(frontend: Frontend) -> None:
    frontend.api.ok(
        frontend.api.http.patch(f"/sessions/{frontend.session}", json={"model": VISION_MODEL})
    )
    source = {"type": "data", "value": base64_image(PNG), "mimeType": "image/png"}
    asked = message([{"type": "text", "text": "Look!"}, {"type": "image", "source": source}])
    frontend.ag_ui(asked)
    answer = frontend.api.messages(frontend.session)[-1]["content"]
    frontend.ag_ui(asked, message(answer, "assistant"))
    assert frontend.roles() == ["user", "assistant"]
    versions = frontend.api.session(frontend.session)["versions"]
    assert [*versions.values()] == [{"count": 2, "shown": 2}]


def test_answer_of_another_client_is_not_replaced(frontend: Frontend) -> None:
    frontend.ag_ui(message("Hello"))
    response = frontend.post_ag_ui(message("Hello"), message("Fine.", "assistant"))
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert frontend.roles() == ["user", "assistant"]


def test_answer_with_a_pending_call_is_not_replaced(frontend: Frontend) -> None:
    events = frontend.ag_ui(message(instruct(calls("look"), words(1))), tools=[LOOK])
    (pending,) = events[-1]["outcome"]["pendingToolCallIds"]
    call = {"id": pending, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asked = message(instruct(calls("look"), words(1)))
    response = frontend.post_ag_ui(asked, message(None, "assistant", toolCalls=[call]))
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert response.json()["error"]["details"]["errors"][0]["loc"] == ["body", "messages", 1]


def test_regenerated_and_edited_messages_keep_their_versions(frontend: Frontend) -> None:
    api, session_id = frontend.api, frontend.session
    path = f"/sessions/{session_id}"
    asked = message("Hello")
    for _ in range(2):
        frontend.ag_ui(asked)
    first = api.session(session_id)
    answer_id = first["messages"][1]["message_id"]
    assert first["versions"] == {answer_id: {"count": 2, "shown": 2}}

    api.ok(api.http.put(f"{path}/messages/0", json={"content": "Good morning"}))
    frontend.ag_ui(message("Good morning"))
    edited = api.session(session_id)
    place = edited["messages"][0]["message_id"]
    assert edited["versions"] == {place: {"count": 2, "shown": 2}}

    versions = api.ok(api.http.get(f"{path}/versions", params={"message_id": place}))["versions"]
    shown = api.ok(api.http.post(f"{path}/versions/{versions[0]['version_id']}/select"))
    assert shown["messages"] == first["messages"]
    assert shown["versions"][answer_id] == {"count": 2, "shown": 2}

    frontend.ag_ui(asked, message("Fine.", "assistant"), message("Bye"))
    assert [text for role, text in frontend.stored() if role == "user"] == ["Hello", "Bye"]
    assert api.session(session_id)["versions"] == shown["versions"]


def test_context_and_system_messages_are_instructions(frontend: Frontend, stub: StubServer) -> None:
    context = [{"description": "Page", "value": "Invoice 12"}]
    frontend.ag_ui(message("Be brief.", "developer"), message("Hello"), context=context)
    assert sent_messages(stub)[0] == {"role": "system", "content": "Page: Invoice 12\n\nBe brief."}
    assert frontend.roles() == ["user", "assistant"]


def test_system_message_may_follow_the_user_message(frontend: Frontend, stub: StubServer) -> None:
    for _ in range(2):
        frontend.ag_ui(message("Hello"), message("Be brief.", "system"))
    assert sent_messages(stub)[0] == {"role": "system", "content": "Be brief."}
    assert frontend.roles() == ["user", "assistant"]


def test_image_is_stored_with_its_message(frontend: Frontend) -> None:
    frontend.api.ok(
        frontend.api.http.patch(f"/sessions/{frontend.session}", json={"model": VISION_MODEL})
    )
    source = {"type": "data", "value": base64_image(PNG), "mimeType": "image/png"}
    frontend.ag_ui(
        message([{"type": "text", "text": "Look!"}, {"type": "image", "source": source}])
    )
    stored = frontend.api.messages(frontend.session)[0]
    assert (stored["content"], len(stored["images"])) == ("Look!", 1)


def test_same_text_with_another_number_of_images_is_a_new_message(frontend: Frontend) -> None:
    frontend.api.ok(
        frontend.api.http.patch(f"/sessions/{frontend.session}", json={"model": VISION_MODEL})
    )
    source = {"type": "data", "value": base64_image(PNG), "mimeType": "image/png"}
    text, image = {"type": "text", "text": "Look!"}, {"type": "image", "source": source}
    frontend.ag_ui(message([text]))
    frontend.ag_ui(message([text, image]))
    asked = message([text, image, image])
    for _ in range(2):
        frontend.ag_ui(message([text]), message([text, image]), asked)
    stored = [each for each in frontend.api.messages(frontend.session) if each["role"] == "user"]
    assert [len(each.get("images") or ()) for each in stored] == [0, 1, 2]


def test_error_for_an_invalid_image_names_its_field(frontend: Frontend) -> None:
    source = {"type": "data", "value": "AAAA", "mimeType": "image/png"}
    response = frontend.post_ag_ui(
        message([{"type": "text", "text": "Look!"}, {"type": "image", "source": source}])
    )
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert response.json()["error"]["message"].startswith("messages.0.content.1: not an image")


_DOCUMENT = {"type": "document", "source": {"type": "url", "value": "https://example.org/a.pdf"}}


@cases(
    ("messages", "location"),
    [
        ([], [0]),
        ([message("Hi", "assistant")], [0]),
        ([message("Hi", "narrator")], [0]),
        ([{"id": "m", "role": "user"}], [0, "content"]),
        ([message(" ")], [0]),
        ([message([{"type": "text", "text": "Hi"}, _DOCUMENT])], [0, "content", 1]),
    ],
)
def test_invalid_messages_have_their_position(
    frontend: Frontend, messages: list[dict[str, Any]], location: list[str | int]
) -> None:
    response = frontend.post_ag_ui(*messages)
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert response.json()["error"]["details"]["errors"][0]["loc"] == [
        "body",
        "messages",
        *location,
    ]
    assert frontend.stored() == []


def test_error_names_the_invalid_part_of_a_message(frontend: Frontend) -> None:
    response = frontend.post_ag_ui(message([{"type": "text", "text": "Hi"}, {"type": "hologram"}]))
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert response.json()["error"]["message"].startswith(
        "messages.0.content.1: Input tag 'hologram' found"
    )


def test_result_without_a_pending_call_has_its_position(frontend: Frontend) -> None:
    frontend.ag_ui(message("Hello"))
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    history = [
        message("Hello"),
        message("", "assistant", toolCalls=[call]),
        message("Sun", "tool", toolCallId="c"),
    ]
    response = frontend.post_ag_ui(*history)
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert response.json()["error"]["details"]["errors"][0]["loc"] == ["body", "messages", 2]


@cases(
    ("tool", "field"),
    [
        ({"name": ""}, "name"),
        ({"parameters": "{}"}, "parameters"),
        ({"parameters": {"properties": []}}, "parameters"),
    ],
)
def test_invalid_tool_has_its_position(
    frontend: Frontend, tool: dict[str, Any], field: str
) -> None:
    valid = {"name": "look", "description": "Look."}
    response = frontend.post_ag_ui(message("Hello"), tools=[valid, valid | tool])
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert response.json()["error"]["details"]["errors"][0]["loc"] == ["body", "tools", 1, field]


def test_invalid_option_has_its_position(frontend: Frontend) -> None:
    response = frontend.post_ag_ui(message("Hello"), forwardedProps={"options": {"num_ctx": 1}})
    assert response.json()["error"]["details"]["errors"][0]["loc"] == [
        "body",
        "forwardedProps",
        "options",
    ]


def test_stopped_agent_ends_with_its_stored_text(frontend: Frontend) -> None:
    events = frontend.stop_in_agent(lambda text: frontend.ag_ui(message(text)))
    agent, _ = [event for event in events if event["type"] == "TOOL_CALL_START"]
    *_, ended = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert ended["toolCallId"] == agent["toolCallId"]
    assert ended["content"] == frontend.stored()[-1][1]
