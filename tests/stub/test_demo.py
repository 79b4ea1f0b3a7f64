"""The demo model: short sentences, calls of tools that a message names, and plans of an agent."""

from __future__ import annotations

import json
from typing import Any

from mochi_stub import Message, Prompt, Reply, StubServer, ToolCall
from mochi_stub.config import packaged_config
from mochi_stub.replies.chunks import planned_end
from mochi_stub.resolver import resolve
from tests.stub.requests import send_message
from tests.stub.validity import problems
from tests.support.cases import cases

PLAN_FIRST = "Plan first; do nothing yet. You have no tools in this step."
CARRY_OUT = "Now carry out your plan with your tools."


def tool(
    name: str, description: str = "", required: tuple[str, ...] | None = None, **properties: Any
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    schema |= {} if required is None else {"required": list(required)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


TEXT, NUMBER = {"type": "string"}, {"type": "number"}
WEATHER = tool("get_weather", "The weather in a city.", ("city",), city=TEXT)
ADD = tool("add_numbers", "Add two numbers.", ("a", "b"), a=NUMBER, b=NUMBER)
READ = tool("read_file", "Read a file.", ("path",), path=TEXT, first_line={"type": "integer"})
LIST = tool("list_dir", "List a folder.", path={**TEXT, "default": "."})
TIME = tool("get_current_time", timezone=TEXT)
DICE = tool("roll_dice", sides={"type": "integer"}, count={"type": "integer"})
WRITE = tool("write_file", "", ("path", "content"), path=TEXT, content=TEXT)
LIGHT = tool(
    "set_light",
    "",
    ("color", "on"),
    color={"type": "string", "enum": ["red", "green"]},
    on={"type": "boolean"},
)
AGENT = tool(
    "agent",
    "Available agents:\n  - poet: Writes.\n  - coder: Programs.\n",
    ("agent", "instruction"),
    agent=TEXT,
    instruction=TEXT,
)


def reply_to(
    *messages: str | Message, tools: tuple[dict[str, Any], ...] = (), **fields: Any
) -> Reply:
    said = tuple(
        message if isinstance(message, Message) else Message("user", message)
        for message in messages
    )
    return resolve(Prompt("mochi-demo", messages=said, tools=tools, **fields), packaged_config())


@cases(
    "text", ["Hello!", "Thanks", "Bye", "Who are you?", "Why is the sky blue?", "I like tea.", ""]
)
def test_answer_is_short_and_takes_less_than_two_seconds(text: str) -> None:
    reply = reply_to(text, tools=(WEATHER, ADD, READ, LIST, LIGHT, AGENT))
    assert 2 <= len(reply.text.split()) < 50
    assert "lorem" not in reply.text
    assert planned_end(reply) < 2_000_000_000


@cases(
    ("text", "offered", "arguments"),
    [
        ("What is the weather in Oslo? Use get_weather.", WEATHER, {"city": "Oslo"}),
        ("use get weather in oslo", WEATHER, {"city": "oslo"}),
        (
            "\nCurrent Task: What is the weather in Oslo? Use get_weather.\nProvide an answer",
            WEATHER,
            {"city": "Oslo"},
        ),
        ("Oslo or Bergen? get_weather", WEATHER, {"city": "Bergen"}),
        ("get_weather(city='New York')", WEATHER, {"city": "New York"}),
        ('Call get_weather with {"city": "Bergen"}.', WEATHER, {"city": "Bergen"}),
        ("Use get_weather with city: Bergen.", WEATHER, {"city": "Bergen"}),
        ("Use add_numbers: 2 and -3.5", ADD, {"a": 2, "b": -3.5}),
        ("add_numbers(b=1, a=7)", ADD, {"a": 7, "b": 1}),
        ("Use read_file for src/main.py", READ, {"path": "src/main.py"}),
        ("read_file 'my notes' with first_line=3", READ, {"path": "my notes", "first_line": 3}),
        ("list_dir", LIST, {}),
        ("Use get_current_time.", TIME, {}),
        ("Use get_current_time with Europe/Berlin.", TIME, {"timezone": "Europe/Berlin"}),
        ("Roll dice with 20 sides.", DICE, {"sides": 20}),
        (
            'Write the file notes.txt with the text "hello": write_file',
            WRITE,
            {"path": "notes.txt", "content": "hello"},
        ),
        ("Use read_file for 'src/my notes.txt'", READ, {"path": "src/my notes.txt"}),
        ("Use set_light: green, on: false", LIGHT, {"color": "green", "on": False}),
        (
            "Ask the agent coder to use list_dir.",
            AGENT,
            {"agent": "coder", "instruction": "use list_dir."},
        ),
    ],
)
def test_named_tool_is_called_with_arguments_of_the_message(
    text: str, offered: Any, arguments: dict[str, Any]
) -> None:
    (call,) = reply_to(text, tools=(offered, tool("other"))).tool_calls
    assert (call.name, call.arguments) == (offered["function"]["name"], arguments)


def test_missing_arguments_satisfy_the_schema() -> None:
    (call,) = reply_to("Please use add_numbers and tell me.", tools=(ADD,)).tool_calls
    schema = ADD["function"]["parameters"]
    assert problems(schema, dict(call.arguments), schema) == []


def test_all_named_tools_are_called() -> None:
    reply = reply_to("Use get_weather and list_dir.", tools=(WEATHER, ADD, LIST))
    assert [call.name for call in reply.tool_calls] == ["get_weather", "list_dir"]


def test_tool_that_is_not_offered_is_not_called() -> None:
    reply = reply_to("Use get_weather.", tools=(ADD,))
    assert (reply.tool_calls, "get_weather" in reply.text) == ([], True)


def test_only_required_tools_are_called() -> None:
    tools = (WEATHER, ADD)
    (call,) = reply_to("Use get_weather in Oslo.", tools=tools, required_tools=(ADD,)).tool_calls
    assert call.name == "add_numbers"
    (call,) = reply_to("Use get_weather in Oslo.", tools=tools, required_tools=tools).tool_calls
    assert (call.name, call.arguments) == ("get_weather", {"city": "Oslo"})


def test_results_are_used() -> None:
    calls = Message("assistant", tool_calls=(ToolCall("get_weather"), ToolCall("add_numbers")))
    results = (
        Message("tool", "Sunny in Oslo,\n21 degrees"),
        Message("tool", "5", tool_name="add_numbers"),
    )
    reply = reply_to("Use get_weather and add_numbers.", calls, *results, tools=(WEATHER, ADD))
    assert (
        reply.text
        == "The result of get_weather is: Sunny in Oslo, 21 degrees\nThe result of add_numbers "
        "is: 5"
    )
    assert reply.tool_calls == []


def test_agent_plans_then_acts_then_reports() -> None:
    instruction = "use list_dir."
    plan = reply_to(instruction, PLAN_FIRST)
    assert plan.text == "Plan: I call list_dir and report the result."
    planned = Message("assistant", plan.text)
    acting = reply_to(instruction, planned, CARRY_OUT, tools=(LIST, READ))
    assert [call.name for call in acting.tool_calls] == ["list_dir"]
    done = (
        Message("assistant", tool_calls=(ToolCall("list_dir"),)),
        Message("tool", "a.txt", tool_name="list_dir"),
    )
    last = reply_to(instruction, planned, *done, CARRY_OUT, tools=(LIST, READ))
    assert (last.text, last.tool_calls) == ("The result of list_dir is: a.txt", [])


def test_agent_without_a_named_tool_answers_itself() -> None:
    plan = reply_to("Say hello.", PLAN_FIRST, tools=(LIST,))
    assert "without tools" in plan.text
    assert (
        reply_to("Say hello.", Message("assistant", plan.text), CARRY_OUT, tools=(LIST,)).tool_calls
        == []
    )


def test_format_and_thinking_of_the_request_are_respected(stub: StubServer) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    answer = send_message(stub, "hello", "mochi-demo", format=schema, stream=False).json["message"]
    assert problems(schema, json.loads(answer["content"]), schema) == []
    assert send_message(stub, "hello", "mochi-demo", think=True, stream=False).json["message"][
        "thinking"
    ]
    assert (
        "thinking"
        not in send_message(stub, "hello", "mochi-demo", think=False, stream=False).json["message"]
    )


SCHEMA = {
    "type": "object",
    "properties": {"name": TEXT, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
OTHER = {"properties": {"foo": {"type": "array", "items": TEXT}}, "required": ["foo"]}
PROMPTS = {
    "instructor": "provide the parsed objects in json that match the following "
    f"json_schema:\n\n{json.dumps(SCHEMA)}",
    "LangChain": "The output should be formatted as a JSON instance that conforms to the JSON schema below.\n\n"
    f'As an example, for the schema {json.dumps(OTHER)}\nthe object {{"foo": ["bar", "baz"]}} is a well-formed '
    'instance. The object {"properties": {"foo": ["bar"]}} is not.\n\nHere is the output schema:\n'
    f"```\n{json.dumps(SCHEMA, indent=2)}\n```",
    "Pydantic AI": "Always respond with a JSON object that's compatible with this "
    f"schema:\n\n{json.dumps(SCHEMA)}\n",
    "DSPy": "Outputs will be a JSON object with the following fields.\n\n"
    '{"name": "{name}", "age": "{age}        # note: the value you produce must be a single int value"}',
}


@cases("format_", [None, "json"])
@cases("text", PROMPTS.values(), ids=PROMPTS)
def test_prompted_schema_gets_an_instance(text: str, format_: str | None) -> None:
    for messages in (
        (Message("system", text), "Ada is 36, in a set {1}."),
        (f"Ada is 36. {text}",),
    ):
        assert problems(SCHEMA, json.loads(reply_to(*messages, format=format_).text), SCHEMA) == []


def test_prompted_field_can_have_a_schema() -> None:
    note = f"the value you produce must adhere to the JSON schema: {json.dumps(SCHEMA)}"
    text = (
        "Respond with a JSON object: "
        f"{json.dumps({'person': f'{{person}}  # note: {note}', 'text': '{text}'})}"
    )
    person = {
        "type": "object",
        "properties": {"person": SCHEMA, "text": TEXT},
        "required": ["person", "text"],
    }
    assert problems(person, json.loads(reply_to(text).text), person) == []


def test_tool_is_called_before_the_prompted_reply() -> None:
    system = Message("system", PROMPTS["Pydantic AI"])
    (call,) = reply_to(system, "Use add_numbers with 2 and 3.", tools=(ADD,)).tool_calls
    assert call.arguments == {"a": 2, "b": 3}
    messages = (
        "Use add_numbers with 2 and 3.",
        Message("assistant", tool_calls=(call,)),
        Message("tool", "5"),
    )
    assert (
        problems(SCHEMA, json.loads(reply_to(system, *messages, tools=(ADD,)).text), SCHEMA) == []
    )


@cases(
    "text",
    [
        f"What is {json.dumps(SCHEMA)}?",
        "Answer in JSON.",
        'Return JSON such as {"a": 1} {',
        f'Return JSON such as {{"a": {"9" * 5000}}}',
        f'Return JSON such as {{"a": {"[" * 20_000}',
    ],
    ids=lambda text: text[:40],
)
def test_text_without_a_request_for_an_instance_gets_a_sentence(text: str) -> None:
    assert reply_to(text).text.startswith("You ")


def test_own_format_has_priority_over_the_prompt() -> None:
    assert json.loads(reply_to(PROMPTS["instructor"], format=OTHER).text).keys() == {"foo"}
