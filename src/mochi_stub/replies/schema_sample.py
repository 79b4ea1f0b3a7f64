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
from importlib import import_module
from itertools import count, cycle, islice
from typing import Any, TypeGuard
from urllib.parse import unquote

from mochi_stub.replies import WORDS, stable_hash

Pick = Callable[[int], int]  # pick(n) returns a whole number from 0 to n - 1

_READABLE = (
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_ "
    ".,:;/@+*#=%&!?()[]{}<>|\\\"'`~^$"
)
_MAX_REPEATS = 10_000
# the parser of the module re has no public name
_PARSER, _COMPILER = (
    ("re._parser", "re._compiler") if sys.version_info >= (3, 11) else ("sre_parse", "sre_compile")
)
_parse, _compile = import_module(_PARSER).parse, import_module(_COMPILER).compile


def sample(pattern: str, pick: Pick) -> str | None:
    """Return a text that contains a match of the pattern.

    Return None if the pattern is invalid or not supported.

    `pick(n)` selects one of n alternatives.
    """
    try:
        text = _sample(_parse(pattern), pick, {})
        return text if re.search(pattern, text) else None
    except (re.error, ValueError, IndexError, OverflowError, RecursionError):
        return None


def _sample(parsed: Any, pick: Pick, known: dict[str, str]) -> str:
    """Return a text for a parsed pattern.

    `known` caches the characters that match an expression.
    """
    text = ""
    for index, (kind, value) in enumerate(parsed):
        match kind.name:
            case "AT":  # an anchor
                continue
            case "BRANCH":
                branches = value[1]
                text += _sample(branches[pick(len(branches))], pick, known)
            case "SUBPATTERN":
                text += _sample(value[-1], pick, known)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, repeated = value
                times = least + (pick(3) if most >= least + 2 else 0)
                text += "".join(
                    [_sample(repeated, pick, known) for _ in range(min(times, most, _MAX_REPEATS))]
                )
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":  # one character
                expression = repr((kind, value))
                if expression not in known:
                    known[expression] = _characters(
                        _compile(parsed[index : index + 1], re.DOTALL).fullmatch
                    )
                characters = known[expression]
                text += characters[pick(len(characters))]
            case unsupported:
                raise ValueError(unsupported)
    return text


def _characters(matches: Callable[[str], object]) -> str:
    """Return all readable ASCII characters that match, or the first other Unicode character that
    matches.
    """
    return "".join(filter(matches, _READABLE)) or next(
        filter(matches, map(chr, range(0x10000))), ""
    )


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


class _Impossible(Exception):
    """No value of finite size is valid for the schema."""


def schema_sample(schema: Any, seed: int = 0) -> Any:
    """Return a value that is valid for the schema, or `{}` if the schema is empty or no valid value
    is found.
    """
    try:
        return _Sampler(schema, seed).make(schema, "", ()) if schema not in ({}, True) else {}
    except (_Impossible, RecursionError, OverflowError, ValueError):
        return {}


