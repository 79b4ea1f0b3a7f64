"""The field `tool_choice` of chat completions and responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from mochi_stub.wire.body_validation import Check, Location, Schema, schema
from mochi_stub.wire.provider_pipeline import HttpError

Tools: TypeAlias = "tuple[Mapping[str, Any], ...]"
_MODE = schema(("none", "auto", "required"))
_TYPE = schema({"type!": str})
NAMED = {"name!": str}
ALLOWED = {"mode!": ("auto", "required"), "tools!": [{"type!": str, "name": str, "function": NAMED}]}


def tool_choice(function: Schema, allowed: Schema) -> Check:
    """Build the check of the request field `tool_choice`.

    `function` is the schema for the choice of one function, and `allowed` is the schema for the choice of several
    allowed tools. The choice of a tool that OpenAI runs itself is accepted without a check.
    """
    checks = {"function": schema(function), "allowed_tools": schema(allowed)}

    def check(value: Any, location: Location) -> Any:
        if isinstance(value, str):
            return _MODE(value, location)
        kind = _TYPE(value, location)["type"]
        return {"type": kind, **checks[kind](value, location)} if kind in checks else value

    return check


def select_tools(choice: Any, tools: Sequence[Mapping[str, Any]]) -> tuple[Tools, Tools]:
    """Return the tools that the model may call, and the tools of which it must call one.

    Raises HttpError if the choice requires a tool that the request does not offer.
    """
    functions = {tool["function"]["name"]: tool for tool in tools if tool["type"] == "function"}
    if choice == "none":
        return (), ()
    if choice == "required":
        return tuple(tools), tuple(functions.values()) or _offered({}, [])
    kind = choice["type"] if isinstance(choice, Mapping) else None
    if kind not in ("function", "allowed_tools"):
        return tuple(tools), ()
    details = {**choice, **choice.get(kind, {})}  # only chat completions nest the details
    if kind == "function":
        return tuple(tools), _offered(functions, [details["name"]])
    listed = [tool for tool in details["tools"] if tool["type"] == "function"]
    allowed = _offered(functions, [tool.get("function", tool).get("name") for tool in listed])
    return allowed, allowed if details["mode"] == "required" else ()


def _offered(functions: Mapping[str, Mapping[str, Any]], names: Sequence[Any]) -> Tools:
    if not functions:
        message = "'tool_choice' is only allowed when 'tools' are specified."
        raise HttpError(400, f"Invalid value for 'tool_choice': {message}", param="tool_choice")
    for name in names:
        if name not in functions:
            message = f"no function named '{name}' was specified in the 'tools' parameter."
            raise HttpError(400, f"Invalid value for 'tool_choice': {message}", param="tool_choice")
    return tuple(functions[name] for name in names)
