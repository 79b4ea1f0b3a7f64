"""Tools in requests of the Responses API: functions, namespaces of functions, and tools that OpenAI runs."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Tag

from mochi_server.models.common import Body
from mochi_server.protocols import schemas
from mochi_server.util.validation import Items

_HOSTED = "web_search", "file_search", "code_interpreter", "image_generation", "mcp", "tool_search"
"""Beginnings of the types of tools that OpenAI runs."""


def _supported(tool: Any) -> Any:
    kind = str(tool.get("type")) if isinstance(tool, dict) else "function"
    if kind not in ("function", "namespace") and not kind.startswith(_HOSTED):
        name = tool.get("name", kind)
        raise ValueError(f"the tool {name!r} has the unsupported type {kind!r}; use a function, or leave it out")
    return tool


class ResponseFunction(schemas.FunctionTool):
    """A function of the client that the model may call. ``parameters`` is a JSON schema."""

    type: Literal["function"]


class ResponseNamespace(Body):
    """A group of functions. The model receives them as single functions. Their calls name the group."""

    type: Literal["namespace"]
    name: str
    description: str | None = None
    tools: Items[Annotated[ResponseFunction, BeforeValidator(_supported)]]


class HostedTool(Body):
    """A tool that OpenAI runs, such as `web_search`. The server leaves it out, with a notice."""

    type: str


def _class_of(tool: Any) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", "function")
    return str(kind) if kind in ("function", "namespace") else "hosted"


ResponseTool = Annotated[
    Annotated[ResponseFunction, Tag("function")]
    | Annotated[ResponseNamespace, Tag("namespace")]
    | Annotated[HostedTool, Tag("hosted")],
    Discriminator(_class_of),
    BeforeValidator(_supported),
]


def flattened(tools: Iterable[ResponseTool]) -> dict[str, tuple[ResponseFunction, str | None]]:
    """Return the functions and their namespaces by the names that the model sees, which are unique."""
    found: dict[str, tuple[ResponseFunction, str | None]]
    found = {tool.name: (tool, None) for tool in tools if isinstance(tool, ResponseFunction)}
    for group in (tool for tool in tools if isinstance(tool, ResponseNamespace)):
        for function in group.tools:
            name = function.name if function.name not in found else f"{group.name}__{function.name}"
            found[name] = function, group.name
    return found
