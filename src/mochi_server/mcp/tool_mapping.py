"""Conversion of MCP tools to ``ToolSchema``, and of their results to text and images."""

import inspect
import json
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import mcp_types
from pydantic_core import to_json

from mochi_server.constants import MAX_IMAGES
from mochi_server.mcp.schema_checks import CHECK_SECONDS, LISTING_SECONDS, CheckFailed, SchemaChecks
from mochi_server.sessions.serialization import has_more_values
from mochi_server.sessions.types import Image
from mochi_server.tools.execution import ToolContent, shorten
from mochi_server.tools.schema import (
    Bind,
    InvalidArguments,
    InvalidTool,
    ToolSchema,
    inline_references,
    supported_schema,
)
from mochi_server.util import json_schema

_MAX_LOCAL_WORK = 50_000
"""Maximum product of the size of a schema and the length of arguments that are validated on the event loop."""
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


async def map_tools(listed: Iterable[mcp_types.Tool], checks: SchemaChecks) -> tuple[list[McpTool], list[str]]:
    """Convert MCP tools. Return the valid tools, and the problems of invalid tools."""
    usable, problems = [], []
    for tool in listed:
        try:
            usable.append(await _map_tool(tool, checks))
        except (InvalidTool, CheckFailed, RecursionError) as error:
            problems.append(f"its tool {shorten(tool.name, 100)!r} cannot be used: {error}")
    return usable, problems


async def _map_tool(tool: mcp_types.Tool, checks: SchemaChecks) -> McpTool:
    schema = tool.input_schema
    if has_more_values(schema, json_schema.MAX_SIZE):
        raise InvalidTool("its schema is too large")
    checked = await checks.run("check_schema", LISTING_SECONDS, schema=schema)
    if "error" in checked:
        raise InvalidTool(checked["error"])
    inlined = await anyio.to_thread.run_sync(inline_references, schema)
    completed = (await checks.run("add_defaults", LISTING_SECONDS, schema=schema, inlined=inlined))["schema"]
    bind = partial(_bind, checks, schema, completed, checked["cost"])
    return await anyio.to_thread.run_sync(_converted, tool, completed, bind)


def _converted(tool: mcp_types.Tool, completed: dict[str, Any], bind: Bind) -> McpTool:
    hints = tool.annotations
    schema = ToolSchema(
        name=tool.name,
        description=shorten(tool.description or tool.title or tool.name, _MAX_DESCRIPTION_LENGTH),
        parameters=supported_schema(completed, {}),
        overview={
            name: {"type": python_type(node), "description": " ".join(str(node.get("description", "")).split())}
            for name, node in completed.get("properties", {}).items()
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


async def _bind(
    checks: SchemaChecks,
    schema: dict[str, Any],
    completed: dict[str, Any],
    cost: int | None,
    arguments: Mapping[str, Any],
) -> inspect.BoundArguments:
    """Validate small arguments of simple schemas in this process, and others in a worker."""
    parameters = {"schema": schema, "completed": completed, "arguments": dict(arguments)}
    if cost is not None and cost * len(json.dumps(parameters["arguments"])) <= _MAX_LOCAL_WORK:
        result = json_schema.bind(**parameters)
    else:
        try:
            result = await checks.run("bind", CHECK_SECONDS, **parameters)
        except CheckFailed as error:
            reason = f"the arguments cannot be checked: {error}. Call the tool with smaller or simpler arguments."
            raise InvalidArguments(reason) from error
    if "error" in result:
        raise InvalidArguments(result["error"])
    return _SIGNATURE.bind(result["arguments"])


_SIGNATURE = inspect.signature(lambda arguments: None)  # noqa: ARG005 - MCP tools take one object


def content_of(result: mcp_types.CallToolResult) -> ToolContent:
    """Return a tool result for a model, with at most ``MAX_IMAGES`` images. Descriptions replace other binary data."""
    images: list[Image] = []
    limit = 0 if result.is_error else MAX_IMAGES
    text = "\n".join(_text_of(block, images, limit) for block in result.content)
    if not text and result.structured_content is not None:
        text = to_json(result.structured_content, fallback=str).decode()
    empty = "it reported an error without a message" if result.is_error else "Done; there is no result."
    return ToolContent(text or empty, tuple(images))


def _text_of(block: mcp_types.ContentBlock, images: list[Image], limit: int) -> str:
    """Return the text or the description of a content block. Add its image to ``images``, up to ``limit`` images."""
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