@dataclass
class _Sampler:
    """Generator of values for one schema. `refs` are the `$ref`s that led to a value at `path`."""

    root: Any
    seed: int
    values: int = 0

    def make(self, schema: Any, path: str, refs: tuple[str, ...]) -> Any:
        self.values += 1
        if self.values > MAX_VALUES or schema is False:
            raise _Impossible
        schema, refs = self._resolved(_mapping(schema), refs)
        if key := next((key for key in ("anyOf", "oneOf") if _list(schema.get(key))), None):
            return self._alternative(schema, key, path, refs)
        if "const" in schema:
            return schema["const"]
        if options := _list(schema.get("enum")):
            return options[self._pick(path, len(options))]
        kind = _type(schema)
        if kind in ("object", "array"):
            return (self._object if kind == "object" else self._array)(schema, path, refs)
        if kind in ("integer", "number"):
            return _number(schema, self._pick(path, 100), whole=kind == "integer")
        values = {"boolean": self._pick(path, 2) == 0, "null": None}
        return values[kind] if kind in values else self._string(schema, path)

    def _resolved(
        self, schema: Mapping[str, Any], refs: tuple[str, ...]
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        merged = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
        ref = schema.get("$ref")
        parts = [*_list(schema.get("allOf"))]
        if isinstance(ref, str):
            if refs.count(ref) > MAX_RECURSION:
                raise _Impossible
            refs = (*refs, ref)
            parts.append(self._referenced(ref))
        for part in parts:
            resolved, refs = self._resolved(_mapping(part), refs)
            merged = _merged(resolved, merged)
        return merged, refs

    def _referenced(self, ref: str) -> Any:
        found = self.root if ref.startswith("#") else {}
        for step in ref.split("/")[1:]:
            found = _mapping(found).get(unquote(step).replace("~1", "/").replace("~0", "~"), {})
        return found

    def _alternative(
        self, schema: Mapping[str, Any], key: str, path: str, refs: tuple[str, ...]
    ) -> Any:
        common = {name: value for name, value in schema.items() if name != key}
        for option in schema[key]:
            with suppress(_Impossible):
                return self.make(
                    option is not False and _merged(common, _mapping(option)), path, refs
                )
        raise _Impossible

    def _object(
        self, schema: Mapping[str, Any], path: str, refs: tuple[str, ...]
    ) -> dict[str, Any]:
        properties = _mapping(schema.get("properties"))
        required = [name for name in _list(schema.get("required")) if isinstance(name, str)]
        extra = schema.get("additionalProperties", {})
        room = _count(schema.get("maxProperties"), MAX_VALUES) - len(set(required))
        optional = [name for name in properties if name not in required][: max(room, 0)]
        sample: dict[str, Any] = {}
        for name in [
            name
            for name in dict.fromkeys([*properties, *required])
            if name in required or name in optional
        ]:
            try:
                sample[name] = self.make(properties.get(name, extra), f"{path}/{name}", refs)
            except _Impossible:
                if name in required:
                    raise
        for number in range(1, _count(schema.get("minProperties"), 0) - len(sample) + 1):
            sample[f"key{number}"] = self.make(extra, f"{path}/key{number}", refs)
        return sample

    def _array(self, schema: Mapping[str, Any], path: str, refs: tuple[str, ...]) -> list[Any]:
        least = _count(schema.get("minItems"), 0)
        first = _list(
            schema.get("prefixItems", schema.get("items"))
        )  # a list of `items` has the same meaning
        length = max(least, len(first) or 1 + self._pick(path, 2))
        items: list[Any] = []
        try:
            for index in range(min(length, _count(schema.get("maxItems"), length))):
                item = first[index] if index < len(first) else schema.get("items", {})
                items.append(
                    self._item(
                        item, f"{path}/{index}", refs, items if schema.get("uniqueItems") else []
                    )
                )
        except _Impossible:
            if len(items) < least:
                raise
        return items

    def _item(self, schema: Any, path: str, refs: tuple[str, ...], taken: list[Any]) -> Any:
        for attempt in range(100):
            item = self.make(schema, path if not attempt else f"{path}#{attempt}", refs)
            if item not in taken:
                return item
        raise _Impossible

    def _string(self, schema: Mapping[str, Any], path: str) -> str:
        least = min(_count(schema.get("minLength"), 0), MAX_LENGTH)
        most = _count(schema.get("maxLength"), MAX_LENGTH)
        pattern, form = schema.get("pattern"), schema.get("format")
        if isinstance(pattern, str):  # as in Ollama, without the limits of the length
            calls = count()
            text = sample(pattern, lambda below: self._pick(f"{path}~{next(calls)}", below))
            if text is not None:
                return text
        if isinstance(form, str) and form in FORMATS:
            return FORMATS[form]
        start = self._pick(path, len(WORDS))
        words = max(2 + self._pick(f"{path}~", 4), least // 3)
        text = " ".join(islice(cycle(WORDS), start, start + words))
        return text.ljust(least, "m")[:most]

    def _pick(self, path: str, below: int) -> int:
        return stable_hash(f"{self.seed}{path}") % below if below > 1 else 0


def _type(schema: Mapping[str, Any]) -> str:
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


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**first, **second}
    properties = {**_mapping(first.get("properties")), **_mapping(second.get("properties"))}
    required = [*_list(first.get("required")), *_list(second.get("required"))]
    if properties:
        merged["properties"] = properties
    if required:
        merged["required"] = required
    return merged


def _number(schema: Mapping[str, Any], offset: int, *, whole: bool) -> int | float:
    """Return a valid number: the minimum plus `offset`, a percentage of the range if there is a
    maximum.
    """
    low = _least(schema.get("minimum"), schema.get("exclusiveMinimum"), 1, whole)
    high = -_least(schema.get("maximum"), schema.get("exclusiveMaximum"), -1, whole)
    start = min(0, high) if low == -math.inf else low
    value = start + offset if high == math.inf else start + (high - start) * (offset / 100)
    multiple = schema.get("multipleOf")
    step: float = multiple if _finite(multiple) and multiple > 0 else int(whole)
    if not step:
        short = round(value, 2)
        return short if low <= short <= high else value
    times = value // step
    if times * step < low:
        times = -(-low // step)  # rounded up
    if times * step > high:
        times = high // step
    found = times * step
    return int(found) if whole or isinstance(step, int) else round(found, 10)


def _least(minimum: Any, above: Any, sign: int, whole: bool) -> float:
    least: list[float] = [-math.inf]
    if _finite(minimum):
        least.append(math.ceil(minimum * sign) if whole else minimum * sign)
    if _finite(above):
        above *= sign
        least.append(math.floor(above) + 1 if whole else above + max(abs(above), 1) * 1e-6)
    return max(least)


def _finite(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: Any, default: int) -> int:
    return (
        value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
    )
