"""Conversion of MCP tools to ``ToolSchema``, and of their results to text and images."""

import inspect
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import mcp_types
import referencing
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from pydantic_core import to_json

from mochi_server.constants import MAX_IMAGES
from mochi_server.sessions.images import Image
from mochi_server.tools.execution import ToolContent, shorten
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


def map_tools(listed: Iterable[mcp_types.Tool]) -> tuple[list[McpTool], list[str]]:
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


def _map_tool(tool: mcp_types.Tool) -> McpTool:
    validator = _validator(tool.input_schema)
    inlined = inline_references(tool.input_schema)
    completed = _with_defaults(inlined, validator)
    hints = tool.annotations
    schema = ToolSchema(
        name=tool.name,
        description=shorten(tool.description or tool.title or tool.name, _MAX_DESCRIPTION_LENGTH),
        parameters=supported_schema(completed, {}),
        overview={
            name: {"type": python_type(node), "description": " ".join(str(node.get("description", "")).split())}
            for name, node in inlined.get("properties", {}).items()
        },
        bind=partial(_bind, validator, completed),
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


def _with_defaults(node: Mapping[str, Any], validator: Validator) -> dict[str, Any]:
    """Return a schema in which required properties with a valid default value are optional.

    Each object schema in the result has these values under the key ``defaults``.
    """
    result = {key: value for key, value in node.items() if key != "defaults"}
    if "items" in node:
        result["items"] = _with_defaults(node["items"], validator)
    if "properties" in node:
        properties = {name: _with_defaults(each, validator) for name, each in node["properties"].items()}
        result["properties"] = properties
        if isinstance(required := node.get("required"), list):  # a boolean in old drafts
            result["defaults"] = defaults = {
                name: each["default"]
                for name in required
                if "default" in (each := properties.get(name, {}))
                and not _errors(validator.evolve(schema=each), each["default"])
            }
            result["required"] = [name for name in required if name not in defaults]
    return result


def _complete(node: Mapping[str, Any], value: Any) -> Any:
    """Return a value with the defaults of its schema, which is a result of ``_with_defaults``."""
    if isinstance(value, list):
        return [_complete(node.get("items", {}), each) for each in value]
    if isinstance(value, dict):
        properties = node.get("properties", {})
        values = {**node.get("defaults", {}), **value}
        return {name: _complete(properties.get(name, {}), each) for name, each in values.items()}
    return value


def _errors(validator: Validator, value: object) -> list[ValidationError]:
    """Return the errors of a value. A schema with an unresolvable reference accepts every value."""
    try:
        return list(validator.iter_errors(value))
    except Exception:  # the library does not document the type
        return []


def _validator(schema: dict[str, Any]) -> Validator:
    draft = validator_for(schema, default=Draft202012Validator)
    try:
        # No formats are checked, because the check of `regex` rejects JavaScript patterns that Python does not support.
        draft.check_schema(schema, format_checker=FormatChecker(()))
    except (SchemaError, RecursionError) as error:
        raise InvalidTool("its input schema is not a valid JSON schema") from error
    # Do not evaluate patterns, which could take forever, or fetch external references. The MCP server validates too.
    disabled = {keyword: lambda *_: () for keyword in ("pattern", "patternProperties")}
    validator: Validator = extend(draft, disabled)(schema, registry=referencing.Registry())
    return validator


def _bind(validator: Validator, node: Mapping[str, Any], arguments: Mapping[str, Any]) -> inspect.BoundArguments:
    complete = _complete(node, dict(arguments))
    if errors := _errors(validator, complete):
        texts = [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]
        raise InvalidArguments("; ".join(text.removeprefix(": ") for text in texts))
    return _SIGNATURE.bind(complete)


_SIGNATURE = inspect.signature(lambda arguments: None)  # noqa: ARG005 - MCP tools take one object


def content_of(result: mcp_types.CallToolResult) -> ToolContent:
    """Return a tool result for a model, with at most ``MAX_IMAGES`` images.

    Audio, other binary data, invalid images, the images after the limit and the images of a failed call are replaced
    by a description.
    """
    images: list[Image] = []
    limit = 0 if result.is_error else MAX_IMAGES
    text = "\n".join(_text_of(block, images, limit) for block in result.content)
    if not text and result.structured_content is not None:
        text = to_json(result.structured_content, fallback=str).decode()
    empty = "it reported an error without a message" if result.is_error else "Done; there is no result."
    return ToolContent(text or empty, tuple(images))


def _text_of(block: mcp_types.ContentBlock, images: list[Image], limit: int) -> str:
    """Return the text or the description of a content block.

    Add its image, if it has one, to ``images``, unless there are already ``limit`` images.
    """
    if isinstance(block, mcp_types.TextContent):
        return block.text
    if isinstance(block, mcp_types.ImageContent | mcp_types.AudioContent):
        return _describe(block.type, block.mime_type, block.data, images, limit)
    if isinstance(block, mcp_types.ResourceLink):
        return f"[resource {block.name}: {block.uri}]"
    if isinstance(block, mcp_types.EmbeddedResource):
        resource = block.resource
        if isinstance(resource, mcp_types.TextResourceContents):
            return f"[resource {resource.uri}]\n{resource.text}"
        return _describe(f"resource {resource.uri}", resource.mime_type or "binary", resource.blob, images, limit)
    return f"[{getattr(block, 'type', 'content')}: not shown]"


def _describe(name: str, mime_type: str, base64: str, images: list[Image], limit: int) -> str:
    size = f"{len(base64.rstrip('=')) * 3 // 4:,} bytes"
    try:
        if mime_type.startswith("image/") and len(images) < limit:
            images.append(Image.of(b64decode(base64, validate=True)))
            return f"[{name}, {images[-1].media_type}, {size}: image {len(images)} of this result]"
    except ValueError:  # invalid base64, or a format that models cannot read
        pass
    return f"[{name}, {mime_type}, {size}: not shown]"
