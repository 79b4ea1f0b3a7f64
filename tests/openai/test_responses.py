"""Responses API with the official client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mochi_stub import Cut, Reply, StubServer, Text
from tests.openai.conversation import client_of
from tests.support.agents import delegate
from tests.support.api import Api
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.stub import chats

if TYPE_CHECKING:
    import openai
    from openai.types.responses import Response

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
PIXEL = "iVBORw0KGgogYW5kIHNvIG9u"
LOOK: Any = {"type": "function", "name": "look", "parameters": {"type": "object"}}


def respond(client: openai.OpenAI, stream: bool = False, **request: Any) -> Response:
    """Return the response to a request.

    A streamed response is what the client builds from the events.
    """
    request = {"model": "mochi", **request}
    if not stream:
        response: Response = client.responses.create(**request)
        return response
    with client.responses.stream(**request) as events:
        return events.get_final_response()


def refused(client: openai.OpenAI, **request: Any) -> openai.APIStatusError:
    import openai

    with pytest.raises(openai.APIStatusError) as caught:
        respond(client, **{"input": "Hello!", **request})
    return caught.value


def sent(stub: StubServer) -> Any:
    """Return the latest chat request to Ollama."""
    return chats(stub)[-1].body


def contents(api: Api, session: str) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in api.messages(session)]


@STREAMED
def test_response_has_text_and_token_counts(
    client: openai.OpenAI, stub: StubServer, stream: bool
) -> None:
    response = respond(client, stream, input="Hello!", instructions="Be kind.", metadata={"a": "b"})
    assert response.status == "completed"
    assert response.output_text.endswith("Hello!")
    assert [item.type for item in response.output] == ["message"]
    assert (response.model, response.instructions, response.metadata) == (
        "mochi",
        "Be kind.",
        {"a": "b"},
    )
    assert response.store is False
    assert response.usage
    assert response.usage.input_tokens > 0
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    body = sent(stub)
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["options"]["num_ctx"] >= 8192


def test_response_has_all_required_fields(server: RunningServer) -> None:
    from openai.types.responses import Response

    body = {
        "model": "mochi",
        "input": instruct(words(2), calls("look", at="sky"), reasoning=2),
        "tools": [LOOK],
    }
    answer = httpx.post(f"{server.url}/v1/responses", json=body, timeout=60)
    response = Response.model_validate_json(answer.content)
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]


def test_stream_has_all_events_in_order(server: RunningServer) -> None:
    text = instruct(words(2), calls("look", at="sky"), reasoning=2)
    body = {
        "model": "mochi",
        "input": text,
        "tools": [LOOK],
        "stream": True,
        "reasoning": {"effort": "low"},
    }
    with httpx.stream("POST", f"{server.url}/v1/responses", json=body, timeout=60) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        frames = [
            frame.split("\n") for frame in "".join(response.iter_text()).split("\n\n") if frame
        ]
    events = [json.loads(data.removeprefix("data: ")) for _, data in frames]
    assert [name.removeprefix("event: ") for name, _ in frames] == [
        event["type"] for event in events
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    types = [event["type"].removeprefix("response.") for event in events]
    assert list(dict.fromkeys(types)) == [
        *("created", "in_progress", "output_item.added"),
        *("reasoning_summary_part.added", "reasoning_summary_text.delta"),
        *("reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"),
        *("content_part.added", "output_text.delta", "output_text.done", "content_part.done"),
        *("function_call_arguments.delta", "function_call_arguments.done", "completed"),
    ]
    final = events[-1]["response"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call"]
    assert final["output"] == done
    assert final["id"] == events[0]["response"]["id"]
    assert final["mochi"]["context_window"]["current_window"] >= 8192


@STREAMED
def test_tool_round_trip(client: openai.OpenAI, stub: StubServer, stream: bool) -> None:
    """The client sends the whole conversation, including the output items of the first response."""
    question: Any = {"role": "user", "content": instruct(calls("look", at="sky"), words(3))}
    first = respond(client, stream, input=[question], tools=[LOOK])
    (call,) = first.output
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments)) == ("look", {"at": "sky"})
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "blue"}
    second = respond(
        client, stream, input=[question, call.model_dump(exclude_none=True), output], tools=[LOOK]
    )
    assert (second.status, [item.type for item in second.output]) == ("completed", ["message"])
    _, asked, result = sent(stub)["messages"]
    assert asked["tool_calls"][0]["function"] == {
        "index": 0,
        "name": "look",
        "arguments": {"at": "sky"},
    }
    assert result == {
        "role": "tool",
        "content": "blue",
        "tool_name": "look",
        "tool_call_id": call.call_id,
    }


def test_items_of_a_stream_can_be_sent_by_id(client: openai.OpenAI, stub: StubServer) -> None:
    """The AI SDK does this unless `store` is false."""
    text = instruct(words(2), calls("look"), reasoning=2)
    first = respond(client, True, input=text, tools=[LOOK], reasoning={"effort": "low"})
    references: Any = [{"type": "item_reference", "id": item.id} for item in first.output]
    call: Any = first.output[-1]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "blue"}
    respond(client, input=[{"role": "user", "content": text}, *references, output], tools=[LOOK])
    _, answer, result = sent(stub)["messages"]
    assert answer["content"] == first.output_text != ""
    assert answer["tool_calls"][0]["id"] == result["tool_call_id"] == call.call_id


def test_items_of_an_unstored_response_are_unknown(client: openai.OpenAI) -> None:
    response = respond(client, input="Hello!", store=False)
    reference = {"type": "item_reference", "id": response.output[0].id}
    refusal = refused(client, input=[reference, {"role": "user", "content": "And now?"}])
    assert (refusal.status_code, refusal.param) == (400, "input[0].id")
    assert "store" in refusal.message


def test_conversation_is_converted_to_messages(client: openai.OpenAI, stub: StubServer) -> None:
    items: Any = [
        {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "A greeting."}],
        },
        {
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
        {"type": "function_call", "call_id": "call_2", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "blue"},
        {
            "type": "function_call_output",
            "call_id": "call_2",
            "output": [{"type": "input_text", "text": "red"}],
        },
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "assistant", "content": "Yes."},
        {"type": None, "role": "user", "content": "Bye."},
    ]
    respond(client, input=items, instructions="Be kind.")
    messages = sent(stub)["messages"]
    assert [(message["role"], message["content"]) for message in messages] == [
        *(
            ("system", "Be kind."),
            ("system", "Be brief."),
            ("user", "Hi."),
            ("assistant", "Hello."),
        ),
        *(
            ("tool", "blue"),
            ("tool", "red"),
            ("assistant", "No."),
            ("assistant", "Yes."),
            ("user", "Bye."),
        ),
    ]
    assert [call["id"] for call in messages[3]["tool_calls"]] == ["call_1", "call_2"]


def test_results_follow_their_calls(client: openai.OpenAI, stub: StubServer) -> None:
    """A model can reason before each of its calls. Clients send all results after the calls."""
    items: list[Any] = [{"role": "user", "content": "Look!"}]
    for name in ("a", "b", "c"):
        items.append({"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]})
        items.append({"type": "function_call", "call_id": name, "name": "look", "arguments": "{}"})
    for name in ("b", "a"):
        items.append({"type": "function_call_output", "call_id": name, "output": name})
    respond(client, input=items, tools=[LOOK])
    _, *messages = sent(stub)["messages"]
    results = [message["content"] for message in messages if message["role"] == "tool"]
    assert results == ["a", "b", "The call was interrupted and has no result."]
    for call, result in zip(messages[::2], messages[1::2], strict=True):
        assert [each["id"] for each in call["tool_calls"]] == [result["tool_call_id"]]


def test_options_are_sent_to_ollama(client: openai.OpenAI, stub: StubServer) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    response = respond(
        client,
        input="Hello!",
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=20,
        reasoning={"effort": "high", "summary": "auto"},
        text={
            "format": {"type": "json_schema", "name": "a", "schema": schema, "strict": True},
            "verbosity": "low",
        },
        include=["reasoning.encrypted_content"],
        parallel_tool_calls=False,
        truncation="auto",
        extra_body={"unheard_of": 1},
    )
    body = sent(stub)
    assert body["options"].pop("num_ctx") >= 8192
    assert body["options"] == {"temperature": 0.5, "top_p": 0.9, "num_predict": 20}
    assert (body["think"], body["format"]) == ("high", schema)
    assert (response.temperature, response.max_output_tokens) == (0.5, 20)


@STREAMED
def test_answer_at_limit_is_incomplete(client: openai.OpenAI, stream: bool) -> None:
    asks: Any = {"model": "mochi", "input": "Hello!", "max_output_tokens": 5}
    response: Any = client.responses.create(**asks)
    if stream:
        *_, last = client.responses.create(**asks, stream=True)
        assert last.type == "response.incomplete"
        response = last.response
    assert response.status == "incomplete"
    assert response.incomplete_details
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output[-1].status == "incomplete"


def test_session_continues_with_previous_response(
    client: openai.OpenAI, server: RunningServer, stub: StubServer
) -> None:
    api = server.client
    session = str(api.create_session("mochi")["session_id"])
    headers = {"X-Mochi-Session": session}
    first = respond(
        client, True, input=instruct(calls("look"), words(2)), tools=[LOOK], extra_headers=headers
    )
    (call,) = first.output
    assert call.type == "function_call"
    output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "blue"}]
    asks: Any = {"tools": [LOOK], "extra_headers": headers}
    second = respond(client, input=output, previous_response_id=first.id, **asks)
    third = respond(
        client,
        True,
        input="Hello!",
        previous_response_id=second.id,
        instructions="Be kind.",
        **asks,
    )
    assert third.previous_response_id == second.id
    assert [role for role, _ in contents(api, session)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert [message["role"] for message in sent(stub)["messages"]][:2] == ["system", "user"]
    for old in (first.id, second.id, "resp_unknown", "resp_0123456789_0_abc"):
        refusal = refused(client, previous_response_id=old, **asks)
        assert (refusal.status_code, refusal.param) == (400, "previous_response_id")
    assert len(api.messages(session)) == 6


def test_previous_response_must_be_stored(client: openai.OpenAI, server: RunningServer) -> None:
    api = server.client
    session = str(api.create_session("mochi")["session_id"])
    headers = {"X-Mochi-Session": session}
    first = respond(client, input="Hello!", extra_headers=headers)
    removed = respond(
        client, input="And now?", previous_response_id=first.id, extra_headers=headers
    )
    api.ok(api.http.put(f"/sessions/{session}/messages/0", json={"content": "Good morning!"}))
    for previous in (removed.id, f"resp_{session}_{'9' * 5000}"):
        refusal = refused(client, previous_response_id=previous, extra_headers=headers)
        assert (refusal.status_code, refusal.param) == (400, "previous_response_id")


def test_session_continues_after_a_repeated_request(
    client: openai.OpenAI, server: RunningServer
) -> None:
    api = server.client
    call = {"id": "call_1", "function": {"name": "look", "arguments": {}}}
    messages = [
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "blue", "tool_call_id": "call_1"},
        {"role": "assistant", "content": "It is", "interrupted": True},
    ]
    imported = api.http.post(
        "/sessions/import", json={"metadata": {"model": "mochi"}, "messages": messages}
    )
    session = str(imported.json()["sessions"][0]["session_id"])
    headers = {"X-Mochi-Session": session}
    first = respond(client, input="Hello!", extra_headers=headers)
    assert [role for role, _ in contents(api, session)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert respond(
        client, input="And now?", previous_response_id=first.id, extra_headers=headers
    ).output_text
    assert (
        refused(client, previous_response_id=first.id, extra_headers=headers).param
        == "previous_response_id"
    )


def test_failed_request_with_a_previous_response_is_repeated(
    client: openai.OpenAI, server: RunningServer
) -> None:
    api = server.client
    session = str(api.create_session("mochi")["session_id"])
    asks: Any = {"tools": [LOOK], "extra_headers": {"X-Mochi-Session": session}}
    first = respond(client, input="Hello!", tool_choice="required", **asks)
    call: Any = first.output[-1]
    output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "blue"}]
    latest = first
    for items in (output, "And now?"):
        asks |= {"input": items, "previous_response_id": latest.id}
        assert refused(client, model="failing", **asks).status_code == 502
        latest = respond(client, **asks)
    roles = [role for role, _ in contents(api, session)]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    asks["previous_response_id"] = first.id
    assert refused(client, **asks).param == "previous_response_id"


def test_session_continues_after_tools_of_server_and_client(
    client: openai.OpenAI, server: RunningServer
) -> None:
    session = str(server.client.create_session("mochi")["session_id"])
    asks: Any = {
        "tools": [LOOK],
        "extra_headers": {"X-Mochi-Session": session, "X-Mochi-Tools": "add"},
    }
    first = respond(client, input=instruct(calls("look", "add", a=1, b=2), words(2)), **asks)
    call: Any = first.output[-1]
    output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "blue"}]
    second = respond(client, input=output, previous_response_id=first.id, **asks)
    assert second.output_text
    assert refused(client, previous_response_id=first.id, **asks).param == "previous_response_id"


def test_references_to_items_of_a_session_need_no_memory(
    client: openai.OpenAI, server: RunningServer, stub: StubServer
) -> None:
    api = server.client
    session = str(api.create_session("mochi")["session_id"])
    asks: Any = {"tools": [LOOK], "extra_headers": {"X-Mochi-Session": session}}
    question: Any = {"role": "user", "content": instruct(calls("look"), words(2))}
    call: Any = respond(client, input=[question], **asks).output[0]
    reference: Any = {"type": "item_reference", "id": call.id}
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "blue"}
    respond(client, input=[question, reference, output], **asks)
    assert [role for role, _ in contents(api, session)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_tokens_of_a_request_in_a_session_are_estimated(
    client: openai.OpenAI, server: RunningServer
) -> None:
    session = str(server.client.create_session("mochi")["session_id"])
    headers = {"X-Mochi-Session": session}
    first = respond(client, input="Hello!", extra_headers=headers)
    reference: Any = {"type": "item_reference", "id": "msg_unknown"}
    asks: Any = {
        "model": "mochi",
        "input": [reference, {"role": "user", "content": "And now?"}],
        "previous_response_id": first.id,
    }
    in_header = client.responses.input_tokens.count(**asks, extra_headers=headers)
    metadata = {"metadata": {"session_id": session}}
    in_metadata = client.responses.input_tokens.count(**asks, extra_body=metadata)
    assert in_header == in_metadata
    assert in_header.input_tokens > 0


@STREAMED
def test_previous_response_without_session_is_continued(
    client: openai.OpenAI, stub: StubServer, stream: bool
) -> None:
    text = instruct(calls("look", at="sky"), words(3))
    first = respond(client, stream, input=text, tools=[LOOK], instructions="Be kind.")
    call: Any = first.output[-1]
    output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "blue"}]
    second = respond(client, stream, input=output, previous_response_id=first.id)
    assert second.previous_response_id == first.id
    asked, answer, result = sent(stub)["messages"]
    assert (asked["content"], answer["tool_calls"][0]["id"]) == (text, call.call_id)
    assert result == {
        "role": "tool",
        "content": "blue",
        "tool_name": "look",
        "tool_call_id": call.call_id,
    }
    for question in ("And now?", "Or now?"):  # both continue the same response
        respond(
            client,
            stream,
            input=[{"role": "user", "content": question}],
            previous_response_id=second.id,
        )
        roles = [message["role"] for message in sent(stub)["messages"]]
        assert roles == ["user", "assistant", "tool", "assistant", "user"]
        assert sent(stub)["messages"][-2]["content"] == second.output_text
        assert sent(stub)["messages"][-1]["content"] == question


def test_previous_response_can_contain_a_call_without_arguments(
    client: openai.OpenAI, stub: StubServer
) -> None:
    called: Any = [
        {"type": None, "role": "user", "content": "Look."},
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": None},
        {"type": "function_call_output", "call_id": "a", "output": "blue"},
    ]
    first = respond(client, input=called)
    respond(client, input="And now?", previous_response_id=first.id)
    call = sent(stub)["messages"][1]["tool_calls"][0]
    assert call["function"]["arguments"] == {}
    items = client.responses.input_items.list(first.id, order="asc")
    assert [item.type for item in items] == ["message", "function_call", "function_call_output"]


@cases("kind", ["function_call", "custom_tool_call"])
def test_result_without_text_is_empty(client: openai.OpenAI, stub: StubServer, kind: str) -> None:
    call = {"type": kind, "call_id": "a", "name": "look", "arguments": "{}", "input": ""}
    result = {"type": f"{kind}_output", "call_id": "a", "output": None}
    first = respond(client, input=[{"role": "user", "content": "Look."}, call, result])
    assert sent(stub)["messages"][-1]["content"] == ""
    respond(client, input="And now?", previous_response_id=first.id)
    assert [
        message["content"] for message in sent(stub)["messages"] if message["role"] == "tool"
    ] == [""]


def test_unknown_previous_response_names_the_session_header(
    client: openai.OpenAI, server: RunningServer
) -> None:
    session = str(server.client.create_session("mochi")["session_id"])
    unstored = respond(client, input="Hello!", store=False)
    in_session = respond(client, input="Hello!", extra_headers={"X-Mochi-Session": session})
    for response_id in (unstored.id, in_session.id, "resp_1", ""):
        refusal = refused(client, previous_response_id=response_id)
        assert (refusal.status_code, refusal.param) == (400, "previous_response_id")
        assert "X-Mochi-Session" in refusal.message


def test_previous_response_can_contain_an_image_and_references(
    client: openai.OpenAI, stub: StubServer
) -> None:
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"}
    question: Any = {
        "role": "user",
        "content": [{"type": "input_text", "text": "What is it?"}, image],
    }
    first = respond(client, input=[question], model="echo")
    reference: Any = {"type": "item_reference", "id": first.output[0].id}
    second = respond(
        client, input=[question, reference, {"role": "user", "content": "Sure?"}], model="echo"
    )
    respond(client, model="echo", input="Really?", previous_response_id=second.id)
    messages = sent(stub)["messages"]
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert [len(message.get("images") or ()) for message in messages] == [1, 0, 0, 0, 0]
    assert messages[1]["content"] == first.output_text


def test_agent_continues_a_previous_response(client: openai.OpenAI, stub: StubServer) -> None:
    asks: Any = {"model": "agent:helper"}
    first = respond(client, input=instruct(words(2), words(3), label="A"), **asks)
    assert respond(client, input="And now?", previous_response_id=first.id, **asks).output_text
    assert any(message["content"] == first.output_text for message in sent(stub)["messages"])


@STREAMED
def test_agent_answers(client: openai.OpenAI, server: RunningServer, stream: bool) -> None:
    response = respond(
        client, stream, model="agent:helper", input=instruct(words(2), words(3), label="A")
    )
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.output_text


def test_conversation_with_an_agent_continues(client: openai.OpenAI, server: RunningServer) -> None:
    api = server.client
    session = api.create_session("mochi", agent_settings={"enabled_agents": ["helper"]})[
        "session_id"
    ]
    api.send_message(session, instruct(delegate(), words(2)))
    chat = str(api.ok(api.http.get("/agents/chats"))["sessions"][0]["session_id"])
    asks: Any = {"model": "agent:helper", "extra_headers": {"X-Mochi-Session": chat}}
    first = respond(client, input=instruct(words(2), words(3), label="A"), **asks)
    second = respond(client, input="And now?", previous_response_id=first.id, **asks)
    assert second.output_text
    assert refused(client, previous_response_id=first.id, **asks).param == "previous_response_id"


def test_server_tools_run_on_server(client: openai.OpenAI) -> None:
    text = instruct(calls("add", a=1, b=2), words(2))
    response: Any = respond(client, input=text, extra_headers={"X-Mochi-Tools": "add"})
    assert [call["result"] for call in response.mochi["tool_calls_executed"]] == ["3.0"]
    assert [item.type for item in response.output] == ["message"]


@cases(
    ("asks", "status", "param"),
    [
        ({"background": True, "store": False}, 400, "store"),
        ({"conversation": "conv_1"}, 400, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, 400, "prompt"),
        ({"top_logprobs": 3}, 400, "top_logprobs"),
        ({"extra_body": {"logprobs": True}}, 400, "logprobs"),
        ({"extra_body": {"n": 2}}, 400, "n"),
        ({"extra_body": {"logit_bias": {"50256": -100}}}, 400, "logit_bias"),
        ({"extra_body": {"response_format": {"type": "json_object"}}}, 400, "response_format"),
        ({"extra_body": {"format": "json"}}, 400, "format"),
        ({"extra_body": {"max_tokens": 5}}, 400, "max_tokens"),
        ({"extra_body": {"max_completion_tokens": 5}}, 400, "max_completion_tokens"),
        ({"max_tool_calls": 3}, 400, "max_tool_calls"),
        ({"include": ["message.output_text.logprobs"]}, 400, "include"),
        ({"temperature": 3}, 400, "temperature"),
        ({"max_output_tokens": 0}, 400, "max_output_tokens"),
        ({"reasoning": {"effort": "much"}}, 400, "reasoning.effort"),
        ({"tools": [{"type": "custom"}]}, 400, "tools[0].name"),
        ({"tool_choice": "required"}, 400, "tool_choice"),
        ({"tools": [{"name": "look"}]}, 400, "tools[0]"),
        ({"tools": ["look"]}, 400, "tools[0]"),
        ({"tool_choice": {"type": "web_search"}}, 400, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "x"}}, 400, "tool_choice"),
        ({"text": {"format": {"type": "grammar"}}}, 400, "text.format"),
        ({"input": []}, 400, "input"),
        ({"input": 5}, 400, "input"),
        ({"input": [{"type": 5}]}, 400, "input[0]"),
        ({"input": ["Hello!"]}, 400, "input[0]"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]},
            400,
            "input[0].content[0]",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            400,
            "input[0].content[0]",
        ),
        (
            {"input": [{"type": "function_call", "call_id": "a", "name": "b", "arguments": "["}]},
            400,
            "input",
        ),
        (
            {
                "input": [
                    {
                        "type": "function_call_output",
                        "call_id": "a",
                        "output": [{"type": "input_audio"}],
                    }
                ]
            },
            400,
            "input[0].output[0]",
        ),
        ({"model": "nowhere"}, 404, "model"),
        ({"extra_headers": {"X-Mochi-Session": "0123456789"}}, 404, None),
    ],
    ids=str,
)
def test_unsupported_requests_are_refused(
    client: openai.OpenAI, asks: Any, status: int, param: str | None
) -> None:
    refusal = refused(client, **asks)
    assert (refusal.status_code, refusal.param) == (status, param)
    assert set(refusal.response.json()["error"]) == {"message", "type", "param", "code"}


def test_broken_answer_ends_with_failed_event(server_of_cut: RunningServer) -> None:
    with client_of(server_of_cut) as client:
        events = list(client.responses.create(model="mochi", input="Hello!", stream=True))
    failed: Any = events[-1]
    assert failed.type == "response.failed"
    assert (failed.response.status, failed.response.error.code) == ("failed", "server_error")
    assert failed.response.output[0].content[0].text == "one two "


@pytest.fixture
def server_of_cut(tmp_path: Any) -> Any:
    with (
        StubServer(resolve=lambda _: Reply([Text(["one ", "two "]), Cut()]), speed=0) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        yield server


def test_tools_of_openai_are_left_out(client: openai.OpenAI, stub: StubServer) -> None:
    hosted: Any = [
        {"type": "web_search", "external_web_access": False},
        {"type": "mcp", "server_label": "x"},
    ]
    response: Any = respond(client, True, input="Hello!", tools=[*hosted, LOOK])
    assert [tool["function"]["name"] for tool in sent(stub)["tools"]] == ["look"]
    notices = [notice for notice in response.mochi["notices"] if notice["code"] == "TOOL_LEFT_OUT"]
    assert [
        name in notice["message"]
        for name, notice in zip(("web_search", "mcp"), notices, strict=True)
    ] == [True] * 2


@cases(
    "choice",
    [
        "required",
        {"type": "web_search"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
    ],
)
def test_no_call_of_a_left_out_tool_is_required(client: openai.OpenAI, choice: Any) -> None:
    response: Any = respond(
        client, input="Hello!", tools=[{"type": "web_search"}], tool_choice=choice
    )
    assert (response.status, [item.type for item in response.output]) == ("completed", ["message"])
    assert [notice["code"] for notice in response.mochi["notices"]] == ["TOOL_LEFT_OUT"]


def test_tool_left_out_of_a_namespace_can_be_chosen(client: openai.OpenAI) -> None:
    tools: Any = [{"type": "namespace", "name": "web", "tools": [{"type": "web_search"}]}]
    response: Any = respond(client, input="Hello!", tools=tools, tool_choice={"type": "web_search"})
    assert [item.type for item in response.output] == ["message"]
    assert [notice["code"] for notice in response.mochi["notices"]] == ["TOOL_LEFT_OUT"]


def test_required_call_of_other_tools_stays_required(client: openai.OpenAI) -> None:
    search: Any = {"type": "web_search"}
    asks: Any = {"input": "Hello!", "tool_choice": "required"}
    of_client = respond(client, tools=[search, LOOK], **asks)
    assert [item.type for item in of_client.output] == ["function_call"]
    headers = {"X-Mochi-Tools": "add"}
    of_server: Any = respond(client, tools=[search], extra_headers=headers, **asks)
    assert [call["tool_name"] for call in of_server.mochi["tool_calls_executed"]] == ["add"]


@STREAMED
def test_namespaces_are_flattened(client: openai.OpenAI, stub: StubServer, stream: bool) -> None:
    tools: Any = [
        {
            "type": "namespace",
            "name": "crm",
            "description": "Customers",
            "tools": [LOOK, LOOK | {"name": "find"}],
        },
        LOOK,
    ]
    question: Any = {"role": "user", "content": instruct(calls("find", "crm__look"), words(2))}
    first = respond(client, stream, input=[question], tools=tools)
    assert [tool["function"]["name"] for tool in sent(stub)["tools"]] == [
        "look",
        "crm__look",
        "find",
    ]
    called = [item.model_dump(exclude_none=True) for item in first.output]
    assert [(item["name"], item["namespace"]) for item in called] == [
        ("find", "crm"),
        ("look", "crm"),
    ]
    outputs = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "blue"}
        for item in called
    ]
    assert respond(client, stream, input=[question, *called, *outputs], tools=tools).output_text
    _, answer, *results = sent(stub)["messages"]
    assert [call["function"]["name"] for call in answer["tool_calls"]] == ["find", "crm__look"]
    assert [result["tool_name"] for result in results] == ["find", "crm__look"]


@cases(
    "tool",
    [
        {"name": "apply_patch"},
        {"type": "namespace", "name": "x", "tools": [{"name": "apply_patch"}]},
        {"type": "function", "name": "apply_patch", "parameters": {"properties": 5}},
    ],
)
def test_refusal_names_the_tool(client: openai.OpenAI, tool: Any) -> None:
    assert "'apply_patch'" in refused(client, tools=[tool]).message


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_only_allowed_tools_are_offered(client: openai.OpenAI, stub: StubServer, mode: str) -> None:
    choice: Any = {
        "type": "allowed_tools",
        "mode": mode,
        "tools": [{"type": "function", "name": "look"}],
    }
    respond(
        client,
        input=instruct(calls("look")),
        tools=[LOOK, LOOK | {"name": "find"}],
        tool_choice=choice,
    )
    assert [tool["function"]["name"] for tool in sent(stub)["tools"]] == ["look"]


@STREAMED
def test_failure_before_the_first_token_has_a_status(client: openai.OpenAI, stream: bool) -> None:
    import openai

    with pytest.raises(openai.InternalServerError) as caught:
        list(
            client.responses.create(model="failing", input="Hello!", stream=True)
        ) if stream else respond(client, model="failing", input="Hello!")
    assert caught.value.code == "ollama_error"


def test_invalid_image_names_the_field_of_the_request(client: openai.OpenAI) -> None:
    part = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    call = {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "a", "output": "Seen."}
    text = {"type": "input_text", "text": "Look!"}
    items: Any = [call, output, {"role": "user", "content": [text, part]}]
    first = respond(client, input="Hello!", instructions="Be brief.")

    for request in ({}, {"previous_response_id": first.id, "instructions": "Be brief."}):
        refusal = refused(client, input=items, **request)
        assert refusal.param == "input[2].content[1]"


def test_route_that_compacts_responses_does_not_exist(client: openai.OpenAI) -> None:
    import openai

    with pytest.raises(openai.NotFoundError) as caught:
        client.post("/responses/compact", body={"model": "mochi", "input": []}, cast_to=object)
    assert caught.value.body["message"] == (
        "There is no route '/v1/responses/compact'. /openapi.json lists all routes."
    )
