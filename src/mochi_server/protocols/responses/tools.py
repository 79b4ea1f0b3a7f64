"""Tools in requests of the Responses API: functions, namespaces of functions, and tools that OpenAI
runs.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field

from mochi_server.protocols import schemas
from mochi_server.schemas.common import Body
from mochi_server.util.validation import Items

_WebSearch = Literal[
    "web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"
]
HostedType = Literal[
    _WebSearch, "file_search", "code_interpreter", "image_generation", "mcp", "tool_search"
]
_TYPES = "function", "namespace", *get_args(HostedType)


def _supported(tool: Any) -> Any:
    if isinstance(tool, dict) and (kind := tool.get("type")) not in _TYPES:
        name = tool.get("name", kind)
        raise ValueError(
            f"the tool {name!r} has the unsupported type {kind!r}; use a function, or leave it out"
        )
    return tool


class ResponseFunction(schemas.FunctionTool):
    """A function of the client that the model may call. ``parameters`` is a JSON schema."""

    type: Literal["function"]


class ResponseNamespace(Body):
    """A group of functions.

    The model receives them as single functions. Their calls name the group.
    """

    type: Literal["namespace"]
    name: str
    description: str | None = None
    tools: Items[Annotated[ResponseFunction, BeforeValidator(_supported)]]


class HostedTool(Body):
    """A tool that OpenAI runs, such as `web_search`. The server leaves it out, with a notice."""

    type: HostedType


ResponseTool = Annotated[
    ResponseFunction | ResponseNamespace | HostedTool,
    Field(discriminator="type"),
    BeforeValidator(_supported),
]


Functions = dict[str, tuple[ResponseFunction, str | None]]
"""Functions and their namespaces by the names that the model sees, which are unique."""


def flattened(tools: Iterable[ResponseTool]) -> Functions:
    """Return the functions of all tools, also those in namespaces."""
    found: Functions = {
        tool.name: (tool, None) for tool in tools if isinstance(tool, ResponseFunction)
    }
    for group in (tool for tool in tools if isinstance(tool, ResponseNamespace)):
        for function in group.tools:
            name = function.name if function.name not in found else f"{group.name}__{function.name}"
            found[name] = function, group.name
    return found
