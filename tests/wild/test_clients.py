"""Requests that clients send in the wild. The name of each test says what a user sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mochi_stub import StubServer
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.stub import chats

if TYPE_CHECKING:
    import openai

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
PATCH = "*** Begin Patch\n*** Delete File: notes.txt\n*** End Patch"
LOOK: Any = {"type": "function", "name": "look", "parameters": {"type": "object"}}
APPLY_PATCH: Any = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edit files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch" /.+/'},
}


def prompt(stub: StubServer) -> list[dict[str, Any]]:
    """Return the messages of the latest request to Ollama."""
    messages: list[dict[str, Any]] = chats(stub)[-1].body["messages"]
    return messages


def respond(client: openai.OpenAI, stream: bool = False, **request: Any) -> Any:
    request = {"model": "mochi", **request}
    if not stream:
        return client.responses.create(**request)
    with client.responses.stream(**request) as events:
        return events.get_final_response()


def codes(answer: Any) -> list[str]:
    """Return the codes of the notices of an answer."""
    return [notice["code"] for notice in answer["mochi"]["notices"]]


# Responses API


@STREAMED
def test_call_of_a_custom_tool_is_free_text(
    client: openai.OpenAI, stub: StubServer, stream: bool
) -> None:
    question: Any = {
        "role": "user",
        "content": instruct(calls("apply_patch", input=PATCH), words(2)),
    }
    first = respond(client, stream, input=[question], tools=[APPLY_PATCH])
    (tool,) = chats(stub)[-1].body["tools"]
    text = tool["function"]["parameters"]["properties"]["input"]
    assert (text["type"], "start:" in text["description"]) == ("string", True)
    (call,) = first.output
    assert (call.type, call.name, call.input) == ("custom_tool_call", "apply_patch", PATCH)
    output = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "Done."}
    sent: Any = [question, call.model_dump(exclude_none=True), output]
    second = respond(client, stream, input=sent, tools=[APPLY_PATCH])
    assert second.output_text
    _, answer, result = prompt(stub)
    assert answer["tool_calls"][0]["function"]["arguments"] == {"input": PATCH}
    assert (result["tool_name"], result["content"]) == ("apply_patch", "Done.")


def test_call_of_a_custom_tool_is_streamed_as_its_own_events(http: httpx.Client) -> None:
    body = {
        "model": "mochi",
        "input": instruct(calls("apply_patch", input=PATCH)),
        "tools": [APPLY_PATCH],
        "tool_choice": {"type": "custom", "name": "apply_patch"},
        "stream": True,
    }
    text = http.post("/v1/responses", json=body).text
    names = [line.removeprefix("event: ") for line in text.splitlines() if "event:" in line]
    assert names[2:-1] == [
        "response.output_item.added",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
    ]


def test_answer_with_a_custom_call_can_be_continued_by_its_id(
    client: openai.OpenAI, stub: StubServer
) -> None:
    text = instruct(calls("apply_patch", input=PATCH), words(2))
    first = respond(client, input=text, tools=[APPLY_PATCH])
    output: Any = {
        "type": "custom_tool_call_output",
        "call_id": first.output[0].call_id,
        "output": [{"type": "input_text", "text": "Done."}],
    }
    second = respond(client, input=[output], previous_response_id=first.id, tools=[APPLY_PATCH])
    assert second.output_text
    assert [message["role"] for message in prompt(stub)] == ["user", "assistant", "tool"]


def test_custom_tool_in_a_namespace_keeps_its_namespace(client: openai.OpenAI) -> None:
    group: Any = {"type": "namespace", "name": "files", "tools": [APPLY_PATCH, {"type": "shell"}]}
    answer = respond(client, input=instruct(calls("apply_patch", input=PATCH)), tools=[group])
    (call,) = answer.output
    assert (call.type, call.namespace, call.input) == ("custom_tool_call", "files", PATCH)
    assert codes({"mochi": answer.mochi}) == ["TOOL_LEFT_OUT"]


@cases(
    "kind",
    ["local_shell", "shell", "apply_patch", "web_search", "tool_search", "computer_use_preview"],
)
def test_tool_of_openai_is_left_out_with_a_notice(
    http: httpx.Client, stub: StubServer, kind: str
) -> None:
    body = {"model": "mochi", "input": "Hello!", "tools": [{"type": kind}, APPLY_PATCH]}
    answer = http.post("/v1/responses", json=body).json()
    assert codes(answer) == ["TOOL_LEFT_OUT"]
    assert len(chats(stub)[-1].body["tools"]) == 1


@cases(
    "choice",
    [
        {"type": "web_search"},
        {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "web_search"}, {"type": "function", "name": "look"}],
        },
    ],
)
def test_choice_of_a_tool_that_is_left_out_has_no_effect(
    http: httpx.Client, stub: StubServer, choice: Any
) -> None:
    tools = [{"type": "web_search"}, LOOK]
    body = {"model": "mochi", "input": "Hello!", "tools": tools, "tool_choice": choice}
    answer = http.post("/v1/responses", json=body).json()
    assert codes(answer) == ["TOOL_LEFT_OUT"]
    assert [tool["function"]["name"] for tool in chats(stub)[-1].body["tools"]] == ["look"]


@cases(
    ("call", "output", "text"),
    [
        (
            {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"]}},
            {"type": "function_call_output", "output": "notes.txt"},
            "notes.txt",
        ),
        (
            {"type": "shell_call", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "output": [{"stdout": "notes.txt"}]},
            '[{"stdout":"notes.txt"}]',
        ),
        (
            {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}},
            {"type": "apply_patch_call_output", "status": "completed"},
            '{"status":"completed"}',
        ),
        (
            {"type": "tool_search_call", "arguments": {"query": "files"}},
            {"type": "tool_search_output", "tools": []},
            '{"tools":[]}',
        ),
    ],
)
def test_earlier_call_of_a_tool_of_openai_stays_in_the_conversation(
    http: httpx.Client, stub: StubServer, call: Any, output: Any, text: str
) -> None:
    items = [
        {"role": "user", "content": "List the files."},
        {**call, "call_id": "c1", "id": "x1"},
        {**output, "call_id": "c1"},
        {"role": "user", "content": "Thanks!"},
    ]
    answer = http.post("/v1/responses", json={"model": "mochi", "input": items}).json()
    assert codes(answer) == []
    _, assistant, result, _ = prompt(stub)
    (function,) = [each["function"] for each in assistant["tool_calls"]]
    wanted = call.get("action") or call.get("operation") or call.get("arguments")
    name = call["type"].removesuffix("_call")
    assert (function["name"], function["arguments"]) == (name, wanted)
    assert (result["tool_name"], result["content"]) == (name, text)


@pytest.mark.parametrize("fields", [{}, {"call_id": None}])
def test_output_of_a_local_shell_names_its_call_as_id(
    http: httpx.Client, stub: StubServer, fields: dict[str, None]
) -> None:
    items = [
        {"role": "user", "content": "List the files."},
        {"type": "local_shell_call", "id": "x1", "call_id": "c1", "action": {"command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "c1", "output": "notes.txt", **fields},
    ]
    answer = http.post("/v1/responses", json={"model": "mochi", "input": items}).json()
    assert codes(answer) == []
    assert prompt(stub)[-1]["content"] == "notes.txt"


@cases(
    "item",
    [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}},
        {"type": "local_shell_call", "call_id": "c1", "action": {"command": ["ls"]}},
        {"type": "shell_call_output", "call_id": "c1", "output": []},
        {"type": "tool_search_call", "call_id": None, "arguments": {}},
        {"type": "compaction", "encrypted_content": "x"},
    ],
)
def test_item_that_maps_to_no_call_is_skipped_with_a_notice(
    http: httpx.Client, stub: StubServer, item: Any
) -> None:
    items = [{"role": "user", "content": "Hello!"}, item, {"role": "user", "content": "Well?"}]
    answer = http.post("/v1/responses", json={"model": "mochi", "input": items}).json()
    (notice,) = answer["mochi"]["notices"]
    assert notice["code"] == "CONTENT_LEFT_OUT"
    assert f"{item['type']!r} in the request: 1" in notice["message"]
    assert [message["role"] for message in prompt(stub)] == ["user", "user"]


def test_input_tokens_are_counted(client: openai.OpenAI) -> None:
    few = client.responses.input_tokens.count(model="mochi", input="Hello!")
    many = client.responses.input_tokens.count(
        model="mochi", input="Hello! " * 100, instructions="Be kind."
    )
    assert few.object == "response.input_tokens"
    assert 0 < few.input_tokens < many.input_tokens


def test_input_items_of_a_response_are_listed(client: openai.OpenAI) -> None:
    first = respond(client, input="Hello!")
    second = respond(
        client, input=[{"role": "user", "content": "Well?"}], previous_response_id=first.id
    )
    items: Any = client.responses.input_items.list(second.id, order="asc").data
    assert [item.role for item in items] == ["user", "assistant", "user"]
    assert [item.content[0].text for item in items] == ["Hello!", first.output_text, "Well?"]
    newest_first: Any = list(client.responses.input_items.list(second.id, limit=1))
    assert [item.id for item in newest_first] == [item.id for item in reversed(items)]


def test_input_items_of_a_session_are_its_earlier_messages(
    client: openai.OpenAI, server: RunningServer
) -> None:
    session = server.client.create_session("mochi")["session_id"]
    headers = {"X-Mochi-Session": session}
    text = instruct(calls("look", at="sky"), words(1))
    first = respond(client, input=text, tools=[LOOK], extra_headers=headers)
    output: Any = {
        "type": "function_call_output",
        "call_id": first.output[0].call_id,
        "output": "blue",
    }
    second = respond(client, input=[output], tools=[LOOK], extra_headers=headers)
    listed: Any = client.responses.input_items.list(second.id, order="asc").data
    assert [item.type for item in listed] == ["message", "function_call", "function_call_output"]
    assert client.responses.input_items.list(first.id).data[0].type == "message"


@cases("path", ["resp_x/input_items", "resp_0123456789_0_0123456789/input_items"])
def test_input_items_of_an_unknown_response_are_not_found(http: httpx.Client, path: str) -> None:
    assert http.get(f"/v1/responses/{path}").status_code == 404


def test_stub_refuses_responses_in_the_background(stub: StubServer) -> None:
    body = {"model": "mochi", "input": "Hello!", "background": True}
    response = httpx.post(f"{stub.url}/v1/responses", json=body, timeout=60)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "background"


def test_input_without_a_message_is_refused(http: httpx.Client) -> None:
    body = {"model": "mochi", "input": [{"type": "web_search_call"}]}
    response = http.post("/v1/responses", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "input"


# Messages API


def ask_anthropic(http: httpx.Client, *messages: Any, **fields: Any) -> Any:
    """Return the answer of the Messages API."""
    body = {"model": "mochi", "max_tokens": 1000, "messages": messages, **fields}
    response = http.post("/v1/messages", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_answer_without_content_can_be_sent_back(http: httpx.Client, stub: StubServer) -> None:
    question = {"role": "user", "content": "Hello!"}
    answer = {**ask_anthropic(http, question), "content": []}  # as of a model that said nothing
    ask_anthropic(http, question, answer, {"role": "user", "content": "Well?"})
    assert [message["role"] for message in prompt(stub)] == ["user", "user"]


FOUND = {"type": "web_search_result", "url": "https://a.example", "title": "A"}


@cases(
    ("block", "text"),
    [
        ({"type": "document", "source": {"type": "text", "data": "Text."}}, "Text."),
        (
            {
                "type": "document",
                "source": {"type": "content", "content": [{"type": "text", "text": "Text."}]},
            },
            "Text.",
        ),
        (
            {
                "type": "search_result",
                "source": "https://a.example",
                "title": "A",
                "content": [{"type": "text", "text": "Text."}],
            },
            "A\nhttps://a.example\nText.",
        ),
        ({"type": "tool_reference", "tool_name": "look"}, "The tool 'look' is available."),
        (
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [FOUND]},
            "A\nhttps://a.example",
        ),
    ],
)
def test_block_with_text_reaches_the_model(
    http: httpx.Client, stub: StubServer, block: Any, text: str
) -> None:
    content = [block, {"type": "text", "text": "What is this?"}]
    answer = ask_anthropic(http, {"role": "user", "content": content})
    assert codes(answer) == []
    sent = prompt(stub)[-1]["content"]
    assert text in sent
    assert sent.endswith("What is this?")


@cases(
    "block",
    [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "a"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s1",
            "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"},
        },
    ],
)
def test_block_without_text_is_skipped_with_a_notice(
    http: httpx.Client, stub: StubServer, block: Any
) -> None:
    content = [{"type": "text", "text": "I searched."}, block]
    answer = ask_anthropic(
        http,
        {"role": "user", "content": "Search!"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": "Well?"},
    )
    (notice,) = answer["mochi"]["notices"]
    assert (notice["code"], block["type"] in notice["message"]) == ("CONTENT_LEFT_OUT", True)
    assert prompt(stub)[1]["content"] == "I searched."


def test_search_results_of_a_tool_reach_the_model(http: httpx.Client, stub: StubServer) -> None:
    found = {"type": "search_result", "source": "a.txt", "title": "A", "content": []}
    ask_anthropic(
        http,
        {"role": "user", "content": "Search!"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "find", "input": {}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [found]}],
        },
    )
    assert prompt(stub)[-1]["content"] == "A\na.txt"


# Broken history


def complete(http: httpx.Client, *messages: Any, **fields: Any) -> Any:
    """Return the chat completion of OpenAI's API."""
    response = http.post(
        "/v1/chat/completions", json={"model": "mochi", "messages": messages, **fields}
    )
    assert response.status_code == 200, response.text
    return response.json()


