"""Conversion of MCP tools to ``ToolSchema``, and of their results to text and images."""

import inspect
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from pydantic_core import to_json

from mochi_server.constants import MAX_IMAGES, MAX_SCHEMA_VALUES
from mochi_server.sessions.serialization import has_more_values
from mochi_server.sessions.types import Image
from mochi_server.tools.execution import ToolContent, shorten
from mochi_server.tools.schema import (
    InvalidArguments,
    InvalidTool,
    ToolSchema,
    inline_references,
    python_type,
    supported_schema,
)
from mochi_server.util.schema_checks import CheckFailed, SchemaChecks

if TYPE_CHECKING:
    import mcp_types

_SCHEMA_CHECK_SECONDS = 10  # the size of a schema is also limited
_SIGNATURE = inspect.signature(lambda arguments: None)  # noqa: ARG005 - MCP tools take one object
_MAX_DESCRIPTION_LENGTH = 10_000


@dataclass(frozen=True)
class McpTool:
    """A tool of an MCP server, with its original name."""

    name: str
    schema: ToolSchema
    read_only: bool


async def map_tools(
    listed: "Iterable[mcp_types.Tool]", checks: SchemaChecks
) -> tuple[list[McpTool], list[str]]:
    """Convert MCP tools. Return the valid tools, and the problems of invalid tools."""
    usable = []
    problems = []
    for tool in listed:
        try:
            if has_more_values(tool.input_schema, MAX_SCHEMA_VALUES):
                raise InvalidTool("its schema is too large")
            checked = await checks.run(
                "check_schema", _SCHEMA_CHECK_SECONDS, schema=tool.input_schema
            )
            if "error" in checked:
                raise InvalidTool(checked["error"])
            usable.append(await anyio.to_thread.run_sync(_converted, tool, checks))
        except (InvalidTool, CheckFailed, RecursionError) as error:
            problems.append(f"its tool {shorten(tool.name, 100)!r} cannot be used: {error}")
    return usable, problems


def _converted(tool: "mcp_types.Tool", checks: SchemaChecks) -> McpTool:
    """Convert a tool with a valid schema. Raises ``InvalidTool`` and ``RecursionError``."""
    inlined = inline_references(tool.input_schema)
    properties = inlined.get("properties", {})
    required = inlined.get("required", [])
    defaults = {}
    for name in required:
        if "default" in properties.get(name, {}):
            defaults[name] = properties[name]["default"]
    # A model may omit an argument that has a default.
    inlined["required"] = [name for name in required if name not in defaults]
    overview = {}
    for name, node in properties.items():
        description = " ".join(str(node.get("description", "")).split())
        overview[name] = {"type": python_type(node), "description": description}
    schema = ToolSchema(
        name=tool.name,
        description=shorten(tool.description or tool.title or tool.name, _MAX_DESCRIPTION_LENGTH),
        parameters=supported_schema(inlined, {}, keeps_null=True),
        overview=overview,
        bind=partial(_bind, checks, tool.input_schema, defaults),
    )
    read_only = False
    hints = tool.annotations
    if hints is not None:
        read_only = hints.read_only_hint is True and hints.destructive_hint is not True
    return McpTool(tool.name, schema, read_only)


async def _bind(
    checks: SchemaChecks,
    schema: dict[str, Any],
    defaults: dict[str, Any],
    arguments: Mapping[str, Any],
) -> inspect.BoundArguments:
    """Add missing defaults to the arguments of a call, convert them and check them.

    Text that is JSON is converted to its value where the schema excludes text. Raises
    ``InvalidArguments``.
    """
    complete = {**defaults, **arguments}
    try:
        result = await checks.check_arguments(schema, complete)
    except CheckFailed as error:
        reason = (
            f"the arguments cannot be checked: {error}. Call the tool with smaller or simpler "
            "arguments."
        )
        raise InvalidArguments(reason) from error
    if "error" in result:
        raise InvalidArguments(result["error"])
    return _SIGNATURE.bind(result.get("arguments", complete))


def content_of(result: "mcp_types.CallToolResult") -> ToolContent:
    """Return a tool result for a model, with at most ``MAX_IMAGES`` images. An error has none.

    Descriptions replace other binary data. The text is never empty.
    """
    images: list[Image] = []
    limit = 0 if result.is_error else MAX_IMAGES
    text = "\n".join(_convert_block(block, images, limit) for block in result.content)
    if not text and result.structured_content is not None:
        text = to_json(result.structured_content, fallback=str).decode()
    empty = (
        "it reported an error without a message" if result.is_error else "Done; there is no result."
    )
    return ToolContent(text or empty, tuple(images))


def _convert_block(block: "mcp_types.ContentBlock", images: list[Image], limit: int) -> str:
    """Return the text of a block. Add its image, if any, to ``images``, up to ``limit`` images."""
    if block.type == "text":
        return block.text
    if block.type == "resource_link":
        return f"[resource {block.name}: {block.uri}]"
    if block.type == "resource":
        resource: Any = block.resource
        if hasattr(resource, "text"):
            return f"[resource {resource.uri}]\n{resource.text}"
        name = f"resource {resource.uri}"
        mime_type = resource.mime_type or "binary"
        return _add_image_or_describe(name, mime_type, resource.blob, images, limit)
    return _add_image_or_describe(block.type, block.mime_type, block.data, images, limit)


def _add_image_or_describe(
    name: str, mime_type: str, base64: str, images: list[Image], limit: int
) -> str:
    bytes_count = len(base64.rstrip("=")) * 3 // 4
    size = f"{bytes_count:,} bytes"
    hidden = f"[{name}, {mime_type}, {size}: not shown]"
    if not mime_type.startswith("image/") or len(images) >= limit:
        return hidden
    try:
        image = Image.of(b64decode(base64, validate=True))
    except ValueError:  # invalid base64, or a format that models cannot read
        return hidden
    images.append(image)
    return f"[{name}, {image.media_type}, {size}: image {len(images)} of this result]"
