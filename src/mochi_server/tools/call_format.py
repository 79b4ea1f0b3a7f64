"""JSON schema of a tool call, for models that answer with text in place of a call."""

from collections.abc import Sequence
from typing import Any

_DEFINITIONS = ("#/$defs/", "#/definitions/")


def call_format(schemas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a JSON schema that permits a call of exactly one tool.

    It has their definitions at its top level.
    """
    definitions: dict[str, Any] = {}
    calls = []
    for index, schema in enumerate(schemas):
        function, prefix = schema["function"], f"{index}."
        parameters = _renamed(function["parameters"], prefix)
        for key in ("$defs", "definitions"):
            found = parameters.pop(key, None)
            if isinstance(found, dict):
                definitions |= {prefix + name: value for name, value in found.items()}
        properties = {
            "name": {"type": "string", "enum": [function["name"]]},
            "arguments": parameters,
        }
        calls.append(
            {"type": "object", "properties": properties, "required": ["name", "arguments"]}
        )
    root: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return {**root, "$defs": definitions} if definitions else root


def _renamed(schema: Any, prefix: str) -> Any:
    """Return a copy of a tool's schema.

    Add ``prefix`` to the name of the definition in each reference.
    """
    if isinstance(schema, list):
        return [_renamed(item, prefix) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: _renamed(value, prefix) for key, value in schema.items()}
    reference = copy.get("$ref")
    if isinstance(reference, str) and reference.startswith(_DEFINITIONS):
        name = reference.split("/", 2)[2]
        copy["$ref"] = f"#/$defs/{prefix}{name}"
    return copy
