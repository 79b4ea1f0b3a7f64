"""Decoder for request bodies with the rules and error messages of Go.

Only the first JSON value is decoded; the bytes after that value are ignored. Field names are matched
case-insensitively, and a field whose value is null is treated as missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isinf
from typing import Any, NoReturn

import orjson

from mochi_stub.reply import HttpError
from mochi_stub.wire.ollama.go_json import quoted

MAX_DEPTH = 10_000
Decoder = Callable[[Any], Any]
"""Function that decodes a JSON value. Raises Mismatch if the value has the wrong type."""


def loads(data: bytes) -> Any:
    """Decode the first JSON value in the data and ignore the rest. Raises HttpError and RecursionError."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        value = _loads_with_sources(data)
    # Go replaces lone surrogates instead of rejecting them.
    text = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
    return json.loads(text.decode("utf-16", "replace"))


def _loads_with_sources(data: bytes) -> Any:
    """Decode the first JSON value like `loads`, but keep lone surrogates and the source text of each number."""
    text = data[: _value_end(data)].decode("utf-8", "replace")
    return json.loads(text, parse_int=_integer, parse_float=_SourceFloat)


def _integer(digits: str) -> float:
    return int(digits) if len(digits) < 4300 else _SourceFloat(digits)


class _SourceFloat(float):
    """Number whose text is that of the source, such as `1e2`."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __str__(self) -> str:
        return self.source


_SPACE = rb"[ \t\r\n]*"
_OPEN_STRING = rb'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*'
_WHOLE = rb"-?(?:0|[1-9][0-9]*(?![0-9]))"
_NUMBER = rb"%s(?:(?:\.[0-9]+)?[eE][+-]?[0-9]+|\.[0-9]+(?![0-9eE])|(?![.eE]))" % _WHOLE
_SCALAR = rb"(?:%s\"|%s|true|false|null)" % (_OPEN_STRING, _NUMBER)
_OPEN_OR_EMPTY = rb"\[(?:%s\])?|{(?:%s})?" % (_SPACE, _SPACE)
_UNFINISHED_STRINGS = {
    _OPEN_STRING + rb"\"" + _SPACE: "after object key",
    _OPEN_STRING + rb"\\u[0-9a-fA-F]{0,3}(?![0-9a-fA-F])": "in \\u hexadecimal character escape",
    _OPEN_STRING + rb"\\(?![\"\\/bfnrtu])": "in string escape code",
    _OPEN_STRING: "in string literal",
}
_UNFINISHED_VALUES = {
    **_UNFINISHED_STRINGS,
    _WHOLE + rb"(?:\.[0-9]+)?[eE][+-]?": "in exponent of numeric literal",
    _WHOLE + rb"\.": "after decimal point in numeric literal",
    rb"-": "in numeric literal",
    **{
        word[:length].encode(): f"in literal {word} (expecting '{word[length]}')"
        for word in ("true", "false", "null")
        for length in (4, 3, 2, 1)
        if length < len(word)
    },
}


class _State:
    """State of the scanner: the pattern of the next token, and the end of the messages about invalid input.

    `unfinished` maps patterns of unfinished tokens to such messages. `where` applies to all other input.
    """

    def __init__(self, token: bytes, where: str, unfinished: Mapping[bytes, str] | None = None) -> None:
        self.match = re.compile(rb"%s(?:%s)" % (_SPACE, token)).match
        self.where, self.unfinished = where, unfinished or {}

    def fail(self, data: bytes, at: int) -> NoReturn:
        """Raise Go's syntax error for the data at the offset `at`, which is not a valid token."""
        at, where = len(data) - len(data[at:].lstrip(b" \t\r\n")), self.where
        for pattern, place in self.unfinished.items():
            if found := re.compile(pattern).match(data, at):
                at, where = found.end(), place
                break
        if at == len(data):
            raise HttpError(400, "unexpected EOF")
        character = quoted(chr(data[at]))[1:-1]
        raise HttpError(400, f"invalid character '{_UNESCAPED.get(character, character)}' {where}")


_UNESCAPED = {"'": "\\'", '\\"': '"'}
# Several array items match in one step, which speeds up large arrays.
_AFTER_ITEM = _State(rb"(?:,%s%s%s){0,999}[,\]]" % (_SPACE, _SCALAR, _SPACE), "after array element")
_AFTER_FIELD = _State(rb"[,}]", "after object key:value pair")
_VALUE = _State(_OPEN_OR_EMPTY + rb"|" + _SCALAR, "looking for beginning of value", _UNFINISHED_VALUES)
_KEY = _State(rb"%s\"%s:" % (_OPEN_STRING, _SPACE), "looking for beginning of object key string", _UNFINISHED_STRINGS)


def _value_end(data: bytes) -> int:
    if not data.strip(b" \t\r\n"):
        raise HttpError(400, "missing request body")
    at, state = 0, _VALUE
    arrays: list[bool] = []  # open containers, outermost first: True for an array
    while True:
        found = state.match(data, at)
        if not found:
            state.fail(data, at)
        at = found.end()
        last = data[at - 1]
        if last in b"[{":
            arrays.append(last == ord("["))
            state = _VALUE if arrays[-1] else _KEY
            if len(arrays) > MAX_DEPTH:
                raise HttpError(400, "exceeded max depth")
        elif last == ord(":"):
            state = _VALUE
        elif last == ord(","):
            state = _VALUE if arrays[-1] else _KEY
        else:
            if state is not _VALUE:  # the end of a container
                arrays.pop()
            if not arrays:
                return at
            state = _AFTER_ITEM if arrays[-1] else _AFTER_FIELD


