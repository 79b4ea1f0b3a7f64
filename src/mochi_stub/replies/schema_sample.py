"""Generation of values that are valid for a JSON schema, and of texts that match a regular
expression.

Equal schemas and seeds give equal values. Back-references and lookarounds are not supported, as in
Ollama.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from itertools import count, cycle, islice
from typing import Any, TypeAlias, TypeGuard
from urllib.parse import unquote

from mochi_stub.replies import WORDS, stable_hash

Schema: TypeAlias = Mapping[str, Any]
Refs: TypeAlias = "tuple[str, ...]"
"""The `$ref`s that led to a value."""
Pick = Callable[[int], int]  # pick(n) returns a whole number from 0 to n - 1

_READABLE = (
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_ "
    ".,:;/@+*#=%&!?()[]{}<>|\\\"'`~^$"
)
_MAX_REPEATS = 10_000
# the parser of the module re has no public name
if sys.version_info >= (3, 11):
    _PARSER = "re._parser"
    _COMPILER = "re._compiler"
else:
    _PARSER = "sre_parse"
    _COMPILER = "sre_compile"
_parse = import_module(_PARSER).parse
_compile = import_module(_COMPILER).compile


def sample(pattern: str, pick: Pick) -> str | None:
    """Return a text that contains a match of the pattern.

    Return None if the pattern is invalid or not supported.

    `pick(n)` selects one of n alternatives.
    """
    try:
        text = _sample(_parse(pattern), pick, {})
        is_valid = re.search(pattern, text)
    except (re.error, ValueError, IndexError, OverflowError, RecursionError):
        return None
    if not is_valid:
        return None
    return text


def _sample(parsed: Any, pick: Pick, characters_of: dict[str, str]) -> str:
    """Return a text for a parsed pattern.

    `characters_of` caches the characters that match an expression.
    """
    text = ""
    for index, (kind, value) in enumerate(parsed):
        match kind.name:
            case "AT":  # an anchor
                continue
            case "BRANCH":
                branches = value[1]
                chosen = branches[pick(len(branches))]
                text += _sample(chosen, pick, characters_of)
            case "SUBPATTERN":
                group = value[-1]
                text += _sample(group, pick, characters_of)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, repeated = value
                times = least
                if most >= least + 2:
                    times += pick(3)
                for _ in range(min(times, most, _MAX_REPEATS)):
                    text += _sample(repeated, pick, characters_of)
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":  # one character
                expression = repr((kind, value))
                if expression not in characters_of:
                    one = parsed[index : index + 1]
                    pattern = _compile(one, re.DOTALL)
                    characters_of[expression] = _characters(pattern.fullmatch)
                characters = characters_of[expression]
                text += characters[pick(len(characters))]
            case unsupported:
                raise ValueError(unsupported)
    return text


def _characters(matches: Callable[[str], object]) -> str:
    """Return all readable ASCII characters that match, or the first other Unicode character that
    matches, or "".
    """
    readable = "".join(filter(matches, _READABLE))
    if readable:
        return readable
    for code in range(0x10000):
        character = chr(code)
        if matches(character):
            return character
    return ""


MAX_VALUES = 10_000
MAX_LENGTH = 1_000_000
MAX_RECURSION = 1
_UUID = "123e4567-e89b-{}2d3-a456-426614174000"
FORMATS = {  # sample text for each string format of OpenAI, Ollama and Pydantic
    "date": "2026-01-15",
    "date-time": "2026-01-15T09:30:00Z",
    "time": "09:30:00Z",
    "duration": "PT90S",
    "email": "lorem@example.com",
    "hostname": "example.com",
    **dict.fromkeys(("ipv4", "ipvanyaddress"), "192.0.2.1"),
    "ipv4network": "192.0.2.0/24",
    "ipv6": "2001:db8::1",
    "ipv6network": "2001:db8::/32",
    "uri": "https://example.com/lorem",
    "uuid": _UUID.format(4),
    **{f"uuid{version}": _UUID.format(version) for version in range(1, 9)},
}
_TYPE_KEYWORDS = {
    "object": (
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "minProperties",
    ),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
    "string": ("pattern", "minLength", "maxLength", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


_STRICTER: Mapping[str, Callable[[list[float]], float]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}
"""Function that returns the strictest of several values of a keyword."""


class _Impossible(Exception):
    """No value of finite size is valid for the schema."""


def schema_sample(schema: Any, seed: int = 0) -> Any:
    """Return a value that is valid for the schema, or `{}` if the schema is empty or no valid value
    is found.

    These keywords are ignored: `not`, `if`, `contains`, `propertyNames`, `patternProperties` and
    those of dependencies. `oneOf` has the meaning of `anyOf`. A `pattern` overrides the limits of
    the length, and is ignored if `sample` does not support it.
    """
    if schema in ({}, True):
        return {}
    try:
        return _Sampler(schema, seed).make(schema, "", ())
    except (_Impossible, RecursionError, OverflowError, ValueError):
        return {}


@dataclass
class _Sampler:
    """Generator of values for one schema. `refs` are the `$ref`s that led to a value at `path`."""

    root: Any
    seed: int
    attempts: int = 0

    def make(self, schema: Any, path: str, refs: Refs) -> Any:
        self.attempts += 1
        if self.attempts > MAX_VALUES or schema is False:
            raise _Impossible
        schema, refs = self._resolved(_mapping(schema), refs)
        for key in ("anyOf", "oneOf"):
            if _list(schema.get(key)):
                return self._alternative(schema, key, path, refs)
        if "const" in schema:
            return schema["const"]
        options = _list(schema.get("enum"))
        if options:
            index = self._pick(path, len(options))
            return options[index]
        return self._of_type(schema, path, refs)

    def _of_type(self, schema: Schema, path: str, refs: Refs) -> Any:
        kind = _type(schema)
        match kind:
            case "null":
                return None
            case "boolean":
                return self._pick(path, 2) == 0
            case "integer" | "number":
                offset = self._pick(path, 100)
                return _number(schema, offset, whole=kind == "integer")
            case "array":
                return self._array(schema, path, refs)
            case "object":
                return self._object(schema, path, refs)
        return self._string(schema, path)

    def _resolved(self, schema: Schema, refs: Refs) -> tuple[dict[str, Any], Refs]:
        """Return the schema merged with those that `$ref` and `allOf` name, and `refs` with their
        `$ref`s. A `$ref` that several of them contain is added once: it is no recursion.
        """
        merged = dict(schema)
        ref = merged.pop("$ref", None)
        parts = list(_list(merged.pop("allOf", None)))
        if isinstance(ref, str):
            if refs.count(ref) > MAX_RECURSION:
                raise _Impossible
            refs = (*refs, ref)
            parts.append(self._referenced(ref))
        added: list[str] = []
        for part in parts:
            if part is False:
                raise _Impossible
            resolved, refs_of_part = self._resolved(_mapping(part), refs)
            added += refs_of_part[len(refs) :]
            merged = _merged(resolved, merged)
        return merged, (*refs, *dict.fromkeys(added))

    def _referenced(self, ref: str) -> Any:
        start, *steps = ref.split("/")
        if not start.startswith("#"):
            return {}
        found = self.root
        for step in steps:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = {str(index): item for index, item in enumerate(found)}
            found = _mapping(found).get(key, {})
        return found

    def _alternative(self, schema: Schema, key: str, path: str, refs: Refs) -> Any:
        common = dict(schema)
        options = common.pop(key)
        for option in options:
            if option is False:
                continue
            with suppress(_Impossible):
                merged = _merged(common, _mapping(option))
                return self.make(merged, path, refs)
        raise _Impossible

    def _object(self, schema: Schema, path: str, refs: Refs) -> dict[str, Any]:
        properties = _mapping(schema.get("properties"))
        extra = schema.get("additionalProperties", {})
        required = []
        for name in _list(schema.get("required")):
            if isinstance(name, str):
                required.append(name)
        sample: dict[str, Any] = {}
        for name in _chosen_names(schema, properties, required):
            declared = properties.get(name, extra)
            try:
                sample[name] = self.make(declared, f"{path}/{name}", refs)
            except _Impossible:
                if name in required:
                    raise
        least = count_limit(schema.get("minProperties"), 0)
        number = 0
        while len(sample) < least:
            number += 1
            name = f"key{number}"
            if name not in properties:
                sample[name] = self.make(extra, f"{path}/{name}", refs)
        if len(sample) > count_limit(schema.get("maxProperties"), MAX_VALUES):
            raise _Impossible
        return sample

    def _array(self, schema: Schema, path: str, refs: Refs) -> list[Any]:
        least = count_limit(schema.get("minItems"), 0)
        further = schema.get("items", {})
        # in older drafts, the prefix is a list of `items`
        prefix = _list(schema.get("prefixItems", further))
        usual = len(prefix)
        if not prefix:
            usual = 1 + self._pick(path, 2)
        wanted = max(least, usual)
        length = min(wanted, count_limit(schema.get("maxItems"), wanted))
        if length < least:
            raise _Impossible
        are_unique = bool(schema.get("uniqueItems"))
        items: list[Any] = []
        for index in range(length):
            declared = further
            if index < len(prefix):
                declared = prefix[index]
            taken = items if are_unique else []
            try:
                item = self._item(declared, f"{path}/{index}", refs, taken)
            except _Impossible:
                if index < least:
                    raise
                break
            items.append(item)
        return items

    def _item(self, schema: Any, path: str, refs: Refs, taken: list[Any]) -> Any:
        """Return a value that is not `taken`. Each attempt picks other values."""
        attempt = path
        for number in range(1, 101):
            item = self.make(schema, attempt, refs)
            if item not in taken:
                return item
            attempt = f"{path}#{number}"
        raise _Impossible

    def _string(self, schema: Schema, path: str) -> str:
        pattern = schema.get("pattern")
        if isinstance(pattern, str):  # as in Ollama, without the limits of the length
            text = self._matching(pattern, path)
            if text is not None:
                return text
        name = schema.get("format")
        if isinstance(name, str) and name in FORMATS:
            return FORMATS[name]
        least = count_limit(schema.get("minLength"), 0)
        longest = count_limit(schema.get("maxLength"), MAX_LENGTH)
        most = min(longest, MAX_LENGTH)
        if least > most:
            raise _Impossible
        start = self._pick(path, len(WORDS))
        words = 2 + self._pick(f"{path}~", 4)
        end = start + max(words, least // 3)
        passage = islice(cycle(WORDS), start, end)
        text = " ".join(passage).ljust(least, "m")
        return text[:most]

    def _matching(self, pattern: str, path: str) -> str | None:
        """Return a text that matches the pattern, or None. Each pick has a path of its own."""
        calls = count()

        def pick(below: int) -> int:
            number = next(calls)
            return self._pick(f"{path}~{number}", below)

        return sample(pattern, pick)

    def _pick(self, path: str, below: int) -> int:
        if below <= 1:
            return 0
        return stable_hash(f"{self.seed}{path}") % below


def _chosen_names(schema: Schema, properties: Schema, required: list[str]) -> list[str]:
    """Return the names of the properties of a sample: all required ones, and as many others as
    `maxProperties` permits.
    """
    most = count_limit(schema.get("maxProperties"), MAX_VALUES)
    room = most - len(set(required))
    names = []
    for name in properties:
        if name in required:
            names.append(name)
        elif room > 0:
            names.append(name)
            room -= 1
    for name in required:
        if name not in names:
            names.append(name)
    return names


def _type(schema: Schema) -> str:
    declared = schema.get("type")
    if isinstance(declared, str):
        return declared
    for kind in _list(declared):
        if kind != "null":
            return str(kind)
    if declared:
        return "null"
    for kind, hints in _TYPE_KEYWORDS.items():
        if not schema.keys().isdisjoint(hints):
            return kind
    return "string"


def _merged(first: Schema, second: Schema) -> dict[str, Any]:
    """Return a schema with the keywords of both.

    Of two limits the stricter one is taken. A property that both declare must be valid for both, as
    must `items` and `additionalProperties`. Of two `enum`s the common values are taken, and of
    other keywords the second value. Raises _Impossible if two `enum`s have no common value.
    """
    merged = {**first, **second}
    for keyword, strictest in _STRICTER.items():
        values = [first.get(keyword), second.get(keyword)]
        limits = list(filter(is_finite, values))
        if limits:
            merged[keyword] = strictest(limits)
    properties = dict(_mapping(first.get("properties")))
    for name, declared in _mapping(second.get("properties")).items():
        earlier = properties.get(name, declared)
        properties[name] = _both(declared, earlier)
    if properties:
        merged["properties"] = properties
    for keyword in ("items", "additionalProperties"):
        if keyword in first and keyword in second:
            merged[keyword] = _both(second[keyword], first[keyword])
    options = _list(first.get("enum"))
    others = _list(second.get("enum"))
    if options and others:
        common = [value for value in options if value in others]
        if not common:
            raise _Impossible
        merged["enum"] = common
    required = [*_list(first.get("required")), *_list(second.get("required"))]
    if required:
        merged["required"] = required
    return merged


def _both(declared: Any, earlier: Any) -> Any:
    """Return a schema whose values are valid for both schemas."""
    if declared == earlier:
        return declared
    return {"allOf": [declared, earlier]}


def _number(schema: Schema, offset: int, *, whole: bool) -> int | float:
    """Return a valid number: the minimum plus `offset`.

    If there is a maximum, `offset` is a percentage of the range. Without a minimum, the range
    begins at 0, or at a negative maximum.
    """
    low = _lower_limit(schema.get("minimum"), schema.get("exclusiveMinimum"), whole=whole)
    high = _upper_limit(schema.get("maximum"), schema.get("exclusiveMaximum"), whole=whole)
    if low > high:
        raise _Impossible
    start = low
    if low == -math.inf:
        start = min(0, high)
    distance: float = offset
    if high != math.inf:
        share = offset / 100
        distance = (high - start) * share
    value = start + distance
    multiple = schema.get("multipleOf")
    if not is_finite(multiple) or multiple <= 0:
        multiple = None
    if whole:
        # The integers among the multiples of p/q are the multiples of p.
        step = Fraction(str(multiple or 1)).numerator
        return _nearest_multiple(value, step, low, high)
    if multiple is not None:
        return _nearest_multiple(value, multiple, low, high)
    short = round(value, 2)
    if low <= short <= high:
        return short
    return value


def _nearest_multiple(value: float, step: float, low: float, high: float) -> int | float:
    """Return the multiple of `step` from `low` to `high` that is next to `value`.

    Raises _Impossible if there is none.
    """
    times = value // step
    if times * step < low:
        times = -(-low // step)  # rounded up
    if times * step > high:
        times = high // step
    found = times * step
    if found < low:
        raise _Impossible
    if isinstance(step, int):
        return int(found)
    return round(found, 10)


def _lower_limit(minimum: Any, exclusive: Any, *, whole: bool) -> float:
    """Return the least number that both minimums permit."""
    limits: list[float] = [-math.inf]
    if is_finite(minimum):
        limits.append(minimum)
    if is_finite(exclusive):
        next_number = math.floor(exclusive) + 1 if whole else exclusive + _margin(exclusive)
        limits.append(next_number)
    lowest = max(limits)
    if whole and lowest != -math.inf:
        return math.ceil(lowest)
    return lowest


def _upper_limit(maximum: Any, exclusive: Any, *, whole: bool) -> float:
    """Return the largest number that both maximums permit."""
    limits: list[float] = [math.inf]
    if is_finite(maximum):
        limits.append(maximum)
    if is_finite(exclusive):
        next_number = math.ceil(exclusive) - 1 if whole else exclusive - _margin(exclusive)
        limits.append(next_number)
    highest = min(limits)
    if whole and highest != math.inf:
        return math.floor(highest)
    return highest


def _margin(limit: float) -> float:
    """Return the distance of the next number to an exclusive limit."""
    return max(abs(limit), 1) * 1e-6


def is_finite(value: Any) -> TypeGuard[float]:
    """Return whether a value of JSON is a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value)


def _mapping(value: Any) -> Schema:
    if isinstance(value, Mapping):
        return value
    return {}


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return []


def count_limit(value: Any, default: int) -> int:
    """Return a limit such as `maxLength`, which can be 10.0, or the default if it is invalid."""
    if is_finite(value) and value >= 0 and value == int(value):
        return int(value)
    return default
