"""Validator of JSON schemas for tests, independent of the code that generates instances."""

from __future__ import annotations

import re
from typing import Any

TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def problems(schema: Any, value: Any, root: Any) -> list[str]:
    """Return the problems of a value; empty if it is valid."""
    if isinstance(schema, bool):
        return [] if schema else [f"nothing is allowed, got {value!r}"]
    found = _references(schema, value, root)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_has_type(value, kind) for kind in kinds):
        found.append(f"{value!r} is none of {kinds}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{value!r} is none of {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        found.append(f"{value!r} is not {schema['const']}")
    if isinstance(value, dict):
        found += _object_problems(schema, value, root)
    elif isinstance(value, list):
        found += _array_problems(schema, value, root)
    elif isinstance(value, str):
        found += _string_problems(schema, value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        found += _number_problems(schema, value)
    return found


def _references(schema: Any, value: Any, root: Any) -> list[str]:
    found = []
    if "$ref" in schema:
        target = root
        for step in schema["$ref"].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            target = target[int(key)] if isinstance(target, list) else target[key]
        found += problems(target, value, root)
    for part in schema.get("allOf", []):
        found += problems(part, value, root)
    for key in ("anyOf", "oneOf"):
        if key in schema and all(problems(part, value, root) for part in schema[key]):
            found.append(f"{value!r} is none of {key}")
    return found


def _has_type(value: Any, kind: str) -> bool:
    return isinstance(value, TYPES[kind]) and not (
        isinstance(value, bool) and kind in ("integer", "number")
    )


def _object_problems(schema: Any, value: dict[str, Any], root: Any) -> list[str]:
    found = [f"{name} is missing" for name in schema.get("required", []) if name not in value]
    if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
        found.append(f"{len(value)} properties")
    for name, item in value.items():
        found += problems(
            schema.get("properties", {}).get(name, schema.get("additionalProperties", True)),
            item,
            root,
        )
    return found


def _array_problems(schema: Any, value: list[Any], root: Any) -> list[str]:
    found = []
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        found.append(f"{len(value)} items")
    if schema.get("uniqueItems") and any(item in value[:index] for index, item in enumerate(value)):
        found.append("items are equal")
    first = schema.get("prefixItems", [])
    for index, item in enumerate(value):
        found += problems(
            first[index] if index < len(first) else schema.get("items", True), item, root
        )
    return found


def _string_problems(schema: Any, value: str) -> list[str]:
    found = [] if re.search(schema.get("pattern", ""), value) else [f"{value!r} does not match"]
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        found.append(f"{len(value)} characters")
    return found


def _number_problems(schema: Any, value: float) -> list[str]:
    fits = [
        value >= schema.get("minimum", value),
        value <= schema.get("maximum", value),
        "exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"],
        "exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"],
        "multipleOf" not in schema or value % schema["multipleOf"] == 0,
    ]
    return [] if all(fits) else [f"{value} is out of bounds"]
