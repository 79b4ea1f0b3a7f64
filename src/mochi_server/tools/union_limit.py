"""Limit of the work for arguments of recursive union types. Pydantic tries each member of a union at each level."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

_MAX_ATTEMPTS = 50_000


def is_too_ambiguous(schema: Mapping[str, Any], value: object) -> bool:
    """Return whether pydantic would compare parts of ``value`` more than 50,000 times with parts of its schema."""
    return "$defs" in schema and next(islice(_attempts(schema, schema, value), _MAX_ATTEMPTS, None), None) is not None


def _attempts(root: Mapping[str, Any], node: Any, value: Any) -> Iterator[bool]:
    """Yield True for each comparison of a part of ``value`` with a part of its schema."""
    yield True
    if not isinstance(node, Mapping):
        return
    if "$ref" in node:  # pydantic refers only to definitions
        node = root["$defs"][node["$ref"].rpartition("/")[2]]
    for choice in _choices(node, value):
        yield from _attempts(root, choice, value)
    if isinstance(value, dict):
        properties, others = node.get("properties", {}), node.get("additionalProperties")
        for name, each in value.items():
            yield from _attempts(root, properties.get(name, others), each)
    if isinstance(value, list):
        first = node.get("prefixItems", ())
        for index, each in enumerate(value):
            yield from _attempts(root, first[index] if index < len(first) else node.get("items"), each)


def _choices(node: Mapping[str, Any], value: Any) -> list[Any]:
    """Return the schemas of the members of a union that pydantic tries for a value."""
    if "discriminator" not in node:
        return [*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())]
    kind = value.get(node["discriminator"]["propertyName"]) if isinstance(value, dict) else None
    target = node["discriminator"].get("mapping", {}).get(kind) if isinstance(kind, str) else None
    return [{"$ref": target}] if target else []
