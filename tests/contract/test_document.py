"""The OpenAPI document: valid, complete, deterministic, and consistent with sent events."""

import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import orjson
import pytest

from mochi_server.errors import all_errors
from mochi_server.events import ChatEvent, Status
from mochi_server.services.compare import CompareEvent
from mochi_server.sessions.types import Message
from mochi_server.web.api_docs import TAGS
from mochi_server.web.routes import sample
from tests.support.api import Api, Event
from tests.support.instructions import calls, instruct, words
from tests.support.process import run
from tests.support.server import RunningServer
from tests.support.tools import write_tools

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

Document = dict[str, Any]
Validator = Callable[[dict[str, Any]], "Draft202012Validator"]


@pytest.fixture(scope="module")
def document(shared_server: RunningServer) -> Document:
    return shared_server.client.ok(
        shared_server.client.http.get(shared_server.client.http.base_url.join("/openapi.json"))
    )


@pytest.fixture(scope="module")
def schemas(document: Document) -> dict[str, Any]:
    """The schemas of the document by their names."""
    found: dict[str, Any] = document["components"]["schemas"]
    return found


@pytest.fixture(scope="module")
def validator(document: Document) -> Validator:
    """Return the validator of a schema of the document, with its references resolved."""

    from jsonschema import Draft202012Validator

    def validator(schema: dict[str, Any]) -> Draft202012Validator:
        return Draft202012Validator({**schema, "components": document["components"]})

    return validator


def operations(document: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each operation of the document with its name."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield f"{method} {path}", operation


def union(schemas: dict[str, Any], name: str) -> dict[str, Any]:
    """The events of a union by their names."""
    mapping = schemas[name]["discriminator"]["mapping"]
    return {event: schemas[ref.rpartition("/")[2]] for event, ref in mapping.items()}


def test_document_is_valid(document: Document, schemas: dict[str, Any]) -> None:
    """Fail if a schema, a default, a reference or any other part of the document is invalid."""
    import jsonschema_rs
    from openapi_spec_validator import validate

    components = document["components"]
    jsonschema_rs.validator_for(
        {"allOf": [{"$ref": ref(name)} for name in schemas], "components": components}
    )
    fields_with_default: dict[str, Any] = {}
    for name, schema in schemas.items():
        jsonschema_rs.meta.validate(schema)
        for field, each in schema.get("properties", {}).items():
            if "default" in each:
                fields_with_default[f"{name}.{field}"] = each
    assert fields_with_default
    defaults = {name: each["default"] for name, each in fields_with_default.items()}
    all_fields = {
        "properties": fields_with_default,
        "components": components,
    }  # making a validator takes 10 ms
    jsonschema_rs.validate(all_fields, defaults)
    validate({**document, "components": {**components, "schemas": dict.fromkeys(schemas, True)}})


def ref(name: str) -> str:
    return f"#/components/schemas/{name}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [
        {"MOCHI_PORT": "many"},
        {"MOCHI_PORT": "many", "PYTHONHASHSEED": "1"},
        {"MOCHI_PORT": "8001", "PYTHONHASHSEED": "2"},
    ],
)
def test_command_prints_the_document_for_any_seed_and_settings(
    document: Document, tmp_path: Path, environment: dict[str, str]
) -> None:
    printed = run("mochi_server", "openapi", cwd=tmp_path, **environment)
    assert printed == (0, json.dumps(document, indent=2) + "\n")
    assert not list(tmp_path.iterdir())


def test_operations_have_descriptions_and_errors(document: Document, validator: Validator) -> None:
    for name, operation in operations(document):
        assert operation["summary"], name
        assert operation["description"], name
        assert operation["tags"], name
        failures = {
            status: answer
            for status, answer in operation["responses"].items()
            if status[0] in "d45"
        }
        assert "default" in failures, name
        for status, answer in failures.items():
            content = answer["content"]["application/json"]
            validator(content["schema"]).validate(content["example"])
            error = content["example"]["error"]
            code = f"`{error.get('code') or error['type']}`"
            assert status == "default" or answer["description"].startswith(code), (name, status)


