"""Conversion of MCP tools to ``ToolSchema``, and of their results to text and images.

Worker processes check schemas and arguments. A check that takes too long ends with its process.
"""

import asyncio
import inspect
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from base64 import b64decode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from pydantic_core import to_json

from mochi_server.constants import MAX_IMAGES, MAX_SCHEMA_VALUES
from mochi_server.mcp.session import MAX_MESSAGE_BYTES
from mochi_server.sessions.serialization import has_more_values
from mochi_server.sessions.types import Image
from mochi_server.tools.execution import ToolContent, shorten
from mochi_server.tools.schema import InvalidArguments, InvalidTool, ToolSchema, inline_references, supported_schema

if TYPE_CHECKING:
    import mcp_types

_CHECK_SECONDS = 1  # maximum duration of the check of a call's arguments
_ANSWER_SECONDS = 5  # maximum duration of the check of an answer
_LISTING_SECONDS = 10  # maximum duration of the check of a tool's schema, whose size is limited
MAX_WORKERS = 2
# The worker imports the same modules as this process, and no others from the working directory.
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from mochi_server.util.json_schema import main; main()"
_SIGNATURE = inspect.signature(lambda arguments: None)  # noqa: ARG005 - MCP tools take one object
_MAX_DESCRIPTION_LENGTH = 10_000
_PYTHON_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
_PYTHON_TYPES |= {"array": "list", "object": "dict", "null": "None"}


class CheckFailed(Exception):
    """A check took too long or could not be made. The message is the reason."""


