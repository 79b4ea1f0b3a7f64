"""Tools in requests of the Responses API: functions, tools with free text, namespaces of both, and
tools that the server leaves out.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from mochi_server.protocols.tool_choice import FunctionTool
from mochi_server.schemas.common import Body, Text
from mochi_server.util.validation import Items

CUSTOM_INPUT = "input"
"""Name of the parameter with the free text of a custom tool."""
_FUNCTION_TYPES = ("function", "custom")


def _check_type(tool: Any) -> Any:
    if isinstance(tool, dict) and not isinstance(tool.get("type"), str):
        raise ValueError(f"the tool {tool.get('name')!r} has no type; set `type` to `function`")
    return tool


def _tool_tag(tool: Any) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
    return kind if kind in (*_FUNCTION_TYPES, "namespace") else "other"


def _tag_in_namespace(tool: Any) -> str:
    tag = _tool_tag(tool)
    return tag if tag in _FUNCTION_TYPES else "other"


class ResponseFunction(FunctionTool):
    """A function of the client that the model may call. ``parameters`` is a JSON schema."""

    type: Literal["function"]


class CustomFormat(Body):
    """Format of the input of a custom tool. The model reads ``definition``; it is not enforced."""

    type: Literal["text", "grammar"]
    syntax: str | None = None
    definition: Text | None = None


class CustomTool(Body):
    """A tool of the client whose input is free text, such as `apply_patch` of Codex.

    The model receives it as a function with one string.
    """

    type: Literal["custom"]
    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    format: CustomFormat | None = None

    def to_function(self) -> ResponseFunction:
        """Return the function that the model receives."""
        text: dict[str, Any] = {"type": "string"}
        if self.format is not None and self.format.definition:
            text["description"] = f"Text that matches this grammar:\n{self.format.definition}"
        schema = {"type": "object", "properties": {CUSTOM_INPUT: text}, "required": [CUSTOM_INPUT]}
        return ResponseFunction(
            type="function", name=self.name, description=self.description, parameters=schema
        )


class OtherTool(Body):
    """Any other tool, such as `web_search`. The server leaves it out, with a notice."""

    type: str


class ResponseNamespace(Body):
    """A group of functions and tools with free text.

    The model receives them as single functions. Their calls name the group. The server leaves other
    tools in it out, also namespaces.
    """

    type: Literal["namespace"]
    name: str
    description: str | None = None
    tools: Items[
        Annotated[
            Annotated[ResponseFunction, Tag("function")]
            | Annotated[CustomTool, Tag("custom")]
            | Annotated[OtherTool, Tag("other")],
            Discriminator(_tag_in_namespace),
            BeforeValidator(_check_type),
        ]
    ]


ResponseTool = Annotated[
    Annotated[ResponseFunction, Tag("function")]
    | Annotated[CustomTool, Tag("custom")]
    | Annotated[ResponseNamespace, Tag("namespace")]
    | Annotated[OtherTool, Tag("other")],
    Discriminator(_tool_tag),
    BeforeValidator(_check_type),
]


def without_other_tools(choice: Any, tools: Iterable[ResponseTool]) -> Any:
    """Return a `tool_choice` without the tools that the server leaves out.

    The choice of one of them is `auto`. A choice that allows only them requires no call.
    """
    if not isinstance(choice, dict):
        return choice
    others = omitted_types(tools)
    if choice.get("type") in others:
        return "auto"
    allowed = choice.get("tools")
    if not isinstance(allowed, list):
        return choice
    kept = []
    for tool in allowed:
        is_other = isinstance(tool, dict) and tool.get("type") in others
        if not is_other:
            kept.append(tool)
    if allowed and not kept:
        return {**choice, "mode": "auto", "tools": []}
    return {**choice, "tools": kept}


@dataclass(frozen=True, slots=True)
class OfferedFunction:
    """A function that the model may call, and the name of its namespace, if it is in one."""

    function: ResponseFunction
    """The function with the name that the client uses."""
    namespace: str | None = None
    is_custom: bool = False
    """Whether the client receives the call as free text."""

    @classmethod
    def of(
        cls, tool: ResponseFunction | CustomTool, namespace: str | None = None
    ) -> "OfferedFunction":
        if isinstance(tool, CustomTool):
            return cls(tool.to_function(), namespace, is_custom=True)
        return cls(tool, namespace)


Functions = dict[str, OfferedFunction]
"""Functions by the names that the model sees, which are unique."""


def flattened(tools: Iterable[ResponseTool]) -> Functions:
    """Return the functions of all tools, also those in namespaces.

    A function in a namespace whose name is taken gets the namespace as prefix. If that name is
    taken too, the later function replaces the earlier one, as outside of namespaces.
    """
    found: Functions = {}
    namespaces = []
    for tool in tools:
        if isinstance(tool, ResponseNamespace):
            namespaces.append(tool)
        elif not isinstance(tool, OtherTool):
            found[tool.name] = OfferedFunction.of(tool)
    # Functions outside of namespaces keep their names, so they come first.
    for namespace in namespaces:
        for member in namespace.tools:
            if isinstance(member, OtherTool):
                continue
            name = member.name
            if name in found:
                name = f"{namespace.name}__{name}"
            found[name] = OfferedFunction.of(member, namespace.name)
    return found


def omitted_types(tools: Iterable[ResponseTool]) -> list[str]:
    """Return the types of the tools that the model does not receive, also of those in namespaces.

    A type occurs once for each tool.
    """
    types: list[str] = []
    for tool in tools:
        if isinstance(tool, OtherTool):
            types.append(tool.type)
        elif isinstance(tool, ResponseNamespace):
            types += omitted_types(tool.tools)
    return types
