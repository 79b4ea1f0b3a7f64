"""JSON schema to a valid instance, the same for the same schema and seed. Knows no wire and no model.

Objects get all their properties, optional ones too, save where a schema that contains itself would never end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mochi_stub.lorem import WORDS, stable_hash
from mochi_stub.numbers import number_between
from mochi_stub.patterns import Pick, matching

MAX_VALUES = 10_000
MAX_LENGTH = 1_000_000
MAX_RECURSION = 1
MAX_REPEATED, MAX_TRIED = 1_000, 20_000
NEAR = 20
"""How many lengths are tried for a pattern that also has a least length."""
FORMATS = {
    "base64": "bG9yZW0=",
    "date": "2026-01-15",
    "date-time": "2026-01-15T09:30:00Z",
    "time": "09:30:00Z",
    "duration": "PT90S",
    "email": "lorem@example.com",
    "hostname": "example.com",
    "idn-email": "lorem@example.com",
    "idn-hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv4network": "192.0.2.0/24",
    "ipv6": "2001:db8::1",
    "ipv6network": "2001:db8::/32",
    "ipvanyaddress": "192.0.2.1",
    "iri": "https://example.com/lorem",
    "iri-reference": "/lorem",
    "json-pointer": "/lorem",
    "regex": "lorem",
    "relative-json-pointer": "0",
    "uri": "https://example.com/lorem",
    "uri-reference": "/lorem",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
    **{f"uuid{version}": f"123e4567-e89b-{version}2d3-a456-426614174000" for version in range(1, 9)},
}
_HINTS = {
    "object": ("properties", "required", "additionalProperties", "patternProperties", "minProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
    "string": ("pattern", "minLength", "maxLength", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


class _Impossible(Exception):
    """No value, or none that ends."""


def instance(schema: Any, seed: int = 0) -> Any:
    """A value that the schema allows; `{}` where it says nothing, or allows nothing that could be made."""
    try:
        return _Maker(schema, seed).make(schema, "", ()) if schema not in ({}, True) else {}
    except (_Impossible, RecursionError, OverflowError):  # bounds at the end of all numbers have no room beyond them
        return {}


class _Maker:
    """Values of one schema. `path` says where a value stands, `refs` what it stands in."""

    def __init__(self, root: Any, seed: int) -> None:
        self.root = root
        self.seed = seed
        self.made = 0

    def make(self, schema: Any, path: str, refs: tuple[str, ...]) -> Any:
        self.made += 1
        if self.made > MAX_VALUES or schema is False:
            raise _Impossible
        schema, refs = self._resolved(_mapping(schema), refs)
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                return self._alternative(schema, key, path, refs)
        if "const" in schema:
            return schema["const"]
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return schema["enum"][self._pick(path, len(schema["enum"]))]
        return self._typed(_type(schema), schema, path, refs)

    def _resolved(self, schema: Mapping[str, Any], refs: tuple[str, ...]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The schema with what it refers to and what it consists of put into it."""
        merged = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
        ref = schema.get("$ref")
        parts = list(schema["allOf"]) if isinstance(schema.get("allOf"), list) else []
        if isinstance(ref, str):
            if refs.count(ref) > MAX_RECURSION:
                raise _Impossible
            refs = (*refs, ref)
            parts.append(self._found(ref))
        for part in parts:
            resolved, refs = self._resolved(_mapping(part), refs)
            merged = _merged(resolved, merged)
        return merged, refs

    def _found(self, ref: str) -> Any:
        """What a reference inside the schema points at."""
        found = self.root
        for escaped in ref.removeprefix("#").split("/")[1:]:
            step = escaped.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
                found = found[int(step)]
            elif isinstance(found, Mapping) and step in found:
                found = found[step]
            else:
                return {}
        return found if ref.startswith("#") else {}

    def _alternative(self, schema: Mapping[str, Any], key: str, path: str, refs: tuple[str, ...]) -> Any:
        """The first alternative that ends."""
        common = {name: value for name, value in schema.items() if name != key}
        for option in schema[key]:
            try:
                resolved, seen = self._resolved(_mapping(option), refs)
                if option is not False:
                    return self.make(_merged(common, resolved), path, seen)
            except _Impossible:
                if self.made > MAX_VALUES:
                    raise
        raise _Impossible

    def _typed(self, kind: str, schema: Mapping[str, Any], path: str, refs: tuple[str, ...]) -> Any:
        if kind == "object":
            return self._object(schema, path, refs)
        if kind == "array":
            return self._array(schema, path, refs)
        if kind in ("integer", "number"):
            return number_between(schema, self._pick(path, 100), whole=kind == "integer")
        if kind == "boolean":
            return self._pick(path, 2) == 0
        return None if kind == "null" else self._string(schema, path)

    def _object(self, schema: Mapping[str, Any], path: str, refs: tuple[str, ...]) -> dict[str, Any]:
        properties = _mapping(schema.get("properties"))
        required = [name for name in _list(schema.get("required")) if isinstance(name, str)]
        extra = schema.get("additionalProperties", {})
        most = _count(schema.get("maxProperties"), len(properties) + len(required))
        made: dict[str, Any] = {}
        optional_room = most - len(set(required))
        for name in [*properties, *(name for name in required if name not in properties)]:
            optional_room -= name not in required
            if name not in required and optional_room < 0:
                continue
            try:
                made[name] = self.make(properties.get(name, extra), f"{path}/{name}", refs)
            except _Impossible:
                if name in required:
                    raise
        for number in range(1, _count(schema.get("minProperties"), 0) - len(made) + 1):
            made[f"key{number}"] = self.make(extra, f"{path}/key{number}", refs)
        return made

    def _array(self, schema: Mapping[str, Any], path: str, refs: tuple[str, ...]) -> list[Any]:
        least = _count(schema.get("minItems"), 0)
        first = _list(schema.get("prefixItems"))
        wanted = max(least, len(first) or 1 + self._pick(path, 2))
        made: list[Any] = []
        try:
            for index in range(min(wanted, _count(schema.get("maxItems"), wanted))):
                item = first[index] if index < len(first) else schema.get("items", {})
                made.append(self._item(item, f"{path}/{index}", refs, made if schema.get("uniqueItems") else []))
        except _Impossible:
            if len(made) < least:
                raise
        return made

    def _item(self, schema: Any, path: str, refs: tuple[str, ...], taken: list[Any]) -> Any:
        """One item, another than those that are taken."""
        for attempt in range(100):
            item = self.make(schema, path if not attempt else f"{path}#{attempt}", refs)
            if item not in taken:
                return item
        raise _Impossible

    def _string(self, schema: Mapping[str, Any], path: str) -> str:
        if isinstance(schema.get("pattern"), str):
            found = self._patterned(schema, path)
            if found is not None:
                return found
        form = schema.get("format")
        if isinstance(form, str) and form in FORMATS:
            return FORMATS[form]
        least = min(_count(schema.get("minLength"), 0), MAX_LENGTH)
        start, count = self._pick(path, len(WORDS)), max(2 + self._pick(f"{path}~", 4), least // 3)
        text = " ".join(WORDS[(start + index) % len(WORDS)] for index in range(count))
        return text.ljust(least, "m")[: _count(schema.get("maxLength"), len(text) + least)]

    def _patterned(self, schema: Mapping[str, Any], path: str) -> str | None:
        """A text of the pattern, of a length that is allowed; where none is found that is, of another."""
        least, most = _count(schema.get("minLength"), 0), _count(schema.get("maxLength"), MAX_LENGTH)
        first = None
        for text in self._texts(schema["pattern"], path, least):
            if least <= len(text) <= most:
                return text
            first = text if first is None else first
        return first

    def _texts(self, pattern: str, path: str, least: int) -> Iterator[str]:
        """Texts of the pattern: a usual one, long ones, the shortest. Few where they are huge: each takes its time."""
        longest, made = min(least, MAX_REPEATED), 0
        for longer in dict.fromkeys([0, *range(longest, max(-1, longest - NEAR), -1)]):
            for attempt in range(3):
                text = matching(pattern, self._picker(f"{path}~{attempt}" if attempt else path), longer)
                if text is None:
                    return
                yield text
                made += len(text)
                if made > MAX_TRIED:
                    return
        shortest = matching(pattern, lambda _below: 0)
        if shortest is not None:
            yield shortest

    def _picker(self, path: str) -> Pick:
        """One choice after the other."""
        turns = iter(range(MAX_LENGTH))
        return lambda below: self._pick(f"{path}~{next(turns)}", below)

    def _pick(self, path: str, below: int) -> int:
        return stable_hash(f"{self.seed}{path}") % below if below > 1 else 0


def _type(schema: Mapping[str, Any]) -> str:
    """The type as declared, the first one that is not null; where none is, the one that the other words hint at."""
    declared = schema.get("type")
    if isinstance(declared, list):
        return next((str(one) for one in declared if one != "null"), "null" if declared else "string")
    if isinstance(declared, str):
        return declared
    return next((kind for kind, hints in _HINTS.items() if any(hint in schema for hint in hints)), "string")


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Both schemas at once; of two bounds the narrower holds."""
    merged = {**one, **other}
    for key in one.keys() & other.keys():
        left, right = one[key], other[key]
        if key in ("properties", "$defs"):
            merged[key] = {**_mapping(left), **_mapping(right)}
        elif key == "required":
            merged[key] = [*_list(left), *(name for name in _list(right) if name not in _list(left))]
        elif key == "enum":
            merged[key] = [value for value in _list(left) if value in _list(right)]
        elif isinstance(left, (int, float)) and isinstance(right, (int, float)):
            merged[key] = max(left, right) if "min" in key.lower() else min(left, right)
    return merged


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
