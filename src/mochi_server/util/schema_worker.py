"""Worker process for checks with JSON schemas from other parties.

It reads a request from each line of stdin and writes the result to stdout, both as JSON. It imports
little, so that it starts fast.
"""

import json
import sys
from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import Any

import referencing
import referencing.jsonschema
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for

from mochi_server.constants import MAX_ARGUMENT_LEVELS, MAX_SCHEMA_VALUES
from mochi_server.util import platform

_MAX_MEMORY = 1 << 30
_MAX_LEVELS = 5_000
_MAX_ERRORS = 20
_MAX_ERROR_LENGTH = 1_000
_MAX_CONVERTED = 1_000  # maximum number of texts that one round converts
_MAX_CONVERSIONS = 5  # maximum number of rounds
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_MAPS = {"properties", "patternProperties", "dependentSchemas", "dependencies"}
_DEFINITIONS = {"$defs", "definitions"}
_DATA = {"default", "const", "enum", "examples"}


class InvalidSchema(Exception):
    """A schema is invalid or too large. The message is for the author of the schema."""


def check_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Raise ``InvalidSchema`` if a schema is invalid, or too large when its references are
    replaced. Otherwise, return an empty result.
    """
    try:
        _Expansion().check_size(schema)
        # No formats are checked, because the check of `regex` rejects JavaScript patterns that
        # Python does not support.
        validator_for(schema, default=Draft202012Validator).check_schema(
            schema, format_checker=FormatChecker(())
        )
    except RecursionError as error:
        raise InvalidSchema("its schema is too large") from error
    # The libraries raise the last two if `$schema` or `$id` is not text.
    except (SchemaError, AttributeError, TypeError) as error:
        raise InvalidSchema("its input schema is not a valid JSON schema") from error
    return {}


class _Expansion:
    """Size of a schema whose references are replaced by their targets.

    Unused definitions do not count.

    100 characters of a text count as one value.
    """

    size = 0

    def check_size(self, schema: dict[str, Any]) -> None:
        """Raise ``InvalidSchema`` if the schema is too large."""
        default = referencing.jsonschema.DRAFT202012
        resource = referencing.Resource.from_contents(schema, default_specification=default)
        self._specification = referencing.jsonschema.specification_with(
            resource.contents.get("$schema", ""), default
        )
        self._add(schema, referencing.Registry().resolver_with_root(resource), ())

    def _count(self, node: Any) -> None:
        self.size += 1 + (len(node) // 100 if isinstance(node, str) else 0)
        if self.size > MAX_SCHEMA_VALUES:
            raise InvalidSchema("its schema is too large")

    def _add_data(self, value: Any) -> None:
        """Add a value in which ``$ref`` and ``$id`` have no meaning."""
        self._count(value)
        if isinstance(value, dict):
            value = [*value.values()]
        if isinstance(value, list):
            for each in value:
                self._add_data(each)

    def _add(self, node: Any, resolver: Any, targets: tuple[int, ...]) -> None:
        self._count(node)
        if isinstance(node, list):
            for each in node:
                self._add(each, resolver, targets)
        if not isinstance(node, dict):
            return
        if "$id" in node or "id" in node:
            resolver = resolver.in_subresource(self._specification.create_resource(node))
        for key, value in node.items():
            if key in _REFERENCES and isinstance(value, str):
                self._add_target(value, resolver, targets)
            elif key in _DATA:
                self._add_data(value)
            elif key not in _DEFINITIONS:
                for each in value.values() if key in _MAPS and isinstance(value, dict) else [value]:
                    self._add(each, resolver, targets)

    def _add_target(self, reference: str, resolver: Any, targets: tuple[int, ...]) -> None:
        try:
            resolved = resolver.lookup(reference)
        except Exception:
            # The library does not document the type; the reference accepts every value.
            return
        if id(resolved.contents) not in targets:
            self._add(resolved.contents, resolved.resolver, (*targets, id(resolved.contents)))


def check_arguments(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the ``error`` of the arguments, or the ``arguments`` if they were converted, or an
    empty result if they are valid.

    ``check_schema`` has accepted the schema.

    Models often send values as text. Where the schema excludes text, text that is JSON is converted
    to its value.
    """
    validator_class = _class(validator_for(schema, default=Draft202012Validator))
    validator = validator_class(schema, registry=referencing.Registry())
    rounds = 0
    try:
        while rounds < _MAX_CONVERSIONS and _convert_texts(validator, arguments):
            rounds += 1  # a converted object can contain text, too
        error = "; ".join(map(_explain, _errors(validator, arguments, _MAX_ERRORS)))
    except RecursionError:
        error = "they are nested too deeply for the schema"
    if error:
        return {"error": error}
    return {"arguments": arguments} if rounds else {}  # a copy of large arguments takes long