def field_source(data: bytes, field: str) -> str:
    """Return the source text of a field's value. The data is a JSON object. Field names are case-insensitive."""
    source, at = b"", data.index(b"{") + 1
    while key := _KEY.match(data, at):
        start = key.end()
        end = start + _value_end(data[start:])
        if loads(key[0]).lower() == field:
            source = data[start:end].strip()
        after = _AFTER_FIELD.match(data, end)
        if not after or after[0].endswith(b"}"):
            break
        at = after.end()
    return source.decode("utf-8", "replace")


@dataclass(eq=False)
class Mismatch(Exception):
    """JSON value of the wrong type. `owner` is the name of the innermost Go struct that contains the value.

    `path` contains the names of all fields that lead to the value, separated by dots.
    """

    found: str
    go_type: str
    owner: str = ""
    path: str = ""

    @property
    def message(self) -> str:
        place = f"struct field {self.owner}.{self.path}" if self.path else "value"
        return f"json: cannot unmarshal {self.found} into Go {place} of type {self.go_type}"


def read_body(data: bytes, name: str, fields: Mapping[str, Decoder]) -> dict[str, Any]:
    """Decode a request body as the Go struct `name`. Return the decoded fields that are present. Raises HttpError."""
    decode = struct(f"api.{name}", fields)
    body: dict[str, Any]
    try:
        try:
            body = decode(loads(data))
        except Mismatch:  # decode again, because the message can contain the source text of a number
            body = decode(_loads_with_sources(data))
    except Mismatch as mismatch:
        raise HttpError(400, mismatch.message) from None
    except RecursionError:
        raise HttpError(400, "exceeded max depth") from None
    return body


def typed(go_type: str, kind: type, convert: Decoder = lambda value: value) -> Decoder:
    """Build a decoder for values of the type `kind`, which `convert` decodes. Null becomes the zero value of `kind`."""
    names = {bool: "bool", str: "string", list: "array", dict: "object"}

    def decode(value: Any) -> Any:
        if value is None:
            return kind()
        if type(value) is not kind:
            suffix = f" {value}" if go_type == "int" and isinstance(value, float) else ""
            raise Mismatch(names.get(type(value), "number") + suffix, go_type)
        return convert(value)

    return decode


def sequence(go_type: str, item: Decoder) -> Decoder:
    """Build a decoder for an array. `item` decodes the items."""
    return typed(go_type, list, lambda entries: [item(entry) for entry in entries])


def struct(go_type: str, fields: Mapping[str, Decoder], *, own_unmarshaler: bool = False) -> Decoder:
    """Build a decoder for an object. Field names are matched case-insensitively, and unknown fields are ignored.

    `own_unmarshaler` is true if a Go type with an own `UnmarshalJSON` contains the object. As in Go, error messages
    then name the struct around this type.
    """
    owner = go_type.rpartition(".")[2]

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in value.items():
            name = key if key in fields else key.lower()
            if name in fields and item is not None:
                try:
                    found[name] = fields[name](item)
                except Mismatch as mismatch:
                    mismatch.owner = "" if own_unmarshaler else mismatch.owner or owner
                    mismatch.path = f"{name}.{mismatch.path}".rstrip(".")
                    raise
        return found

    return typed(go_type, dict, convert)


def ordered_map(item: Decoder) -> Decoder:
    """Build a decoder for a map that keeps the order of its keys. Raises HttpError for a value that is no object."""

    def decode(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise HttpError(400, "Value looks like object, but can't find closing '}' symbol")
        return {key: item(entry) for key, entry in value.items()}

    return decode


def anything(value: Any) -> Any:
    return value


def _check_int64(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise Mismatch(f"number {value}", "int")
    return value


def check_float64(value: Any) -> None:
    """Raise Mismatch if the value is a number outside the range of a 64-bit float."""
    if isinstance(value, float) and isinf(value):
        raise Mismatch(f"number {value}", "float64")


def _check_range(fields: dict[str, Any]) -> dict[str, Any]:
    for item in fields.values():
        check_float64(item)
    return fields


def _check_base64(text: str) -> str:
    if not _BASE64.fullmatch(text.replace("\n", "").replace("\r", "")):
        raise HttpError(400, f"illegal base64 data at input byte {_error_offset(text.encode())}")
    return text


STRING = typed("string", str)
BOOL = typed("bool", bool)
INT = typed("int", int, _check_int64)
STRINGS = sequence("[]string", STRING)
MAPPING = typed("map[string]interface {}", dict, _check_range)
"""Object with arbitrary fields. Raises Mismatch for a number outside the range of a 64-bit float."""
IMAGE = typed("api.ImageData", str, _check_base64)
"""Base64 text, which is not decoded. Raises HttpError for invalid base64."""


_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def _error_offset(data: bytes) -> int:
    """Return the offset of the first invalid byte, or of the last group if it has fewer than four characters."""
    valid = re.sub(rb"(?s)[^A-Za-z0-9+/\r\n].*", b"", data)
    invalid = data[len(valid) :]
    rest = len(valid.translate(None, b"\r\n")) % 4
    if not invalid:
        return len(data) - rest
    if not invalid.startswith(b"=") or rest < 2:
        return len(valid)
    after = invalid[1:].lstrip(b"\r\n")
    if rest == 3 or not after:
        return len(data) - len(after)
    if after.startswith(b"="):
        return len(data) - len(after[1:].lstrip(b"\r\n"))
    return len(data) - len(after) - 1