def test_responses_have_schemas(document: Document) -> None:
    for name, operation in operations(document):
        succeeded = {
            status: answer for status, answer in operation["responses"].items() if status[0] == "2"
        }
        assert succeeded, name
        for status, answer in succeeded.items():
            assert status == "204" or answer["content"], name
            assert all(content["schema"] for content in answer.get("content", {}).values()), (
                name,
                status,
            )


def test_fields_of_bodies_are_described(document: Document, schemas: dict[str, Any]) -> None:
    bodies = [
        operation["requestBody"]
        for _, operation in operations(document)
        if "requestBody" in operation
    ]
    named = {name for body in bodies for name in schemas if f"/{name}'" in str(body["content"])}
    assert {
        "ChatRequest",
        "CompletionRequest",
        "SessionCreate",
        "SessionPatch",
        "ToolDecision",
    } <= named
    for name in named:
        for field, schema in schemas[name].get("properties", {}).items():
            assert schema.get("description"), f"{name}.{field}"


def test_examples_of_bodies_are_valid(schemas: dict[str, Any], validator: Validator) -> None:
    shown = {name: schema["examples"] for name, schema in schemas.items() if "examples" in schema}
    assert {
        "ChatRequest",
        "CompareRequest",
        "CompletionRequest",
        "SessionCreate",
        "ToolDecision",
    } <= set(shown)
    for name, examples in shown.items():
        for value in examples:
            validator(schemas[name]).validate(value)


def test_tags_are_in_order_and_used(document: Document) -> None:
    names = [tag["name"] for tag in document["tags"]]
    assert names == [*TAGS, "frontends", "OpenAI", "Anthropic"]
    assert all(tag["description"] for tag in document["tags"])
    assert {
        tag for item in document["paths"].values() for o in item.values() for tag in o["tags"]
    } == set(names)


def test_every_error_has_an_example() -> None:
    errors = all_errors()
    bodies = [orjson.loads(sample(error).body()) for error in errors]
    assert [body["error"]["code"] for body in bodies] == [error.code for error in errors]


def test_every_route_that_reads_a_session_documents_files_of_a_newer_version(
    document: Document,
) -> None:
    reading = [
        item["get"]
        for path, item in document["paths"].items()
        if "/sessions/{" in path and "get" in item
    ]
    assert reading
    for operation in reading:
        assert "SESSION_TOO_NEW" in operation["responses"]["409"]["description"], operation[
            "operationId"
        ]


@pytest.mark.parametrize(
    ("route", "status", "code"),
    [
        ("stream", "503", "OLLAMA_BUSY"),
        ("stop", "409", "SESSION_BUSY"),
        ("stop", "500", "STORAGE_FAILED"),
        ("confirm-tool", "500", "STORAGE_FAILED"),
    ],
)
def test_routes_of_turns_document_errors_before_the_response(
    document: Document, route: str, status: str, code: str
) -> None:
    operation = document["paths"][f"/api/v1/chat/{{session_id}}/{route}"]["post"]
    assert code in operation["responses"][status]["description"]


def test_every_event_is_documented_with_its_payload(schemas: dict[str, Any]) -> None:
    assert list(union(schemas, "ChatStreamEvent")) == [event.type for event in get_args(ChatEvent)]
    assert set(union(schemas, "CompareStreamEvent")) == {
        event.type for event in get_args(CompareEvent)
    }
    for event in get_args(ChatEvent):
        payload = schemas[event.__name__]
        names = {field.name for field in fields(event)}
        assert set(payload["properties"]) == names
        optional: set[str] = {"position", "host", "continues"} if event is Status else set()
        assert set(payload["required"]) == names - optional