def broken_call(arguments: Any) -> dict[str, Any]:
    function = {"name": "look", "arguments": arguments}
    call = {"id": "c1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


HELLO = {"role": "user", "content": "Hello!"}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "Invalid JSON."}
BROKEN = ['{"at": "sk', "[1]", "sky", [1], '{"a":' * 101 + "1" + "}" * 101]


@cases("arguments", BROKEN)
def test_earlier_call_with_broken_arguments_is_an_empty_call(
    http: httpx.Client, stub: StubServer, arguments: Any
) -> None:
    answer = complete(http, HELLO, broken_call(arguments), RESULT)
    (notice,) = answer["mochi"]["notices"]
    assert (notice["code"], "'c1'" in notice["message"]) == ("ARGUMENTS_INVALID", True)
    assert prompt(stub)[1]["tool_calls"][0]["function"]["arguments"] == {}


def test_notice_of_broken_arguments_is_in_the_stream(http: httpx.Client) -> None:
    body = {"model": "mochi", "messages": [HELLO, broken_call("{"), RESULT], "stream": True}
    assert "ARGUMENTS_INVALID" in http.post("/v1/chat/completions", json=body).text


def test_earlier_broken_arguments_are_empty_in_the_responses_api(
    http: httpx.Client, stub: StubServer
) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "Invalid JSON."}
    body = {"model": "mochi", "input": [HELLO, call, output]}
    assert codes(http.post("/v1/responses", json=body).json()) == ["ARGUMENTS_INVALID"]
    assert prompt(stub)[1]["tool_calls"][0]["function"]["arguments"] == {}


