"""Generation of a valid instance for a JSON schema, deterministic for any schema."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mochi_stub.replies.schema_sample import schema_sample
from tests.stub.validity import problems
from tests.support.cases import cases
from tests.support.lazy import LazyModule

jsonschema = LazyModule("jsonschema")

NODE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
        "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
    },
    "required": ["name", "next"],
}
SCHEMAS: list[Any] = [
    {"type": "string"},
    {"type": "string", "minLength": 80, "maxLength": 90},
    {"type": "string", "maxLength": 3},
    {"type": "string", "minLength": 3.0, "maxLength": 4.0},
    {"type": "string", "pattern": r"^[A-Z]{3}-\d{4}$"},
    {"type": "string", "pattern": r"^(\+\d{1,2}\s)?\(?\d{3}\)?[\s.-]\d{3}[\s.-]\d{4}$"},
    {"type": "string", "pattern": r"^(?:x|(?P<a>y))[^a-z]\w+\W(z{2,3}|q?)*.$"},
    {"type": "string", "pattern": r"^((foo|ba[rz])-?){2,3}$"},
    {"type": "string", "pattern": r"^[^\]a]{3}\\[]\[]a{,2}b{2}c??$"},
    {"type": "string", "pattern": r"(?i)^ab{2,3}[c-e]+$"},
    {"type": "string", "pattern": r"^[éü]\t\u00e9\x41$"},
    {"type": "string", "pattern": "^[A-F0-9]{8}$", "minLength": 3, "maxLength": 20},
    {"enum": ["red", 7, None]},
    {"const": {"a": [1]}},
    {"type": "integer", "minimum": 3, "maximum": 5},
    {"type": "integer", "exclusiveMinimum": 0, "multipleOf": 7},
    {"type": "integer", "maximum": -5},
    {"type": "integer", "minimum": 6, "maximum": 12, "multipleOf": 2.5},
    {"type": "integer", "minimum": 1, "multipleOf": 0.25},
    {"type": "number", "minimum": 1, "multipleOf": 2.5},
    {
        "type": "object",
        "properties": {"key1": {"type": "integer"}},
        "required": ["key1"],
        "minProperties": 3,
    },
    {
        "type": "object",
        "properties": {
            "a": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "b": {"$ref": "#/properties/a/anyOf/0"},
        },
        "required": ["a", "b"],
    },
    {
        "anyOf": [
            {"type": "number", "minimum": 1, "maximum": 2, "multipleOf": 5},
            {"type": "integer", "minimum": 1.2, "maximum": 1.8},
            {"type": "boolean"},
        ]
    },
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    {"type": "number", "minimum": 1000.005, "maximum": 1000.006},
    {"type": "boolean"},
    {"type": "null"},
    {"type": ["null", "integer"]},
    {"type": "array", "items": {"type": "integer"}, "minItems": 4, "maxItems": 4},
    {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 3, "uniqueItems": True},
    {"type": "array", "items": {"type": "string"}, "maxItems": 0},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
    {"type": "object", "additionalProperties": {"type": "number"}, "minProperties": 2},
    {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"]},
    {
        "type": "object",
        "properties": {"a": {}, "b": {}, "c": {}},
        "required": ["c"],
        "maxProperties": 2,
    },
    {
        "allOf": [
            {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]},
            {"required": ["b"]},
        ]
    },
    {
        "allOf": [
            {"$ref": "#/$defs/Base"},
            {
                "properties": {
                    "n": {"minimum": 10, "maximum": 12},
                    "name": {"maxLength": 3},
                    "tags": {"minItems": 4},
                    "never": False,
                }
            },
        ],
        "$defs": {
            "Base": {
                "type": "object",
                "properties": {
                    "n": {"$ref": "#/$defs/Count"},
                    "name": {"type": "string", "minLength": 2, "maxLength": 20},
                    "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                    "never": {"type": "string"},
                },
                "required": ["n", "name", "tags"],
            },
            "Count": {"type": "integer", "minimum": 0, "maximum": 100},
        },
    },
    {
        "type": "integer",
        "minimum": 3,
        "allOf": [{"minimum": 1, "maximum": 5}, {"exclusiveMinimum": 4}],
    },
    {
        "$ref": "#/$defs/Special",
        "$defs": {
            "Text": {"type": "string", "minLength": 2},
            "Base": {
                "type": "object",
                "properties": {"name": {"$ref": "#/$defs/Text"}},
                "required": ["name"],
            },
            "Item": {
                "allOf": [{"$ref": "#/$defs/Base"}],
                "properties": {"name": {"$ref": "#/$defs/Text", "description": "of an item"}},
            },
            "Special": {
                "allOf": [{"$ref": "#/$defs/Item"}],
                "properties": {"name": {"$ref": "#/$defs/Text", "description": "of a special"}},
            },
        },
    },
    {
        "allOf": [
            {"$ref": "#/$defs/Text"},
            {"$ref": "#/$defs/Text", "maxLength": 9},
            {"$ref": "#/$defs/Text", "maxLength": 8},
        ],
        "$defs": {"Text": {"type": "string", "minLength": 2}},
    },
    {
        "allOf": [
            {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 5}},
            {"items": {"maximum": 9}},
        ]
    },
    {
        "allOf": [
            {"additionalProperties": {"type": "integer", "minimum": 5}},
            {"additionalProperties": {"maximum": 9}, "minProperties": 2},
        ]
    },
    {"allOf": [{"enum": ["cat", "dog"]}, {"enum": ["dog"]}]},
    {"enum": ["cat", "dog"], "anyOf": [{"enum": ["bird"]}, {"enum": ["dog", "bird"]}]},
    {"oneOf": [{"type": "integer", "minimum": 5}, {"type": "string"}]},
    {"anyOf": [False, {"type": "string", "minLength": 2}]},
    {"$ref": "#/$defs/Node", "$defs": {"Node": NODE}},
    {
        "properties": {"a": {"$ref": "#/definitions/x~1y"}},
        "definitions": {"x/y": {"type": "integer"}},
    },
    {
        "type": "object",
        "properties": {"deep": {"type": "object", "properties": {"er": {"type": "array"}}}},
    },
]


@cases("schema", SCHEMAS, ids=str)
@cases("seed", range(5))
def test_instance_matches_the_schema(schema: Any, seed: int) -> None:
    made = schema_sample(schema, seed)
    assert problems(schema, made, schema) == []
    assert schema_sample(schema, seed) == made


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": [{"type": "integer"}, {"type": "boolean"}]},
        {"$ref": "#/definitions/List%3Cint%3E", "definitions": {"List<int>": {"type": "integer"}}},
    ],
)
def test_instance_matches_a_schema_of_an_older_draft(schema: Any) -> None:
    jsonschema.Draft7Validator(schema).validate(schema_sample(schema))


def test_another_seed_makes_another_instance() -> None:
    schema = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "number": {"type": "integer"}},
    }
    assert len({str(schema_sample(schema, seed)) for seed in range(20)}) > 10


def test_optional_properties_are_included_in_schema_order() -> None:
    properties = {name: {"type": "integer"} for name in ("zebra", "ant", "mouse")}
    assert list(
        schema_sample({"type": "object", "properties": properties, "required": ["mouse"]})
    ) == [*properties]


@cases("format_", ["date", "date-time", "email", "uuid", "uuid4", "uri", "ipv4"])
def test_string_format_is_kept(format_: str) -> None:
    assert re.fullmatch(r"[\w:/@.-]+", schema_sample({"type": "string", "format": format_}))


@cases(
    "schema",
    [
        {},
        True,
        False,
        None,
        [],
        "text",
        {"$ref": "#"},
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.com/other.json"},
        {"type": "elephant"},
        {"type": 5, "properties": 3},
        {"type": "object", "properties": {"a": 7}, "required": "a"},
        {"type": "string", "pattern": "("},
        {"type": "string", "pattern": r"\p{L}+"},
        {"type": "string", "pattern": r"^(a)(?=b)\1$"},
        {"type": "string", "pattern": "a{99999}"},
        {"type": "string", "minLength": 10**12},
        {"type": "string", "pattern": "^a+$", "minLength": 10**12},
        {"type": "string", "format": ["date"]},
        {"type": "number", "exclusiveMinimum": 1e308, "multipleOf": 0.5},
        {"type": "array", "minItems": 10**12},
        {"type": "integer", "minimum": "x", "maximum": None, "multipleOf": 0},
        {"type": "integer", "minimum": float("nan"), "maximum": float("inf")},
        {"anyOf": []},
        {"enum": []},
    ],
    ids=str,
)
def test_invalid_schema_does_not_crash(schema: Any) -> None:
    schema_sample(schema)


@cases(
    "schema",
    [
        {"type": "integer", "minimum": 5, "maximum": 3},
        {"type": "number", "minimum": 5, "maximum": 3},
        {"type": "number", "minimum": 5, "exclusiveMaximum": 5},
        {"type": "string", "minLength": 5, "maxLength": 3},
        {"type": "string", "minLength": 10**12},
        {"type": "array", "minItems": 2, "maxItems": 1},
        {"type": "object", "minProperties": 2, "maxProperties": 1},
        {"type": "object", "required": ["a", "b"], "maxProperties": 1},
        {"type": "string", "allOf": [False]},
        {"allOf": [{"enum": ["cat"]}, {"enum": ["dog"]}]},
    ],
    ids=str,
)
def test_impossible_alternative_is_not_used(schema: Any) -> None:
    assert schema_sample(schema) == {}
    assert schema_sample({"anyOf": [schema, {"const": "possible"}]}) == "possible"


def test_recursive_schema_ends() -> None:
    endless = {"type": "object", "properties": {"more": {"$ref": "#"}}, "required": ["more"]}
    assert schema_sample(endless) == {}
    wide = {"type": "object", "properties": {str(n): {"$ref": "#"} for n in range(300)}}
    assert schema_sample(wide)
