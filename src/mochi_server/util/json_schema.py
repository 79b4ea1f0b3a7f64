"""Worker process for checks with JSON schemas from other parties.

It reads a request from each line of stdin and writes the result to stdout, both as JSON. It imports little, so
that it starts fast.
"""

import faulthandler
import json
import sys
from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import Any

import referencing
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for

from mochi_server.util import platform

_MAX_MEMORY = 1 << 30
_MAX_LEVELS = 5_000
_MAX_ERRORS = 20
_MAX_ERROR_LENGTH = 1_000


def check_schema(schema: dict[str, Any]) -> str | None:
    """Return the problem of a schema for its author, or None if the schema is valid."""
    try:
        # No formats are checked, because the check of `regex` rejects JavaScript patterns that Python does not support.
        validator_for(schema, default=Draft202012Validator).check_schema(schema, format_checker=FormatChecker(()))
    except RecursionError:
        return "its schema is too large"
    except SchemaError:
        return "its input schema is not a valid JSON schema"
    return None


def check_arguments(schema: dict[str, Any], arguments: dict[str, Any]) -> str | None:
    """Return what is wrong with the arguments, or None if they are valid."""
    validator_class = _class(validator_for(schema, default=Draft202012Validator))
    try:
        return "; ".join(_errors(validator_class(schema, registry=referencing.Registry()), arguments)) or None
    except RecursionError:
        return "they are nested too deeply for the schema"


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


@cache
def _class(draft: type[Validator]) -> Any:
    # Do not evaluate patterns, which could take forever, or fetch external references. The MCP server validates too.
    return extend(draft, {keyword: lambda *_: () for keyword in ("pattern", "patternProperties")})


def main() -> None:
    """Answer requests until stdin is closed. End the process if a request takes longer than its limit in seconds."""
    platform.limit_memory(_MAX_MEMORY)
    sys.setrecursionlimit(_MAX_LEVELS)
    operations: dict[str, Callable[..., str | None]] = {"schema": check_schema, "arguments": check_arguments}
    for line in sys.stdin:
        operation, seconds, parameters = json.loads(line)
        faulthandler.dump_traceback_later(seconds, exit=True)
        problem = operations[operation](**parameters)
        faulthandler.cancel_dump_traceback_later()
        sys.stdout.write(json.dumps(problem) + "\n")
        sys.stdout.flush()
