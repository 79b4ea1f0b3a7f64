"""Tool schemas that Ollama refuses, with Go's messages, and those that it accepts.

The partial captures contain further cases. The expected messages of this file follow from Go's
rules for JSON.
"""

from __future__ import annotations

from typing import Any

import pytest

from mochi_stub import StubServer
from tests.stub.requests import RawResponse, send_message
from tests.support.cases import cases

NO_OBJECT = "Value looks like object, but can't find closing '}' symbol"
PARAMETERS = "ToolFunctionParameters.tools.function.parameters"
PROPERTY = f"{PARAMETERS}.properties"


def offer(stub: StubServer, tool: Any) -> RawResponse:
    return send_message(stub, "hello", tools=[tool], stream=False)


def with_property(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"type": "string"}, "b": schema}}


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        (5, "number into Go struct field ChatRequest.tools of type api.Tool"),
        (
            {"function": {"name": []}},
            "array into Go struct field ToolFunction.tools.function.name of type string",
        ),
    ],
)
def test_tool_of_a_wrong_type_is_refused(stub: StubServer, tool: Any, text: str) -> None:
    refused = offer(stub, tool)
    assert (refused.status, refused.json) == (400, {"error": f"json: cannot unmarshal {text}"})


@cases(
    ("parameters", "found", "place"),
    [
        ({"type": ["object"]}, "array", f"{PARAMETERS}.type of type string"),
        ({"required": True}, "bool", f"{PARAMETERS}.required of type []string"),
        ({"required": [1]}, "number", f"{PARAMETERS}.required of type string"),
        (with_property(True), "bool", f"{PROPERTY} of type api.ToolProperty"),
        (with_property({"type": [5]}), "number", f"{PROPERTY}.type of type string"),
        (with_property({"description": ["y"]}), "array", f"{PROPERTY}.description of type string"),
        (with_property({"anyOf": [True]}), "bool", f"{PROPERTY}.anyOf of type api.ToolProperty"),
        (with_property({"required": True}), "bool", f"{PROPERTY}.required of type []string"),
        (
            with_property(with_property(False)),
            "bool",
            f"{PROPERTY}.properties of type api.ToolProperty",
        ),
        (
            with_property(with_property({"type": 5})),
            "number",
            f"{PROPERTY}.properties.type of type []string",
        ),
    ],
)
def test_schema_of_a_wrong_type_is_refused(
    stub: StubServer, parameters: Any, found: str, place: str
) -> None:
    refused = offer(stub, {"type": "function", "function": {"name": "x", "parameters": parameters}})
    assert (refused.status, refused.json) == (
        400,
        {"error": f"json: cannot unmarshal {found} into Go struct field {place}"},
    )


@cases("properties", [[], "y", True])
def test_properties_that_are_no_object_are_refused(stub: StubServer, properties: Any) -> None:
    refused = offer(stub, {"function": {"name": "x", "parameters": {"properties": properties}}})
    assert (refused.status, refused.json) == (400, {"error": NO_OBJECT})


@cases(
    "parameters",
    [
        None,
        {},
        {"$defs": True, "items": 5, "additionalProperties": 5, "title": []},
        with_property(None),
        with_property(
            {"type": ["string", "null"], "enum": [1, "a", None], "items": True, "default": 5}
        ),
        with_property({"anyOf": [{"type": "string"}, {"type": "object", "properties": {}}]}),
    ],
)
def test_other_schemas_are_accepted(stub: StubServer, parameters: Any) -> None:
    assert (
        offer(
            stub, {"type": "function", "function": {"name": "x", "parameters": parameters}}
        ).status
        == 200
    )
