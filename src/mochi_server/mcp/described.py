"""A tool as its MCP server describes it, made what models, clients and approvers are shown.

Imports jsonschema, which comes with the SDK.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import referencing
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from mcp_types import Tool as ListedTool

from mochi_server.tools.execution import shortened
from mochi_server.tools.schema import NotATool, ToolSchema, WrongArguments, for_models, inlined

_LONGEST_DESCRIPTION = 10_000
_PYTHON = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}


@dataclass(frozen=True)
class Described:
    """A tool under the name its server gave it."""

    name: str
    schema: ToolSchema
    read_only: bool


def describe(listed: Iterable[ListedTool]) -> tuple[list[Described], list[str]]:
    """The tools that can be used, and what is wrong with the others. Takes milliseconds for each."""
    usable, problems = [], []
    for tool in listed:
        try:
            usable.append(_described(tool))
        except (NotATool, RecursionError) as error:
            problems.append(f"its tool {shortened(tool.name, 100)!r} cannot be used: {error}")
    return usable, problems


def _described(tool: ListedTool) -> Described:
    bind = _binder(tool.input_schema)
    plain = inlined(tool.input_schema)
    hints = tool.annotations
    schema = ToolSchema(
        name=tool.name,
        description=shortened(tool.description or tool.title or tool.name, _LONGEST_DESCRIPTION),
        parameters=for_models(plain, {}),
        overview={
            name: {"type": python_type(node), "description": " ".join(str(node.get("description", "")).split())}
            for name, node in plain.get("properties", {}).items()
        },
        bind=bind,
    )
    said = hints is not None and hints.read_only_hint is True and hints.destructive_hint is not True
    return Described(tool.name, schema, read_only=said)


def python_type(node: Mapping[str, Any]) -> str:
    """A JSON schema as Python writes such a type: ``list[str]``, ``int | None``; ``Any`` where it cannot tell."""
    if "enum" in node or "const" in node:
        return f"Literal[{', '.join(map(repr, node.get('enum', [node.get('const')])))}]"
    if choices := node.get("anyOf") or node.get("oneOf"):
        return " | ".join(dict.fromkeys(map(python_type, choices)))
    kind = node.get("type")
    if isinstance(kind, list):
        return " | ".join(_PYTHON.get(str(each), "Any") for each in kind) or "Any"
    if kind == "array" and node.get("items"):
        return f"list[{python_type(node['items'])}]"
    return _PYTHON.get(str(kind), "Any")


def _binder(schema: dict[str, Any]) -> Callable[[Mapping[str, Any]], inspect.BoundArguments]:
    draft = validator_for(schema, default=Draft202012Validator)
    try:
        draft.check_schema(schema)
    except (SchemaError, RecursionError) as error:
        raise NotATool("its input schema is no JSON schema") from error
    # A foreign pattern can take for ever to match, and a reference elsewhere would be fetched: both are the server's.
    checks = extend(draft, {"pattern": _passes, "patternProperties": _passes})
    return partial(_bind, checks(schema, registry=referencing.Registry()))


def _passes(*_: object) -> tuple[()]:
    return ()


def _bind(validator: Validator, arguments: Mapping[str, Any]) -> inspect.BoundArguments:
    given = dict(arguments)
    if wrong := _wrong(validator, given):
        raise WrongArguments("; ".join(wrong))
    return _SIGNATURE.bind(given)


def _wrong(validator: Validator, given: dict[str, Any]) -> list[str]:
    try:
        errors = list(validator.iter_errors(given))
    except Exception:  # a schema that refers to what is not there; the server checks, too
        return []
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}".removeprefix(": ") for error in errors]


def _takes(arguments: dict[str, Any]) -> None:
    """What a call of such a tool is given."""


_SIGNATURE = inspect.signature(_takes)