def _convert_texts(validator: Validator, arguments: dict[str, Any]) -> bool:
    """Replace text that is JSON where the schema excludes text. Return whether any was replaced."""
    has_changed = False
    for error in _errors(validator, arguments, _MAX_CONVERTED):
        if not _excludes_text(error) or not error.absolute_path:
            continue
        value = _value_of(error.instance)
        if isinstance(value, str):
            continue
        *parents, key = error.absolute_path
        container: Any = arguments
        for parent in parents:
            container = container[parent]
        container[key] = value
        has_changed = True
    return has_changed


def _excludes_text(error: ValidationError) -> bool:
    """Return whether a value is text, and the schema accepts no text in its place."""
    if not isinstance(error.instance, str):
        return False
    match error.validator:
        case "type":
            return True
        case "enum":
            return not any(isinstance(choice, str) for choice in error.validator_value)
        case "const":
            return not isinstance(error.validator_value, str)
        case "anyOf" | "oneOf":
            branches = {each.schema_path[0] for each in error.context}
            excluding = {each.schema_path[0] for each in error.context if _excludes_text(each)}
            return branches == excluding != set()
    return False


def _value_of(text: str) -> object:
    """Return the value of a text that is JSON, otherwise the text."""
    try:
        value = json.loads(_PYTHON_WORDS.get(text, text), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text
    return text if _is_nested_deeper(value, MAX_ARGUMENT_LEVELS) else value


def _is_nested_deeper(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_nested_deeper(item, levels - 1) for item in items)


def check_answer(schema: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the ``error`` of an answer, or why it is ``unchecked``, or an empty result if it fits
    the schema.

    An answer is unchecked if its schema is invalid, too large or cannot be evaluated.
    """
    try:
        check_schema(schema)
        value = json.loads(text, parse_constant=_refuse_constant)
        validator = validator_for(schema, default=Draft202012Validator)(
            schema, registry=referencing.Registry()
        )
        errors = [*islice(validator.iter_errors(value), _MAX_ERRORS)]
    except json.JSONDecodeError as error:
        return {"error": f"it is not JSON: {error}"}
    except Exception as error:  # such as an invalid schema, pattern or reference
        return {"unchecked": str(error)[:_MAX_ERROR_LENGTH] or type(error).__name__}
    return {"error": "; ".join(map(_explain, errors))} if errors else {}


def _refuse_constant(name: str) -> None:
    raise json.JSONDecodeError("invalid value", name, 0)


def _errors(validator: Validator, value: object, count: int) -> list[ValidationError]:
    """Return the first ``count`` errors of a value.

    A schema with an unresolvable reference accepts every value.
    """
    try:
        return [*islice(validator.iter_errors(value), count)]
    except (MemoryError, RecursionError):
        raise
    except Exception:  # the library does not document the type
        return []


def _explain(error: ValidationError) -> str:
    path = ".".join(map(str, error.absolute_path))
    text = f"{path}: {error.message}" if path else error.message
    return text[:_MAX_ERROR_LENGTH]


@cache
def _class(draft: type[Validator]) -> Any:
    # Do not evaluate patterns, which could take forever, or fetch external references. The MCP
    # server validates too.
    return extend(draft, {keyword: lambda *_: () for keyword in ("pattern", "patternProperties")})


def main() -> None:
    """Answer requests until stdin is closed.

    End the process if a request takes longer than its limit in seconds.
    """
    platform.limit_memory(_MAX_MEMORY)
    sys.setrecursionlimit(_MAX_LEVELS)
    operations: dict[str, Callable[..., dict[str, Any]]] = {
        "check_schema": check_schema,
        "check_arguments": check_arguments,
        "check_answer": check_answer,
    }
    for line in sys.stdin:
        operation, seconds, parameters = json.loads(line)
        with platform.end_process_after(seconds):
            try:
                result = operations[operation](**parameters)
            except InvalidSchema as error:
                result = {"error": str(error)}
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()