class SchemaChecks:
    """Pool of at most ``MAX_WORKERS`` workers, which start on demand. Further checks wait."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_WORKERS)
        self._workers: set[Process] = set()
        self._idle: list[Process] = []

    async def run(self, operation: str, seconds: float, **parameters: Any) -> dict[str, Any]:
        """Run a function of ``util.json_schema`` in a worker and return its result. Raises ``CheckFailed``.

        The worker ends itself after ``seconds``.
        """
        request = json.dumps((operation, seconds, parameters)).encode() + b"\n"
        async with self._slots:
            self._idle = [worker for worker in self._idle if worker.returncode is None]
            worker = self._idle.pop() if self._idle else await self._start()
            assert worker.stdin and worker.stdout  # noqa: S101, PT018 - both are pipes
            try:
                worker.stdin.write(request)
                await worker.stdin.drain()
                result: dict[str, Any] = json.loads(await worker.stdout.readline())
            except BaseException as error:
                await self._kill(worker)
                if isinstance(error, OSError | ValueError):  # the worker ended
                    raise CheckFailed(f"the check took longer than {seconds:g} s, or too much memory") from error
                raise
            self._idle.append(worker)
            return result

    async def check_answer(self, schema: Mapping[str, Any], text: str) -> dict[str, str]:
        """Run ``util.json_schema.check_answer``. If that fails, return why the answer is ``unchecked``."""
        try:
            return await self.run("check_answer", _ANSWER_SECONDS, schema=schema, text=text)
        except CheckFailed as error:
            return {"unchecked": str(error)}

    async def aclose(self) -> None:
        """Kill all workers and wait until they have ended."""
        self._idle.clear()
        await asyncio.gather(*map(self._kill, self._workers))

    async def _start(self) -> Process:
        try:
            worker = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-c", _PROGRAM, *sys.path),
                env={name: value for name, value in os.environ.items() if not name.startswith("MOCHI_")},
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                limit=MAX_MESSAGE_BYTES,
                start_new_session=True,
            )
        except OSError as error:
            raise CheckFailed(f"the process for checks cannot be started: {error.strerror}") from error
        self._workers.add(worker)
        return worker

    async def _kill(self, worker: Process) -> None:
        with suppress(ProcessLookupError):
            worker.kill()
        with anyio.CancelScope(shield=True):
            await worker.wait()
        self._workers.discard(worker)


@dataclass(frozen=True)
class McpTool:
    """A tool of an MCP server, with its original name."""

    name: str
    schema: ToolSchema
    read_only: bool


async def map_tools(listed: "Iterable[mcp_types.Tool]", checks: SchemaChecks) -> tuple[list[McpTool], list[str]]:
    """Convert MCP tools. Return the valid tools, and the problems of invalid tools."""
    usable, problems = [], []
    for tool in listed:
        try:
            if has_more_values(tool.input_schema, MAX_SCHEMA_VALUES):
                raise InvalidTool("its schema is too large")
            checked = await checks.run("check_schema", _LISTING_SECONDS, schema=tool.input_schema)
            if "error" in checked:
                raise InvalidTool(checked["error"])
            usable.append(await anyio.to_thread.run_sync(_converted, tool, checks))
        except (InvalidTool, CheckFailed, RecursionError) as error:
            problems.append(f"its tool {shorten(tool.name, 100)!r} cannot be used: {error}")
    return usable, problems


def _converted(tool: "mcp_types.Tool", checks: SchemaChecks) -> McpTool:
    inlined = inline_references(tool.input_schema)
    properties, required = inlined.get("properties", {}), inlined.get("required")
    required = required if isinstance(required, list) else []  # a boolean in old drafts
    defaults = {name: properties[name]["default"] for name in required if "default" in properties.get(name, {})}
    inlined["required"] = [name for name in required if name not in defaults]
    schema = ToolSchema(
        name=tool.name,
        description=shorten(tool.description or tool.title or tool.name, _MAX_DESCRIPTION_LENGTH),
        parameters=supported_schema(inlined, {}),
        overview={
            name: {"type": python_type(node), "description": " ".join(str(node.get("description", "")).split())}
            for name, node in properties.items()
        },
        bind=partial(_bind, checks, tool.input_schema, defaults),
    )
    hints = tool.annotations
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
    checks: SchemaChecks, schema: dict[str, Any], defaults: dict[str, Any], arguments: Mapping[str, Any]
) -> inspect.BoundArguments:
    complete = {**defaults, **arguments}
    try:
        result = await checks.run("check_arguments", _CHECK_SECONDS, schema=schema, arguments=complete)
    except CheckFailed as error:
        reason = f"the arguments cannot be checked: {error}. Call the tool with smaller or simpler arguments."
        raise InvalidArguments(reason) from error
    if "error" in result:
        raise InvalidArguments(result["error"])
    return _SIGNATURE.bind(complete)


def content_of(result: "mcp_types.CallToolResult") -> ToolContent:
    """Return a tool result for a model, with at most ``MAX_IMAGES`` images. Descriptions replace other binary data."""
    images: list[Image] = []
    limit = 0 if result.is_error else MAX_IMAGES
    text = "\n".join(_text_of(block, images, limit) for block in result.content)
    if not text and result.structured_content is not None:
        text = to_json(result.structured_content, fallback=str).decode()
    empty = "it reported an error without a message" if result.is_error else "Done; there is no result."
    return ToolContent(text or empty, tuple(images))


def _text_of(block: "mcp_types.ContentBlock", images: list[Image], limit: int) -> str:
    """Return the text or the description of a content block. Add its image to ``images``, up to ``limit`` images."""
    if block.type == "text":
        return block.text
    if block.type == "resource_link":
        return f"[resource {block.name}: {block.uri}]"
    if block.type == "resource":
        resource: Any = block.resource
        if hasattr(resource, "text"):
            return f"[resource {resource.uri}]\n{resource.text}"
        return _describe(f"resource {resource.uri}", resource.mime_type or "binary", resource.blob, images, limit)
    return _describe(block.type, block.mime_type, block.data, images, limit)


def _describe(name: str, mime_type: str, base64: str, images: list[Image], limit: int) -> str:
    size = f"{len(base64.rstrip('=')) * 3 // 4:,} bytes"
    try:
        if mime_type.startswith("image/") and len(images) < limit:
            images.append(Image.of(b64decode(base64, validate=True)))
            return f"[{name}, {images[-1].media_type}, {size}: image {len(images)} of this result]"
    except ValueError:  # invalid base64, or a format that models cannot read
        pass
    return f"[{name}, {mime_type}, {size}: not shown]"