def test_earlier_broken_arguments_are_empty_in_the_messages_api(
    http: httpx.Client, stub: StubServer
) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": "{"}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "Invalid JSON."}
    answer = ask_anthropic(
        http,
        HELLO,
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    )
    assert codes(answer) == ["ARGUMENTS_INVALID"]
    assert prompt(stub)[1]["tool_calls"][0]["function"]["arguments"] == {}


def test_call_before_the_newest_message_may_have_broken_arguments(http: httpx.Client) -> None:
    answer = complete(http, HELLO, broken_call("{"), {"role": "user", "content": "Go on."})
    assert codes(answer) == ["ARGUMENTS_INVALID"]


def test_newest_call_with_broken_arguments_is_refused(http: httpx.Client) -> None:
    body = {"model": "mochi", "messages": [HELLO, broken_call("{")]}
    response = http.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert "the arguments of call 'c1' are not a JSON object" in response.json()["error"]["message"]


def test_tool_message_without_content_is_an_empty_result(
    http: httpx.Client, stub: StubServer
) -> None:
    result = {"role": "tool", "tool_call_id": "c1", "content": None}
    complete(http, HELLO, broken_call("{}"), result, HELLO)
    assert [message["content"] for message in prompt(stub)[2:]] == ["", "Hello!"]


# Options


@cases(
    ("options", "think"),
    [
        ({"enable_thinking": False}, False),
        ({"enable_thinking": True}, True),
        ({"thinking": False}, False),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_chat_template_kwargs_set_think(
    http: httpx.Client, stub: StubServer, options: Any, think: bool, path: str
) -> None:
    body = {"model": "mochi", "messages": [HELLO], "input": "Hi", "chat_template_kwargs": options}
    assert codes(http.post(path, json=body).json()) == []
    assert chats(stub)[-1].body["think"] is think


def test_reasoning_effort_overrides_chat_template_kwargs(
    http: httpx.Client, stub: StubServer
) -> None:
    options = {"enable_thinking": True}
    complete(http, HELLO, reasoning_effort="none", chat_template_kwargs=options)
    assert chats(stub)[-1].body["think"] is False


@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses"])
def test_other_chat_template_kwargs_are_ignored_with_a_notice(
    http: httpx.Client, path: str
) -> None:
    options = {"add_generation_prompt": True, "custom": 1}
    body = {"model": "mochi", "messages": [HELLO], "input": "Hi", "prompt": "Hi"}
    if path == "completions":
        del body["messages"]
    if path == "responses":
        del body["prompt"]
    response = http.post(f"/v1/{path}", json={**body, "chat_template_kwargs": options})
    (notice,) = response.json()["mochi"]["notices"]
    assert notice["code"] == "OPTION_IGNORED"
    assert "add_generation_prompt, custom" in notice["message"]
