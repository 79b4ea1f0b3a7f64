"""The OpenAPI document: valid, complete, always the same, and true to the events as they are sent."""

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import orjson
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from mochi_server import create_app
from mochi_server.errors import all_errors
from mochi_server.events import ChatEvent
from mochi_server.openapi import TAGS
from mochi_server.routers.examples import example
from mochi_server.services.compare import CompareEvent
from mochi_server.sessions.types import Message
from tests.support.api import Api, Event
from tests.support.instructions import calls, instruct, words
from tests.support.process import run
from tests.support.tools import write_tools

DOCUMENT: dict[str, Any] = create_app().openapi()
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]


def operations() -> Iterator[Any]:
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            yield pytest.param(operation, id=f"{method} {path}")


def validator(schema: dict[str, Any]) -> Draft202012Validator:
    """Of a schema of the document, whose references it follows."""
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def union(name: str) -> dict[str, Any]:
    """The events of a union by their names."""
    mapping = SCHEMAS[name]["discriminator"]["mapping"]
    return {event: SCHEMAS[ref.rpartition("/")[2]] for event, ref in mapping.items()}


def test_the_document_is_valid() -> None:
    validate(DOCUMENT)


def test_the_command_prints_the_same_document_whatever_the_hashes_and_the_settings(tmp_path: Path) -> None:
    printed = {
        run("mochi_server", "openapi", cwd=tmp_path, PYTHONHASHSEED=seed, MOCHI_PORT=port)
        for seed, port in (("1", "many"), ("2", "8001"))
    }
    assert printed == {(0, json.dumps(DOCUMENT, indent=2, ensure_ascii=False) + "\n")}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("operation", [*operations()])
def test_an_operation_says_what_it_does_and_how_it_fails(operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["description"]
    assert set(operation["tags"]) < set(TAGS)
    failures = {status: answer for status, answer in operation["responses"].items() if status[0] in "d45"}
    assert "default" in failures
    for answer in failures.values():
        content = answer["content"]["application/json"]
        assert content["examples"]
        for named, shown in content["examples"].items():
            validator(content["schema"]).validate(shown["value"])
            assert shown["value"]["error"]["code"] == named


@pytest.mark.parametrize("operation", [*operations()])
def test_an_answer_has_an_example_that_is_one(operation: dict[str, Any]) -> None:
    for status, answer in operation["responses"].items():
        for media, content in answer.get("content", {}).items() if status[0] == "2" else ():
            if media.startswith("image/"):
                continue
            assert "example" in content or media == "application/json"
            if media == "application/json":
                shown = content["examples"]["example"]["value"]
                validator(content["schema"]).validate(shown)
                assert set(shown) <= set(SCHEMAS[content["schema"]["$ref"].rpartition("/")[2]]["properties"])


@pytest.mark.parametrize("operation", [each for each in operations() if "requestBody" in each.values[0]])
def test_a_body_has_examples_that_it_admits(operation: dict[str, Any]) -> None:
    content = operation["requestBody"]["content"]["application/json"]
    schema = content["schema"]
    reference = schema.get("$ref") or next(each["$ref"] for each in schema["anyOf"] if "$ref" in each)
    shown = SCHEMAS[reference.rpartition("/")[2]]["examples"]
    assert shown
    assert [each["value"] for each in content["examples"].values()] == shown
    for body in shown:
        validator(schema).validate(body)


def test_tags_are_in_order_and_used() -> None:
    assert [tag["name"] for tag in DOCUMENT["tags"]] == list(TAGS)
    assert {tag for item in DOCUMENT["paths"].values() for o in item.values() for tag in o["tags"]} == set(TAGS)


@pytest.mark.parametrize("error", [*all_errors()], ids=lambda error: error.__name__)
def test_every_error_has_an_example(error: Any) -> None:
    assert example(error)["error"]["code"] == error.code


def test_every_event_is_in_the_document_with_its_payload() -> None:
    assert list(union("ChatStreamEvent")) == [event.type for event in get_args(ChatEvent)]
    assert set(union("CompareStreamEvent")) == {event.type for event in get_args(CompareEvent)}
    for event in get_args(ChatEvent):
        payload = SCHEMAS[event.__name__]
        assert set(payload["required"]) == set(payload["properties"]) == {field.name for field in fields(event)}


def test_streams_refer_to_their_events() -> None:
    stream, compare = "/api/v1/chat/{session_id}/stream", "/api/v1/models/test"
    for path, method, name in (
        (stream, "post", "ChatStreamEvent"),
        (stream, "get", "ChatStreamEvent"),
        (compare, "post", "CompareStreamEvent"),
    ):
        content = DOCUMENT["paths"][path][method]["responses"]["200"]["content"]
        assert list(content) == ["text/event-stream"]
        assert content["text/event-stream"]["schema"] == {"$ref": f"#/components/schemas/{name}"}


def test_events_as_they_are_sent_are_as_they_are_described(api: Api) -> None:
    session = api.create_session("mochi", think=True)
    events = api.stream_message(session["session_id"], instruct({"text_message": {"length": 5}}, reasoning=5))
    assert {"thinking_delta", "content_delta", "message_complete", "done"} <= {event.type for event in events}
    check(events, "ChatStreamEvent")


def test_events_of_tools_and_of_failures_are_as_they_are_described(api: Api) -> None:
    session = api.create_session("mochi")
    events = api.stream_message(session["session_id"], instruct(calls("no_such_tool")))
    assert "tool_result" in {event.type for event in events}
    failing = api.create_session("failing")
    events += api.stream_message(failing["session_id"], "Hello!")
    assert "error" in {event.type for event in events}
    check(events, "ChatStreamEvent")


def check(events: list[Event], name: str) -> None:
    """Each event, and its payload, against the schemas of its name."""
    for event in events:
        frame = union(name)[event.type]
        sent = {"id": event.id, "event": event.type, "data": orjson.dumps(event.data).decode()}
        validator(SCHEMAS[name]).validate(sent)
        validator(frame["properties"]["data"]["contentSchema"]).validate(event.data)
        assert set(event.data) == set(_payload(frame)["properties"])


def _payload(frame: dict[str, Any]) -> dict[str, Any]:
    reference: str = frame["properties"]["data"]["contentSchema"]["$ref"]
    payload: dict[str, Any] = SCHEMAS[reference.rpartition("/")[2]]
    return payload


def test_answers_refer_to_the_schema_of_messages_and_it_has_their_fields() -> None:
    ref = {"$ref": "#/components/schemas/StoredMessage"}
    for holder in ("SessionDetail", "AgentChatDetail", "MessageList"):
        assert SCHEMAS[holder]["properties"]["messages"]["items"] == ref
    assert SCHEMAS["ChatResponse"]["properties"]["message"]["anyOf"] == [ref, {"type": "null"}]
    assert set(SCHEMAS["StoredMessage"]["properties"]) == set(Message.__annotations__) - {"key_digest"}


def test_stored_messages_are_what_the_document_says(tmp_path: Path, api: Api) -> None:
    write_tools(tmp_path, "__all__ = ['note']\ndef note() -> str:\n    'Note it.'\n    return 'Noted.'\n")
    settings = {"tools": ["note"], "execution_policy": "never_confirm"}
    session_id = api.create_session("mochi", system_prompt="Be brief.", think=True, tool_settings=settings)[
        "session_id"
    ]
    answer = api.send_message(session_id, instruct(calls("note"), words(2), reasoning=3))
    messages = api.messages(session_id)
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "assistant"]
    for message in (*messages, answer["message"]):
        validator(SCHEMAS["StoredMessage"]).validate(message)