def test_streams_are_text_for_generated_clients(document: Document) -> None:
    """Generators parse the body of every other schema as one JSON value."""
    streams = {
        f"{name} {status}": answer["content"]["text/event-stream"]["schema"]
        for name, operation in operations(document)
        for status, answer in operation["responses"].items()
        if "text/event-stream" in answer.get("content", {})
    }
    assert len(streams) >= 4
    assert {name for name, schema in streams.items() if schema["type"] != "string"} == set()


def test_streams_name_the_schema_of_their_events(document: Document) -> None:
    stream, compare = "/api/v1/chat/{session_id}/stream", "/api/v1/models/test"
    for path, method, name in (
        (stream, "post", "ChatStreamEvent"),
        (stream, "get", "ChatStreamEvent"),
        (compare, "post", "CompareStreamEvent"),
    ):
        response = document["paths"][path][method]["responses"]["200"]
        assert list(response["content"]) == ["text/event-stream"]
        assert f"Each event is a `{name}`" in response["description"]
        assert document["components"]["schemas"][name]["discriminator"]["propertyName"] == "event"


def test_sent_events_match_the_document(
    api: Api, schemas: dict[str, Any], validator: Validator
) -> None:
    session = api.create_session("mochi", think=True)
    events = api.stream_message(
        session["session_id"], instruct({"text_message": {"length": 5}}, reasoning=5)
    )
    assert {"thinking_delta", "content_delta", "message_complete", "done"} <= {
        event.type for event in events
    }
    assert_events_match(events, schemas, validator)


def test_events_of_tools_and_failures_match_the_document(
    api: Api, schemas: dict[str, Any], validator: Validator
) -> None:
    session = api.create_session("mochi")
    events = api.stream_message(session["session_id"], instruct(calls("no_such_tool")))
    assert "tool_result" in {event.type for event in events}
    failing = api.create_session("failing")
    events += api.stream_message(failing["session_id"], "Hello!")
    assert "error" in {event.type for event in events}
    assert_events_match(events, schemas, validator)


def assert_events_match(events: list[Event], schemas: dict[str, Any], validator: Validator) -> None:
    """Fail unless each event and its payload are valid by the schemas of its name."""
    frames = union(schemas, "ChatStreamEvent")
    any_event = validator(schemas["ChatStreamEvent"])
    for event in events:
        content = frames[event.type]["properties"]["data"]["contentSchema"]
        any_event.validate(
            {"id": event.id, "event": event.type, "data": orjson.dumps(event.data).decode()}
        )
        validator(content).validate(event.data)
        assert set(event.data) == set(schemas[content["$ref"].rpartition("/")[2]]["properties"])


def test_answers_refer_to_the_schema_of_messages(schemas: dict[str, Any]) -> None:
    ref = {"$ref": "#/components/schemas/StoredMessage"}
    for holder in ("SessionDetail", "AgentChatDetail", "MessageList"):
        assert schemas[holder]["properties"]["messages"]["items"] == ref
    assert schemas["ChatResponse"]["properties"]["message"]["anyOf"] == [ref, {"type": "null"}]
    keys: set[str] = set()
    for kind in get_args(Message):
        keys |= kind.__annotations__.keys()
    assert set(schemas["StoredMessage"]["properties"]) == keys - {"key_digest"}


def test_stored_messages_match_the_document(
    tmp_path: Path, private_api: Api, schemas: dict[str, Any], validator: Validator
) -> None:
    api = private_api
    write_tools(
        tmp_path, "__all__ = ['note']\ndef note() -> str:\n    'Note it.'\n    return 'Noted.'\n"
    )
    settings = {"tools": ["note"], "execution_policy": "never_confirm"}
    session_id = api.create_session(
        "mochi", system_prompt="Be brief.", think=True, tool_settings=settings
    )["session_id"]
    answer = api.send_message(session_id, instruct(calls("note"), words(2), reasoning=3))
    messages = api.messages(session_id)
    assert [message["role"] for message in messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    for message in (*messages, answer["message"]):
        validator(schemas["StoredMessage"]).validate(message)
