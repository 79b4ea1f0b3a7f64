"""Checks with JSON schemas from other parties. As a program, this module is a worker that makes these checks.

The worker reads a request from each line of stdin and writes the result to stdout, both as JSON. It imports little, so
that it starts fast.
"""

import faulthandler
import json
import sys
from collections.abc import Callable, Mapping
from functools import cache
from itertools import islice
from typing import Any

import referencing
import referencing.jsonschema
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for

from mochi_server.util import platform

MAX_SIZE = 20_000
"""Maximum number of JSON values in a schema whose references are replaced. 100 characters count as one value."""
_MAX_MEMORY = 1 << 30
_MAX_LEVELS = 5_000
_MAX_ERRORS = 20
_MAX_ERROR_LENGTH = 1_000
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_SLOW = {"uniqueItems", "patternProperties", "unevaluatedItems", "unevaluatedProperties", *_REFERENCES[1:]}
"""Keywords whose checks can take much longer than the sizes of the schema and the value suggest."""
_MAPS = {"properties", "patternProperties", "dependentSchemas", "dependencies"}
_DEFINITIONS = {"$defs", "definitions"}


class InvalidSchema(Exception):
    """A schema is invalid or too large. The message is for the author of the schema."""


def check_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the expanded size of a schema as ``cost``, or None if its checks may be slow. Raises ``InvalidSchema``."""
    expansion = _Expansion()
    try:
        expansion.measure(schema)
        # No formats are checked, because the check of `regex` rejects JavaScript patterns that Python does not support.
        validator_for(schema, default=Draft202012Validator).check_schema(schema, format_checker=FormatChecker(()))
    except RecursionError as error:
        raise InvalidSchema("its schema is too large") from error
    except SchemaError as error:
        raise InvalidSchema("its input schema is not a valid JSON schema") from error
    return {"cost": expansion.size if expansion.is_simple else None}


class _Expansion:
    """Size of a schema whose references are replaced by their targets. Unused definitions do not count."""

    def __init__(self) -> None:
        self.size = 0
        self.is_simple = True

    def measure(self, schema: dict[str, Any]) -> None:
        default = referencing.jsonschema.DRAFT202012
        resource = referencing.Resource.from_contents(schema, default_specification=default)
        self._specification = referencing.jsonschema.specification_with(resource.contents.get("$schema", ""), default)
        self._add(schema, referencing.Registry().resolver_with_root(resource), ())

    def _add(self, node: Any, resolver: Any, targets: tuple[int, ...]) -> None:
        self.size += 1 + (len(node) // 100 if isinstance(node, str) else 0)
        if self.size > MAX_SIZE:
            raise InvalidSchema("its schema is too large")
        if isinstance(node, list):
            for each in node:
                self._add(each, resolver, targets)
        if not isinstance(node, dict):
            return
        self.is_simple = self.is_simple and _SLOW.isdisjoint(node)
        if "$id" in node or "id" in node:
            resolver = resolver.in_subresource(self._specification.create_resource(node))
        for key, value in node.items():
            if key in _REFERENCES and isinstance(value, str):
                self._add_target(value, resolver, targets)
            elif key not in _DEFINITIONS:
                for each in value.values() if key in _MAPS and isinstance(value, dict) else [value]:
                    self._add(each, resolver, targets)

    def _add_target(self, reference: str, resolver: Any, targets: tuple[int, ...]) -> None:
        try:
            resolved = resolver.lookup(reference)
        except Exception:  # the library does not document the type; the reference accepts every value
            return
        if id(resolved.contents) in targets:
            self.is_simple = False
        else:
            self._add(resolved.contents, resolved.resolver, (*targets, id(resolved.contents)))


def add_defaults(schema: dict[str, Any], inlined: dict[str, Any]) -> dict[str, Any]:
    """Return ``inlined`` as ``schema``, with valid defaults of required properties in ``defaults`` of each object."""
    return {"schema": _with_defaults(inlined, _validator(schema))}


def _with_defaults(node: Mapping[str, Any], validator: Validator) -> dict[str, Any]:
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


def bind(schema: dict[str, Any], completed: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return ``arguments`` with the defaults of ``completed``, a result of ``add_defaults``, or their ``error``."""
    complete = _complete(completed, arguments)
    try:
        error = "; ".join(_errors(_validator(schema), complete))
    except RecursionError:
        error = "they are nested too deeply for the schema"
    return {"error": error} if error else {"arguments": complete}


def _complete(node: Mapping[str, Any], value: Any) -> Any:
    """Return a value with the defaults of its schema, which is a result of ``add_defaults``."""
    if isinstance(value, list):
        return [_complete(node.get("items", {}), each) for each in value]
    if isinstance(value, dict):
        properties = node.get("properties", {})
        values = {**node.get("defaults", {}), **value}
        return {name: _complete(properties.get(name, {}), each) for name, each in values.items()}
    return value


def _errors(validator: Validator, value: object) -> list[str]:
    """Return the first errors of a value. A schema with an unresolvable reference accepts every value."""
    try:
        errors = [*islice(validator.iter_errors(value), _MAX_ERRORS)]
    except (MemoryError, RecursionError):
        raise
    except Exception:  # the library does not document the type
        return []
    texts = [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]
    return [text.removeprefix(": ")[:_MAX_ERROR_LENGTH] for text in texts]


def _validator(schema: dict[str, Any]) -> Validator:
    validator: Validator = _class(validator_for(schema, default=Draft202012Validator))(
        schema, registry=referencing.Registry()
    )
    return validator


@cache
def _class(draft: type[Validator]) -> Any:
    # Do not evaluate patterns, which could take forever, or fetch external references. The MCP server validates too.
    return extend(draft, {keyword: lambda *_: () for keyword in ("pattern", "patternProperties")})


def main() -> None:
    """Answer requests until stdin is closed. End the process if a request takes longer than its limit in seconds."""
    platform.limit_memory(_MAX_MEMORY)
    sys.setrecursionlimit(_MAX_LEVELS)
    operations: dict[str, Callable[..., dict[str, Any]]] = {
        function.__name__: function for function in (check_schema, add_defaults, bind)
    }
    for line in sys.stdin:
        operation, seconds, parameters = json.loads(line)
        faulthandler.dump_traceback_later(seconds, exit=True)
        try:
            result = operations[operation](**parameters)
        except InvalidSchema as error:
            result = {"error": str(error)}
        faulthandler.cancel_dump_traceback_later()
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()
