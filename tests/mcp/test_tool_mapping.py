"""MCP tool schemas: the form for models and clients, and validation of arguments."""

import time
from typing import TYPE_CHECKING, Any

import pytest

from mochi_server.constants import MAX_IMAGES
from mochi_server.tools.schema import InvalidArguments
from tests.support.images import PNG as DOT
from tests.support.images import base64_image

if TYPE_CHECKING:
    from mochi_server.mcp.tool_mapping import McpTool

PNG = base64_image(DOT)
M = {"type": "integer", "default": 5}


def mapped_tool(**schema: Any) -> "McpTool":
    from mcp_types import Tool

    from mochi_server.mcp.tool_mapping import map_tools

    (usable,), problems = map_tools([Tool(name="tool", input_schema={"type": "object", **schema})])
    assert problems == []
    return usable


@pytest.mark.parametrize(
    ("node", "name"),
    [
        ({"type": "string"}, "str"),
        ({"type": "array", "items": {"type": "integer"}}, "list[int]"),
        ({"type": "array", "items": True}, "list"),
        ({"type": ["number", "null"]}, "float | None"),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "bool | None"),
        ({"enum": ["a", 1]}, "Literal['a', 1]"),
        ({"const": "a"}, "Literal['a']"),
        ({"$ref": "#/$defs/Place"}, "dict"),
        ({"$ref": "#/properties/first"}, "str"),
        ({"$ref": "#"}, "dict"),
        ({"$ref": "https://example.com/schema.json"}, "Any"),
        (True, "Any"),
        ({}, "Any"),
    ],
)
def test_types_are_shown_as_python_writes_them(node: Any, name: str) -> None:
    tool = mapped_tool(
        properties={"first": {"type": "string"}, "value": node}, **{"$defs": {"Place": {"type": "object"}}}
    )
    assert tool.schema.overview["value"] == {"type": name, "description": ""}


def test_models_get_a_schema_with_references_in_place() -> None:
    tool = mapped_tool(
        properties={"at": {"$ref": "#/definitions/Place", "description": "Where"}, "up": {"$ref": "#/properties/at"}},
        definitions={
            "Place": {"type": "object", "properties": {"in": {"$ref": "#/definitions/Place"}, "x": {"type": "integer"}}}
        },
        required=["at"],
    )
    place = {
        "type": "object",
        "properties": {"in": {"type": "object"}, "x": {"type": "integer"}},
        "description": "Where",
    }
    assert tool.schema.parameters == {
        "type": "object",
        "properties": {"at": place, "up": place},
        "required": ["at"],
    }


def test_arguments_are_checked_against_the_servers_schema() -> None:
    tool = mapped_tool(properties={"day": {"enum": ["today"]}}, required=["day"], additionalProperties=False)
    assert tool.schema.bind({"day": "today"}).args == ({"day": "today"},)
    with pytest.raises(InvalidArguments, match="'day' is a required property"):
        tool.schema.bind({})
    with pytest.raises(InvalidArguments, match="day: 'never' is not one of"):
        tool.schema.bind({"day": "never"})
    with pytest.raises(InvalidArguments, match="Additional properties"):
        tool.schema.bind({"day": "today", "hour": 1})


def test_patterns_and_references_cannot_stall_validation() -> None:
    evil = mapped_tool(properties={"a": {"type": "string", "pattern": "^(a+)+$"}})
    before = time.process_time()
    evil.schema.bind({"a": "a" * 40 + "!"})
    assert time.process_time() - before < 1
    mapped_tool(properties={"a": {"$ref": "http://127.0.0.1:9/a"}}).schema.bind({"a": 1})


@pytest.mark.parametrize("pattern", [r"^\p{L}+$", r"^(?<year>\d{4})$"])
def test_javascript_pattern_is_no_problem(pattern: str) -> None:
    name = {"type": "string", "pattern": pattern}
    tool = mapped_tool(properties={"a": name, "b": {"type": "object", "patternProperties": {pattern: {}}}})
    assert tool.schema.bind({"a": "x", "b": {}}).args == ({"a": "x", "b": {}},)


