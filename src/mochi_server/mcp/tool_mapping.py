"""Conversion of MCP tool definitions to ``ToolSchema``."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import referencing
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
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
    bind = _binder(tool.input_schema)
    inlined = inline_references(tool.input_schema)
    hints = tool.annotations
    schema = ToolSchema(
        name=tool.name,
        description=shorten(tool.description or tool.title or tool.name, _MAX_DESCRIPTION_LENGTH),
        parameters=supported_schema(inlined, {}),
        overview={
            name: {"type": python_type(node), "description": " ".join(str(node.get("description", "")).split())}
            for name, node in inlined.get("properties", {}).items()
        },
        bind=bind,
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


def _binder(schema: dict[str, Any]) -> Callable[[Mapping[str, Any]], inspect.BoundArguments]:
    draft = validator_for(schema, default=Draft202012Validator)
    try:
        draft.check_schema(schema)
    except (SchemaError, RecursionError) as error:
        raise InvalidTool("its input schema is not a valid JSON schema") from error
    # Do not evaluate patterns, which could take forever, or fetch external references. The server validates again.
    disabled = {keyword: lambda *_: () for keyword in ("pattern", "patternProperties")}
    validator = extend(draft, disabled)(schema, registry=referencing.Registry())

    def bind(arguments: Mapping[str, Any]) -> inspect.BoundArguments:
        try:
            errors = list(validator.iter_errors(dict(arguments)))
        except Exception:  # the schema has an unresolvable reference
            errors = []
        if errors:
            texts = [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]
            raise InvalidArguments("; ".join(text.removeprefix(": ") for text in texts))
        return _SIGNATURE.bind(dict(arguments))

    return bind


_SIGNATURE = inspect.signature(lambda arguments: None)  # noqa: ARG005 - MCP tools take one object
