"""Masks of exported sessions: ``***`` replaces what a regular expression matches in free text, and
0 replaces numbers.

Structure is not masked, because the exported test creates a session with it: the names of models,
tools and agents, the names and numbers of options, and the keywords, types and limits of a JSON
schema. A masked value can break a kept limit, such as ``minimum``.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from mochi_server.sessions.types import OPTION_PROPERTIES
from mochi_server.util.text import MASK

Json = dict[str, Any]

_SCHEMAS_BY_NAME = ("$defs", "definitions", "dependentSchemas", "properties")
_SCHEMAS = (
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_TEXTS = (
    "$anchor",
    "$comment",
    "$id",
    "const",
    "default",
    "description",
    "enum",
    "examples",
    "title",
)
_STRUCTURE = (
    "$schema",
    "format",
    "type",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "uniqueItems",
)


class Mask:
    """Mask of one export, which replaces what a regular expression matches."""

    def __init__(self, pattern: str) -> None:
        """Raises ``re.error``."""
        self._pattern = re.compile(pattern)
        self._names: dict[str, str] = {}  # masked names by name

    def __call__(self, value: Any) -> Any:
        """Return a JSON value with masked names, strings and numbers.

        Types stay, but the limits of a schema can refuse masked values.
        """
        if isinstance(value, dict):
            masked: Json = {}
            for name, item in value.items():
                key = self.name(name)
                masked[key] = self(item)
            return masked
        if isinstance(value, list):
            return [self(item) for item in value]
        if isinstance(value, str):
            return self._pattern.sub(MASK, value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        return 0 if self._pattern.search(str(value)) else value

    def name(self, name: str) -> str:
        """Return the masked name of a property. Names with the same mask stay different."""
        masked_name = self._pattern.sub(MASK, name)
        if masked_name == name:
            return name
        if name not in self._names:
            self._names[name] = self._unused(masked_name)
        return self._names[name]

    def _unused(self, masked_name: str) -> str:
        """Return a masked name, with a number if another name has the same mask."""
        unused = masked_name
        number = 1
        while unused in self._names.values():
            number += 1
            unused = f"{masked_name}{number}"
        return unused


def masked_json_text(text: str, mask: Mask) -> str:
    """Return a masked text. If the text is JSON, the masked text is JSON, too."""
    try:
        value = json.loads(text)
    except ValueError:
        return str(mask(text))
    # An object that repeats a name has values that its dict lacks.
    pairs = json.loads(text, object_pairs_hook=_as_lists)
    return text if mask(pairs) == pairs else json.dumps(mask(value), ensure_ascii=False)


def _as_lists(pairs: list[tuple[str, Any]]) -> list[list[Any]]:
    return [[name, value] for name, value in pairs]


def masked_setting(name: str, value: Any, mask: Mask) -> Any:
    """Return a setting of a session with masked free text.

    Settings that have no free text stay as they are.
    """
    match name:
        case "options":
            return _masked_options(value, mask)
        case "format":
            return _masked_format(value, mask)
        case "agent_settings":
            return _masked_agents(value, mask)
    return value


def _masked_options(options: Json, mask: Mask) -> Json:
    masked: Json = {}
    for name, value in options.items():
        if name == "stop":
            masked[name] = mask(value)
        elif name in OPTION_PROPERTIES:
            masked[name] = value
        else:
            masked[mask.name(name)] = mask(value)
    return masked


def _masked_agents(settings: Json, mask: Mask) -> Json:
    return {
        name: value if name == "enabled_agents" else mask(value) for name, value in settings.items()
    }


def _masked_format(schema: Any, mask: Mask) -> Any:
    return schema if isinstance(schema, str) else _masked_schema(schema, mask)


def _masked_schema(schema: Any, mask: Mask) -> Any:
    """Return a JSON schema, or a list of schemas, with masked names of properties, texts and
    values.
    """
    if isinstance(schema, list):
        return [_masked_schema(item, mask) for item in schema]
    if not isinstance(schema, dict):
        return schema
    masked: Json = {}
    for keyword, value in schema.items():
        key = keyword if keyword in _KEYWORDS else mask.name(keyword)
        masked[key] = _VALUES.get(keyword, _masked_data)(value, mask)
    return masked


def _masked_data(value: Any, mask: Mask) -> Any:
    return mask(value)


def _unmasked(value: Any, _: Mask) -> Any:
    return value


def _masked_schemas_by_name(schemas: Any, mask: Mask) -> Any:
    """Return schemas by name, with masked names."""
    return _with_masked_names(schemas, mask, _masked_schema)


def _masked_property_names(names: Any, mask: Mask) -> Any:
    """Return names of properties, masked as in the schema."""
    if not isinstance(names, list):
        return mask(names)
    return [mask.name(str(name)) for name in names]


def _masked_dependencies(names: Any, mask: Mask) -> Any:
    """Return the names of properties that a property requires, by its name."""
    return _with_masked_names(names, mask, _masked_property_names)


def _with_masked_names(values: Any, mask: Mask, mask_value: Callable[[Any, Mask], Any]) -> Any:
    """Return values by name, with masked names. ``mask_value`` masks a value."""
    if not isinstance(values, dict):
        return mask(values)
    result: Json = {}
    for name, value in values.items():
        key = mask.name(name)
        result[key] = mask_value(value, mask)
    return result


def _masked_regex(regex: Any, mask: Mask) -> str:
    """Return a regular expression that matches the masked text, which the mask alone would not."""
    return str(mask(regex)).replace(MASK, re.escape(MASK))


def _masked_patterns(schemas: Any, mask: Mask) -> Any:
    """Return schemas by the regular expression of a name, with masked expressions.

    Of expressions with the same mask, only the last schema stays.
    """
    if not isinstance(schemas, dict):
        return mask(schemas)
    masked: Json = {}
    for regex, schema in schemas.items():
        key = _masked_regex(regex, mask)
        masked[key] = _masked_schema(schema, mask)
    return masked


def _masked_reference(reference: Any, mask: Mask) -> str:
    """Return a reference with each name masked as in the schema, so that it still refers to a
    definition.

    Keywords stay, and indices in lists of schemas.
    """
    kept = ("", "#", *_SCHEMAS_BY_NAME, *_SCHEMAS)
    names = []
    previous = ""
    for name in str(reference).split("/"):
        is_index = previous in _SCHEMAS and name.isdecimal()
        names.append(name if name in kept or is_index else mask.name(name))
        previous = name
    return "/".join(names)


_VALUES: dict[str, Callable[[Any, Mask], Any]] = {
    **dict.fromkeys(_SCHEMAS_BY_NAME, _masked_schemas_by_name),
    **dict.fromkeys(_SCHEMAS, _masked_schema),
    **dict.fromkeys(_STRUCTURE, _unmasked),
    "$ref": _masked_reference,
    "pattern": _masked_regex,
    "patternProperties": _masked_patterns,
    "required": _masked_property_names,
    "dependentRequired": _masked_dependencies,
}
"""Functions that mask the values of keywords. Values of other keywords are data."""
_KEYWORDS = frozenset((*_VALUES, *_TEXTS))