def test_result_has_at_most_as_many_images_as_a_message() -> None:
    from mcp_types import CallToolResult, ImageContent

    from mochi_server.mcp.tool_mapping import content_of

    image, broken = (ImageContent(type="image", data=data, mime_type="image/png") for data in (PNG, "no base64"))
    content = content_of(CallToolResult(content=[broken, *[image] * (MAX_IMAGES + 1)]))
    first, *others, last = content.text.splitlines()
    assert (len(content.images), len(others)) == (MAX_IMAGES, MAX_IMAGES)
    assert first == "[image, image/png, 6 bytes: not shown]"
    assert others[-1] == f"[image, image/png, 70 bytes: image {MAX_IMAGES} of this result]"
    assert last == "[image, image/png, 70 bytes: not shown]"


def test_defaults_that_their_schema_rejects_are_not_sent() -> None:
    number = {"type": "integer", "default": "many"}
    tool = mapped_tool(properties={"n": number, "m": {"$ref": "#/$defs/M"}}, required=["n", "m"], **{"$defs": {"M": M}})
    assert tool.schema.parameters["required"] == ["n"]
    assert tool.schema.bind({"n": 1}).args == ({"n": 1, "m": 5},)
    with pytest.raises(InvalidArguments, match="'n' is a required property"):
        tool.schema.bind({})


def test_defaults_of_nested_arguments_are_sent() -> None:
    page = {"type": "object", "properties": {"size": M, "at": {"type": "integer"}}, "required": ["size", "at"]}
    filters = {"type": "array", "items": {"type": "object", "properties": {"m": M}, "required": ["m"]}}
    options = {"type": "object", "properties": {"m": M}, "required": ["m"], "default": {}}
    properties = {"page": page, "filters": filters, "options": options}
    tool = mapped_tool(properties=properties, required=["page", "options"])
    assert tool.schema.parameters["required"] == ["page"]
    assert tool.schema.parameters["properties"]["page"]["required"] == ["at"]
    bound = tool.schema.bind({"page": {"at": 1}, "filters": [{}, {"m": 2}]})
    assert bound.args == ({"page": {"at": 1, "size": 5}, "filters": [{"m": 5}, {"m": 2}], "options": {"m": 5}},)
    with pytest.raises(InvalidArguments, match="page: 'at' is a required property"):
        tool.schema.bind({"page": {}})


def test_schema_of_an_old_draft_is_usable() -> None:
    place = {"type": "object", "properties": {"x": {"type": "integer", "required": True}}, "required": True}
    tool = mapped_tool(properties={"place": place}, **{"$schema": "http://json-schema.org/draft-03/schema#"})
    with pytest.raises(InvalidArguments):
        tool.schema.bind({})


def test_invalid_or_too_large_schema_is_a_problem_of_its_tool() -> None:
    from mcp_types import Tool

    from mochi_server.mcp.tool_mapping import map_tools

    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    doubling = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    schemas: list[dict[str, Any]] = [
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"a": deep}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": doubling},
        {"type": "object"},
    ]
    usable, problems = map_tools([Tool(name=f"t{n}", input_schema=schema) for n, schema in enumerate(schemas)])
    assert [tool.name for tool in usable] == ["t3"]
    assert problems == [
        "its tool 't0' cannot be used: its input schema is not a valid JSON schema",
        "its tool 't1' cannot be used: its schema is too large",
        "its tool 't2' cannot be used: its schema is too large",
    ]


@pytest.mark.parametrize(
    ("hints", "read_only"),
    [
        (None, False),
        ({}, False),
        ({"destructive_hint": False}, False),
        ({"read_only_hint": True}, True),
        ({"read_only_hint": True, "destructive_hint": True}, False),
    ],
    ids=str,
)
def test_tool_is_read_only_if_its_hints_say_only_that(hints: dict[str, Any] | None, read_only: bool) -> None:
    from mcp_types import Tool, ToolAnnotations

    from mochi_server.mcp.tool_mapping import map_tools

    annotations = None if hints is None else ToolAnnotations(**hints)
    (tool,), _ = map_tools(
        [Tool(name="tool", title="A tool", input_schema={"type": "object"}, annotations=annotations)]
    )
    assert (tool.read_only, tool.schema.description) == (read_only, "A tool")
