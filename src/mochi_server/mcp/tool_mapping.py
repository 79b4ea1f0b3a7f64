"""Conversion of MCP tool definitions to ``ToolSchema``."""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import referencing
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from mcp_types import Tool as ListedTool

from mochi_server.tools.execution import shorten
from mochi_server.tools.schema import InvalidArguments, InvalidTool, ToolSchema, inline_references, supported_schema

_MAX_DESCRIPTION_LENGTH = 10_000
_PYTHON_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}


@dataclass(frozen=True)
class McpTool:
    """A tool of an MCP server, with its original name."""

    name: str
    schema: ToolSchema
    read_only: bool


def map_tools(listed: Iterable[ListedTool]) -> tuple[list[McpTool], list[str]]:
    """Convert MCP tools. Return the valid tools, and the problems of invalid tools.

    The conversion takes milliseconds per tool, so run this function in a worker thread.
    """
    usable, problems = [], []
    for tool in listed:
        try:
            usable.append(_map_tool(tool))
        except (InvalidTool, RecursionError) as error:
            problems.append(f"its tool {shorten(tool.name, 100)!r} cannot be used: {error}")
    return usable, problems


def _map_tool(tool: ListedTool) -> McpTool:
    validator = _validator(tool.input_schema)
    inlined = inline_references(tool.input_schema)
    defaults = _required_defaults(validator, inlined)
    required = [name for name in inlined.get("required", ()) if name not in defaults]
    hints = tool.annotations
    schema = ToolSchema(
        name=tool.name,
        description=shorten(tool.description or tool.title or tool.name, _MAX_DESCRIPTION_LENGTH),
        parameters=supported_schema({**inlined, "required": required}, {}),
        overview={
            name: {"type": python_type(node), "description": " ".join(str(node.get("description", "")).split())}
            for name, node in inlined.get("properties", {}).items()
        },
        bind=partial(_bind, validator, defaults),
    )
    read_only = hints is not None and hints.read_only_hint is True and hints.destructive_hint is not True
    return McpTool(tool.name, schema, read_only)


def python_type(node: Mapping[str, Any]) -> str:
    """Return the Python notation of a JSON schema's type, such as ``list[str]``. An unknown type is ``Any``."""
    if "enum" in node or "const" in node:
        return f"Literal[{', '.join(map(repr, node.get('enum', [node.get('const')])))}]"
    if choices := node.get("anyOf") or node.get("oneOf"):
        return " | ".join(dict.fromkeys(map(python_type, choices)))
    kind = node.get("type")
    if isinstance(kind, list):
        return " | ".join(_PYTHON_TYPES.get(str(each), "Any") for each in kind) or "Any"
    if kind == "array" and node.get("items"):
        return f"list[{python_type(node['items'])}]"
    return _PYTHON_TYPES.get(str(kind), "Any")


def _required_defaults(validator: Validator, inlined: dict[str, Any]) -> dict[str, Any]:
    """Return the valid default values of the required arguments by name. They are sent if the model omits them."""
    properties = inlined.get("properties", {})
    nodes = {name: properties[name] for name in inlined.get("required", ()) if "default" in properties.get(name, {})}
    return {
        name: node["default"]
        for name, node in nodes.items()
        if not _errors(validator.evolve(schema=node), node["default"])
    }


def _errors(validator: Validator, value: object) -> list[ValidationError]:
    """Return the errors of a value. A schema with an unresolvable reference accepts every value."""
    try:
        return list(validator.iter_errors(value))
    except Exception:  # the library does not document the type
        return []


def _validator(schema: dict[str, Any]) -> Validator:
    draft = validator_for(schema, default=Draft202012Validator)
    try:
        draft.check_schema(schema)
    except (SchemaError, RecursionError) as error:
        raise InvalidTool("its input schema is not a valid JSON schema") from error
    # Do not evaluate patterns, which could take forever, or fetch external references. The server validates again.
    disabled = {keyword: lambda *_: () for keyword in ("pattern", "patternProperties")}
    validator: Validator = extend(draft, disabled)(schema, registry=referencing.Registry())
    return validator


def _bind(validator: Validator, defaults: dict[str, Any], arguments: Mapping[str, Any]) -> inspect.BoundArguments:
    complete = {**defaults, **arguments}
    if errors := _errors(validator, complete):
        texts = [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]
        raise InvalidArguments("; ".join(text.removeprefix(": ") for text in texts))
    return _SIGNATURE.bind(complete)


_SIGNATURE = inspect.signature(lambda arguments: None)  # noqa: ARG005 - MCP tools take one object
