"""MCP tool schemas: the form for models and clients, and validation of arguments."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from mochi_server.constants import MAX_IMAGES
from mochi_server.mcp.tool_mapping import McpTool, content_of, map_tools
from mochi_server.tools.schema import InvalidArguments
from mochi_server.util.schema_checks import SchemaChecks
from tests.mcp.patient_server import forked_checks
from tests.support.cases import cases
from tests.support.images import PNG as DOT
from tests.support.images import base64_image
from tests.support.lazy import LazyModule

if TYPE_CHECKING:
    import mcp_types
else:  # only the worker that runs these tests imports the SDK
    mcp_types = LazyModule("mcp_types")

PNG = base64_image(DOT)
M = {"type": "integer", "default": 5}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True)
class Mapper:
    """Conversion of MCP tools, with the workers of the module."""

    checks: SchemaChecks

    async def tools(self, tools: list[mcp_types.Tool]) -> tuple[list[McpTool], list[str]]:
        return await map_tools(tools, self.checks)

    async def tool(self, **schema: Any) -> McpTool:
        (usable,), problems = await self.tools(
            [mcp_types.Tool(name="tool", input_schema={"type": "object", **schema})]
        )
        assert problems == []
        return usable


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mapper() -> AsyncIterator[Mapper]:
    """Conversion of MCP tools."""
    checks = forked_checks()
    yield Mapper(checks)
    await checks.aclose()


@cases(
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
async def test_types_are_shown_as_python_writes_them(mapper: Mapper, node: Any, name: str) -> None:
    tool = await mapper.tool(
        properties={"first": {"type": "string"}, "value": node},
        **{"$defs": {"Place": {"type": "object"}}},
    )
    assert tool.schema.overview["value"] == {"type": name, "description": ""}


async def test_models_get_a_schema_with_references_in_place(mapper: Mapper) -> None:
    tool = await mapper.tool(
        properties={
            "at": {"$ref": "#/definitions/Place", "description": "Where"},
            "up": {"$ref": "#/properties/at"},
        },
        definitions={
            "Place": {
                "type": "object",
                "properties": {"in": {"$ref": "#/definitions/Place"}, "x": {"type": "integer"}},
            }
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


async def test_models_get_the_definition_of_an_anchor(mapper: Mapper) -> None:
    tool = await mapper.tool(
        properties={"home": {"$ref": "#address"}, "work": {"$ref": "#unknown"}},
        **{"$defs": {"Address": {"$anchor": "address", "type": "string"}}},
    )
    assert tool.schema.parameters["properties"] == {"home": {"type": "string"}, "work": {}}


async def test_models_get_the_joined_parts_of_a_parameter(mapper: Mapper) -> None:
    tool = await mapper.tool(
        properties={
            "unit": {"allOf": [{"$ref": "#/$defs/Unit"}], "default": "c", "description": "Of it"},
            "where": {
                "allOf": [
                    {"$ref": "#/$defs/Place"},
                    {"properties": {"floor": {"type": "integer"}}, "required": ["floor"]},
                ],
                "properties": {"room": {"type": "string"}, "city": {"description": "Large"}},
            },
        },
        **{
            "$defs": {
                "Unit": {"type": "string", "enum": ["c", "f"]},
                "Place": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                },
            }
        },
    )
    assert tool.schema.parameters["properties"] == {
        "unit": {"type": "string", "enum": ["c", "f"], "description": "Of it (default: c)"},
        "where": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Large"},
                "floor": {"type": "integer"},
                "room": {"type": "string"},
            },
            "required": ["city", "floor"],
        },
    }
    assert tool.schema.overview["unit"]["type"] == "Literal['c', 'f']"


async def test_arguments_are_checked_against_the_servers_schema(mapper: Mapper) -> None:
    tool = await mapper.tool(
        properties={"day": {"enum": ["today"]}}, required=["day"], additionalProperties=False
    )
    assert (await tool.schema.bind({"day": "today"})).args == ({"day": "today"},)
    with pytest.raises(InvalidArguments, match="'day' is a required property"):
        await tool.schema.bind({})
    with pytest.raises(InvalidArguments, match="day: 'never' is not one of"):
        await tool.schema.bind({"day": "never"})
    with pytest.raises(InvalidArguments, match="Additional properties"):
        await tool.schema.bind({"day": "today", "hour": 1})


@cases(
    ("node", "sent", "bound"),
    [
        ({"type": "integer"}, "7", 7),
        ({"type": "number"}, "-1.5", -1.5),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "False", False),
        ({"type": ["integer", "null"]}, "7", 7),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
        ({"oneOf": [{"type": "boolean"}, {"$ref": "#/$defs/Small"}]}, "7", 7),
        ({"enum": [1, 2]}, "2", 2),
        ({"const": 3}, "3", 3),
        ({"type": "array", "items": {"type": "integer"}}, '["1", 2]', [1, 2]),
        ({"type": "array", "items": {"type": "integer"}}, ["1", "2"], [1, 2]),
        ({"type": "object"}, '{"a": "1"}', {"a": "1"}),
        ({"$ref": "#/$defs/Size"}, '{"width": "7"}', {"width": 7}),
    ],
)
async def test_text_is_converted_where_the_schema_excludes_it(
    mapper: Mapper, node: Any, sent: Any, bound: Any
) -> None:
    size = {"type": "object", "properties": {"width": {"type": "integer"}}}
    tool = await mapper.tool(
        properties={"a": node},
        **{"$defs": {"Size": size, "Small": {"type": "integer", "maximum": 9}}},
    )
    arguments = {"a": sent}
    (result,) = (await tool.schema.bind(arguments)).args
    assert result == {"a": bound}
    assert type(result["a"]) is type(bound)
    assert arguments == {"a": sent}  # the conversation keeps what the model has sent


@cases(
    ("node", "sent"),
    [
        ({"type": "string"}, "7"),
        ({}, "7"),
        ({"type": ["integer", "string"]}, "7"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "[1]"),
        ({"enum": ["7", 8]}, "7"),
    ],
)
async def test_text_that_the_schema_accepts_stays_text(
    mapper: Mapper, node: Any, sent: str
) -> None:
    tool = await mapper.tool(properties={"a": node})
    assert (await tool.schema.bind({"a": sent})).args == ({"a": sent},)


@cases(
    ("node", "sent", "problem"),
    [
        ({"type": "integer"}, "seven", "a: 'seven' is not of type 'integer'"),
        ({"type": "integer"}, '"7"', "is not of type 'integer'"),
        ({"type": "number"}, "NaN", "a: 'NaN' is not of type 'number'"),
        ({"type": "number"}, "9" * 5000, "a: '9999"),
        ({"type": "array"}, "[" * 200 + "]" * 200, "is not of type 'array'"),
        ({"type": "array"}, "[" * 100_000, "a: '[[[["),
        ({"anyOf": [{"type": "string", "maxLength": 1}, {"type": "integer"}]}, "77", "a: '77' is"),
    ],
)
async def test_text_that_is_no_value_is_refused_as_it_was_sent(
    mapper: Mapper, node: Any, sent: str, problem: str
) -> None:
    tool = await mapper.tool(properties={"a": node})
    with pytest.raises(InvalidArguments, match=re.escape(problem)):
        await tool.schema.bind({"a": sent})


async def test_patterns_and_references_cannot_stall_validation(mapper: Mapper) -> None:
    evil = await mapper.tool(properties={"a": {"type": "string", "pattern": "^(a+)+$"}})
    before = time.process_time()
    await evil.schema.bind({"a": "a" * 40 + "!"})
    assert time.process_time() - before < 1
    tool = await mapper.tool(properties={"a": {"$ref": "http://127.0.0.1:9/a"}})
    await tool.schema.bind({"a": 1})


@pytest.mark.parametrize("pattern", [r"^\p{L}+$", r"^(?<year>\d{4})$"])
async def test_javascript_pattern_is_no_problem(mapper: Mapper, pattern: str) -> None:
    name = {"type": "string", "pattern": pattern}
    tool = await mapper.tool(
        properties={"a": name, "b": {"type": "object", "patternProperties": {pattern: {}}}}
    )
    assert (await tool.schema.bind({"a": "x", "b": {}})).args == ({"a": "x", "b": {}},)


async def test_result_has_at_most_as_many_images_as_a_message() -> None:
    image, broken = (
        mcp_types.ImageContent(type="image", data=data, mime_type="image/png")
        for data in (PNG, "no base64")
    )
    content = content_of(mcp_types.CallToolResult(content=[broken, *[image] * (MAX_IMAGES + 1)]))
    first, *others, last = content.text.splitlines()
    assert (len(content.images), len(others)) == (MAX_IMAGES, MAX_IMAGES)
    assert first == "[image, image/png, 6 bytes: not shown]"
    assert others[-1] == f"[image, image/png, 70 bytes: image {MAX_IMAGES} of this result]"
    assert last == "[image, image/png, 70 bytes: not shown]"


async def test_defaults_of_required_arguments_are_sent(mapper: Mapper) -> None:
    tool = await mapper.tool(
        properties={"n": {"type": "integer"}, "m": {"$ref": "#/$defs/M"}},
        required=["n", "m"],
        **{"$defs": {"M": M}},
    )
    assert tool.schema.parameters["required"] == ["n"]
    assert (await tool.schema.bind({"n": 1})).args == ({"n": 1, "m": 5},)
    with pytest.raises(InvalidArguments, match="'n' is a required property"):
        await tool.schema.bind({})


async def test_schema_of_an_old_draft_is_usable(mapper: Mapper) -> None:
    place = {
        "type": "object",
        "properties": {"x": {"type": "integer", "required": True}},
        "required": True,
        "allOf": [{"description": "Where"}],
    }
    unit = {"type": ["string", {"type": "integer"}], "required": False, "description": "Of it"}
    tool = await mapper.tool(
        properties={"place": place, "unit": unit},
        **{"$schema": "http://json-schema.org/draft-03/schema#"},
    )
    with pytest.raises(InvalidArguments):
        await tool.schema.bind({})
    assert tool.schema.parameters == {
        "type": "object",
        "properties": {
            "place": {
                "type": "object",
                "properties": {"x": {"type": "integer"}},
                "required": ["x"],
                "description": "Where",
            },
            "unit": {"description": "Of it"},
        },
        "required": ["place"],
    }


async def test_invalid_or_too_large_schema_is_a_problem_of_its_tool(mapper: Mapper) -> None:
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
    usable, problems = await mapper.tools(
        [mcp_types.Tool(name=f"t{n}", input_schema=schema) for n, schema in enumerate(schemas)]
    )
    assert [tool.name for tool in usable] == ["t3"]
    assert problems == [
        "its tool 't0' cannot be used: its input schema is not a valid JSON schema",
        "its tool 't1' cannot be used: its schema is too large",
        "its tool 't2' cannot be used: its schema is too large",
    ]


@pytest.mark.parametrize("draft", ["draft-04/schema#", "draft-07/schema#"])
async def test_ids_in_the_data_of_a_schema_have_no_meaning(mapper: Mapper, draft: str) -> None:
    data = {"id": 5, "$id": 5}
    tool = await mapper.tool(
        properties={"at": {"type": "object", "default": data, "enum": [data]}},
        **{"$schema": f"http://json-schema.org/{draft}"},
    )
    assert (await tool.schema.bind({"at": data})).args == ({"at": data},)


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": 5},
        {"$schema": ["http://json-schema.org/draft-07/schema#"]},
        {"$id": 5},
        {"properties": {"a": {"$id": 5}}},
    ],
    ids=str,
)
async def test_schema_whose_id_is_no_text_is_invalid(
    mapper: Mapper, schema: dict[str, Any]
) -> None:
    usable, problems = await mapper.tools(
        [mcp_types.Tool(name="bad", input_schema={"type": "object", **schema})]
    )
    assert usable == []
    assert problems == [
        "its tool 'bad' cannot be used: its input schema is not a valid JSON schema"
    ]


@cases(
    ("keyword", "schema"),
    [
        ("description", {"type": "string", "description": None}),
        ("properties", {"type": "object", "properties": ["x"]}),
        ("prefixItems", {"items": {"prefixItems": 1}}),
        ("anyOf", {"anyOf": {"type": "string"}}),
        ("oneOf", {"oneOf": "string"}),
        ("allOf", {"allOf": None}),
        ("enum", {"enum": "x"}),
        ("type", {"type": 5}),
        ("type", {"type": ["string", 5]}),
        ("required", {"required": "x"}),
        ("required", {"required": ["x", 5]}),
    ],
)
async def test_malformed_target_of_a_reference_is_a_problem_of_its_tool(
    mapper: Mapper, keyword: str, schema: dict[str, Any]
) -> None:
    malformed = {
        "type": "object",
        "properties": {"a": {"$ref": "#/components/A"}},
        "components": {"A": schema},
    }
    usable, problems = await mapper.tools(
        [
            mcp_types.Tool(name="bad", input_schema=malformed),
            mcp_types.Tool(name="good", input_schema={"type": "object"}),
        ]
    )
    assert [tool.name for tool in usable] == ["good"]
    reason = f"the keyword {keyword!r} of its schema is invalid"
    assert problems == [f"its tool 'bad' cannot be used: {reason}"]


async def test_malformed_keyword_of_a_later_draft_is_a_problem_of_its_tool(mapper: Mapper) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {"type": "array", "prefixItems": True}},
    }
    usable, problems = await mapper.tools([mcp_types.Tool(name="bad", input_schema=schema)])
    assert usable == []
    assert problems == [
        "its tool 'bad' cannot be used: the keyword 'prefixItems' of its schema is invalid"
    ]


@cases(
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
async def test_tool_is_read_only_if_its_hints_say_only_that(
    mapper: Mapper, hints: dict[str, Any] | None, read_only: bool
) -> None:
    annotations = None if hints is None else mcp_types.ToolAnnotations(**hints)
    (tool,), _ = await mapper.tools(
        [
            mcp_types.Tool(
                name="tool",
                title="A tool",
                input_schema={"type": "object"},
                annotations=annotations,
            )
        ]
    )
    assert (tool.read_only, tool.schema.description) == (read_only, "A tool")
